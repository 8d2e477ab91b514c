"""Config templates: text protos that a `config.pbtxt` starts from, and what one may not say."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageProblem

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

DIGEST = "tconv_digest"
"""The parameter that ties a config to the artifact it was made for."""

OWN_PARAMETERS = "tconv_"


def parse_config(text: str, origin: str) -> ModelConfig:
    """Read a model configuration in protobuf's text form.

    Raises:
        UsageProblem: it is malformed; says in which line of `origin`.
    """
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    try:
        return text_format.Parse(text, ModelConfig())
    except text_format.ParseError as error:
        # The message starts with line and column where the parser knows them.
        _, _, message = str(error).rpartition(" : ")
        line = error.GetLine()
        raise UsageProblem(
            f"{origin}{'' if line is None else f', line {line}'}: {message.strip()}",
            remedy="Write it as a Triton model configuration in protobuf's text form.",
        ) from error


def read_template(path: str | None, platform: str) -> ModelConfig:
    """Return the user's template, or tconv's own for a platform.

    Raises:
        UsageProblem: the file cannot be read, or is malformed.
    """
    if path is None:
        own = resources.files("tconv") / "templates" / "config" / f"{platform}.pbtxt"
        return parse_config(own.read_text(encoding="utf-8"), f"{platform}.pbtxt")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageProblem(
            f"The template {path} cannot be read: {reason}.",
            remedy="Give --template a config.pbtxt that you can read.",
        ) from error
    return _forget_own(parse_config(text, path))


def refuse(field: str, because: str, remedy: str = "") -> UsageProblem:
    """Return the error that says why the template's `field` cannot stand."""
    return UsageProblem(
        f"The template's {field} {because}.", remedy=remedy or f"Remove {field} from the template."
    )


def check_template(template: ModelConfig, platform: ModelConfig, name: str | None = None) -> None:
    """Refuse what contradicts the platform, or what tconv itself decides.

    Args:
        template: the user's.
        platform: tconv's own template for the platform.
        name: the model's, where it is known.

    Raises:
        UsageProblem: names the field.
    """
    for field in ("platform", "backend"):
        said, right = getattr(template, field), getattr(platform, field)
        if said and said != right:
            raise refuse(field, f"is {said!r}, but this target needs {right!r}")
    if template.name and name is not None and template.name != name:
        raise refuse("name", f"is {template.name!r}, but the model is called {name!r}")
    if template.HasField("ensemble_scheduling"):
        raise refuse("ensemble_scheduling", "makes an ensemble, but this is a single model")
    if template.HasField("version_policy"):
        raise refuse("version_policy", "has no effect: tconv pins the version it exports")
    if template.max_batch_size < 0:
        raise refuse("max_batch_size", "is negative")
    if own := [key for key in template.parameters if key.startswith(OWN_PARAMETERS)]:
        raise refuse(f"parameter {own[0]!r}", "has a name that is reserved for tconv")


def _forget_own(template: ModelConfig) -> ModelConfig:
    """Let a config that tconv exported serve as a template: take out what the export put in."""
    if DIGEST in template.parameters:
        for key in [key for key in template.parameters if key.startswith(OWN_PARAMETERS)]:
            del template.parameters[key]
        template.ClearField("version_policy")
    return template
