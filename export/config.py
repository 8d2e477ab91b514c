"""`config.pbtxt`: what Triton must know of a model, derived from the artifact itself.

The rules are those of Triton's model_configuration.md and of `ValidateModelConfig` in its core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..artifact import Artifact
from ..errors import UsageProblem
from ..report import Batching
from .platforms import Platform, find_platform
from .template import DIGEST, check_template, parse_config, read_template, refuse
from .tensors import fill_tensors

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

DEFAULT_MAX_BATCH_SIZE = 8
DEFAULT_QUEUE_DELAY = 100
"""Microseconds a request may wait for others to form a batch with."""

FRIENDLY_NAME = "tconv_name:"
"""Parameters with this prefix map a wire name to the model's own."""
NOT_BATCHED = "tconv_not_batched"
"""The parameter that says why the server must not form batches."""

_INT32, _UINT64 = 2**31 - 1, 2**64 - 1


class ConfigOptions(msgspec.Struct, frozen=True):
    """What the user may ask of a config. `queue_delay` is in microseconds, `template` a path."""

    max_batch_size: int | None = None
    preferred_batch_size: tuple[int, ...] = ()
    queue_delay: int | None = None
    instance_count: int = 1
    instance_kind: Literal["auto", "cpu", "gpu"] = "auto"
    template: str | None = None


def check_options(options: ConfigOptions, platforms: tuple[str, ...] = ()) -> None:
    """Refuse what cannot be carried out for any model, before one is converted.

    Raises:
        UsageProblem: a number is out of range, options contradict each other, a platform, or the
            template, or the template is malformed.
    """
    _check_numbers(options)
    if options.max_batch_size == 0 and _asks_for_batches(options):
        raise _no_batches("--max-batch-size is 0")
    largest = DEFAULT_MAX_BATCH_SIZE if options.max_batch_size is None else options.max_batch_size
    _check_preferred(options.preferred_batch_size, largest)
    for platform in platforms:
        _check_device(find_platform(platform), options.instance_kind)
        if options.template is not None:
            check_template(read_template(options.template, platform), read_template(None, platform))
    if options.template is not None and not platforms:
        read_template(options.template, "")


def render_config(
    name: str,
    artifact: Artifact,
    platform: str,
    batching: Batching,
    options: ConfigOptions,
    version: int,
    *,
    has_gpu: bool = False,
) -> ModelConfig:
    """Return the config of an artifact, with `version` pinned.

    Args:
        name: the model's folder.
        artifact: what is served; its signature is what the file declares.
        platform: Triton's name for the format.
        batching: the largest batch that was proven.
        options: what the user asked for.
        version: the version that is served.
        has_gpu: whether the machine that serves has a GPU.

    Raises:
        UsageProblem: the options or the template contradict what the artifact can do.
        ConversionError: the platform cannot serve a tensor.
    """
    own, rules = read_template(None, platform), find_platform(platform)
    config = read_template(options.template, platform)
    check_template(config, own, name)
    config.name, config.platform, config.backend = name, own.platform, own.backend
    _check_filename(config, artifact)
    batching = _agree_on_batch(config, artifact, batching, options)
    config.max_batch_size = batching.max_size
    fill_tensors(config, artifact, rules, batched=batching.max_size > 0)
    _fill_batching(config, batching, options)
    _fill_instances(config, rules, options, has_gpu=has_gpu)
    config.version_policy.specific.versions.append(version)
    _fill_parameters(config, artifact, batching)
    return config


def to_text(config: ModelConfig) -> str:
    """Return `config` in protobuf's text form, proven to read back as the same."""
    from google.protobuf import text_format

    text: str = text_format.MessageToString(
        config, as_utf8=True, use_short_repeated_primitives=True
    )
    if parse_config(text, "config.pbtxt") != config:
        raise RuntimeError(f"The config of {config.name} does not survive being written.")
    return text


def _check_numbers(options: ConfigOptions) -> None:
    limits = (
        ("--max-batch-size", (options.max_batch_size,), 0, _INT32),
        ("--preferred-batch-size", options.preferred_batch_size, 1, _INT32),
        ("--queue-delay", (options.queue_delay,), 0, _UINT64),
        ("--instances", (options.instance_count,), 1, _INT32),
    )
    for option, values, low, high in limits:
        for value in values:
            if value is not None and not low <= value <= high:
                raise UsageProblem(
                    f"{option} is {value}.", remedy=f"Give a number of at least {low}."
                )


def _asks_for_batches(options: ConfigOptions) -> bool:
    return bool(options.preferred_batch_size) or options.queue_delay is not None


def _no_batches(why: str) -> UsageProblem:
    return UsageProblem(
        f"A preferred batch size or queue delay was asked for, but no batches are formed: {why}.",
        remedy="Leave out --preferred-batch-size and --queue-delay.",
    )


def _check_preferred(sizes: Any, largest: int) -> None:
    for size in sizes:
        if size > largest:
            raise UsageProblem(
                f"The preferred batch size {size} is above the largest batch, {largest}.",
                remedy=f"Prefer sizes up to {largest}, or raise --max-batch-size.",
            )


def _check_device(platform: Platform, kind: str) -> None:
    if kind != "auto" and kind not in platform.devices:
        raise UsageProblem(
            f"{platform.name} does not run on a {kind.upper()}.",
            remedy=f"Use --instance-kind {platform.devices[0]}, or leave it out.",
        )


def _check_filename(config: ModelConfig, artifact: Artifact) -> None:
    name, names = config.default_model_filename, [file.name for file in artifact.files]
    if name and name not in names:
        raise refuse("default_model_filename", f"is {name!r}, but there is {', '.join(names)}")


def _agree_on_batch(
    config: ModelConfig, artifact: Artifact, batching: Batching, options: ConfigOptions
) -> Batching:
    """Return the largest batch that is proven, declared by the file, and wanted."""
    specs = (*artifact.signature.inputs, *artifact.signature.outputs)
    fixed = next((spec for spec in specs if not spec.is_batched), None)
    if batching.max_size > 0 and fixed is not None:
        batching = Batching(0, f"the file declares {fixed}, whose first axis is no batch")
    wanted = options.max_batch_size
    if wanted is not None and wanted > batching.max_size > 0:
        raise UsageProblem(
            f"--max-batch-size is {wanted}, but only {batching.max_size} was proven.",
            remedy="Build again with the larger size.",
        )
    said = config.max_batch_size
    if said > batching.max_size:
        why = batching.reason or f"{batching.max_size} is the largest that was proven"
        raise refuse("max_batch_size", f"is {said}, but {why}")
    if said and wanted is not None and said != wanted:
        raise refuse("max_batch_size", f"is {said}, but --max-batch-size is {wanted}")
    if batching.max_size == 0:
        return batching
    if wanted == 0:
        return Batching(0, "--max-batch-size is 0")
    return Batching(said or wanted or batching.max_size)


def _fill_batching(config: ModelConfig, batching: Batching, options: ConfigOptions) -> None:
    said = config.HasField("dynamic_batching") or config.HasField("sequence_batching")
    if batching.max_size == 0:
        if config.HasField("dynamic_batching"):
            raise refuse("dynamic_batching", f"needs batches, but {batching.reason}")
        if _asks_for_batches(options):
            raise _no_batches(batching.reason)
        return
    if config.HasField("sequence_batching"):
        if _asks_for_batches(options):
            raise refuse("sequence_batching", "excludes --preferred-batch-size and --queue-delay")
        return
    if said or batching.max_size > 1 or _asks_for_batches(options):
        _fill_dynamic(config.dynamic_batching, batching.max_size, options, said=said)


def _fill_dynamic(dynamic: Any, largest: int, options: ConfigOptions, *, said: bool) -> None:
    """Fill `dynamic_batching`; where the template has the block, only what was asked for."""
    sizes, delay = options.preferred_batch_size, options.queue_delay
    if dynamic.preferred_batch_size and sizes and list(dynamic.preferred_batch_size) != [*sizes]:
        raise refuse("preferred_batch_size", f"differs from --preferred-batch-size {sizes}")
    if dynamic.max_queue_delay_microseconds and delay not in (
        None,
        dynamic.max_queue_delay_microseconds,
    ):
        raise refuse("max_queue_delay_microseconds", f"differs from --queue-delay {delay}")
    if not said:
        sizes = sizes or ((largest,) if largest > 1 else ())
        delay = DEFAULT_QUEUE_DELAY if delay is None else delay
    if sizes:
        dynamic.preferred_batch_size[:] = sizes
    if delay is not None:
        dynamic.max_queue_delay_microseconds = delay
    _check_preferred(dynamic.preferred_batch_size, largest)
    dynamic.SetInParent()


def _fill_instances(
    config: ModelConfig, platform: Platform, options: ConfigOptions, *, has_gpu: bool
) -> None:
    _check_device(platform, options.instance_kind)
    if config.instance_group:
        if options.instance_count != 1 or options.instance_kind != "auto":
            raise refuse("instance_group", "is given, and so is an option that sets it")
        for group in config.instance_group:
            kind = {1: "gpu", 2: "cpu"}.get(group.kind)
            if kind is not None and kind not in platform.devices:
                raise refuse("instance_group", f"has a kind that {platform.name} does not run on")
        return
    kind = options.instance_kind
    if kind == "auto":
        kind = "gpu" if has_gpu or "cpu" not in platform.devices else "cpu"
    config.instance_group.add(count=options.instance_count, kind=f"KIND_{kind.upper()}")


def _fill_parameters(config: ModelConfig, artifact: Artifact, batching: Batching) -> None:
    config.parameters[DIGEST].string_value = artifact.digest
    for spec in (*artifact.signature.inputs, *artifact.signature.outputs):
        if (wire := artifact.wire(spec.name)) != spec.name:
            config.parameters[f"{FRIENDLY_NAME}{wire}"].string_value = spec.name
    if batching.max_size == 0:
        config.parameters[NOT_BATCHED].string_value = batching.reason
