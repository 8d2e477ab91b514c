"""What there is, and what a publish would do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..artifact import Artifact
from ..errors import UsageProblem
from .config import to_text
from .repository import (
    CONFIG,
    check_owner,
    next_version,
    pinned,
    read_config,
    read_manifest,
    same_version,
)
from .transaction import Site
from .verify import digest_of

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


class Before(msgspec.Struct, frozen=True):
    """What there was: the version that answered, if any, and the config to put back, if any.

    `config` is the protobuf's bytes, `text` the file's, `digest` what the server's was made for.
    """

    version: int | None
    config: bytes | None
    text: bytes | None
    digest: str = ""

    @property
    def parsed(self) -> ModelConfig:
        """The config as a protobuf."""
        return _parse(self.config or b"")


class Plan(msgspec.Struct, frozen=True):
    """What is to be served: `added` is a new version folder, `new_home` a new model."""

    model: str
    version: int
    source: str
    artifact: Artifact
    config: bytes
    serves: tuple[int, ...]
    previous: int | None
    added: bool
    new_home: bool
    unchanged: bool

    @property
    def parsed(self) -> ModelConfig:
        """The config as a protobuf."""
        return _parse(self.config)

    def pinned_alone(self) -> ModelConfig:
        """Return the config of this version without the others that are served beside it."""
        return pinned(self.parsed, self.version)

    def steps(self, keep: int | None) -> tuple[str, ...]:
        """Return what would be done, a sentence each."""
        if self.unchanged:
            return (f"Nothing: version {self.version} with this digest is served already.",)
        megabytes = self.artifact.size / 1e6
        steps = [
            f"Copy {len(self.artifact.files)} files ({megabytes:.1f} MB) as version {self.version}."
            if self.added
            else f"Use version {self.version}, which is in the repository already.",
            "Load it under a private name, ask it the samples, and unload it.",
            f"Replace {self.model}/{CONFIG}: it serves {', '.join(map(str, self.serves))}.",
            "Load it, and ask it the samples through gRPC and HTTP.",
            f"If that fails: back to version {self.previous}."
            if self.previous
            else "If that fails: take it away again.",
        ]
        if keep is not None:
            steps.append(f"Remove all but {keep} of the versions that are not served.")
        return tuple(steps)


def look(site: Site, model: str) -> Before:
    """Return what there is of the model now, on the server and on disk."""
    path, version = site.state.repository / model / CONFIG, site.server.ready().get(model)
    text = site.files.read(f"{model}/{CONFIG}")
    written = None if text is None else read_config(path)
    if version is None:
        return Before(None, None if written is None else written.SerializeToString(), text)
    served = site.server.config(model)
    # The file is what the user wrote, and the server's copy is filled with defaults; but a build
    # into the very folder that is served has replaced the file already.
    if written is None or version not in written.version_policy.specific.versions:
        written = pinned(served, version)
        text = to_text(written).encode()
    return Before(version, written.SerializeToString(), text, digest_of(served))


def make_plan(site: Site, source: Path, before: Before, also: tuple[int, ...]) -> Plan:
    """Number the version, and see what of it is there already.

    Raises:
        UsageProblem: a version to serve beside it is not there; or the model is somebody else's.
    """
    manifest, asked = read_manifest(source), read_config(source.parent / CONFIG)
    home = site.state.repository / manifest.model
    check_owner(home)
    _check_also(home, also)
    in_place = home.is_dir() and source.parent.samefile(home)
    same = manifest.version if in_place else same_version(home, manifest.artifact)
    version = same or _number(site, manifest.model)
    serves = tuple(sorted({*also, version}))
    config = pinned(asked, *serves)
    unchanged = (
        before.version == max(serves)
        and before.digest == manifest.artifact.digest
        and config.SerializeToString(deterministic=True)
        == before.parsed.SerializeToString(deterministic=True)
    )
    return Plan(
        manifest.model,
        version,
        str(source),
        manifest.artifact,
        config.SerializeToString(),
        serves,
        before.version,
        same is None,
        not home.exists(),
        unchanged,
    )


def _number(site: Site, model: str) -> int:
    """Return 1 + the highest number of disk, index and journal."""
    index = max((v for name, v in site.server.versions() if name == model), default=0)
    highest = site.state.read(model).highest
    return max(next_version(site.state.repository / model), index + 1, highest + 1)


def _check_also(home: Path, also: tuple[int, ...]) -> None:
    missing = [version for version in also if not (home / str(version)).is_dir()]
    if missing:
        raise UsageProblem(
            f"{home.name} has no version {missing[0]} to serve beside the new one.",
            remedy=f"Look at `tconv versions {home.name}`.",
        )


def _parse(config: bytes) -> ModelConfig:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    return ModelConfig.FromString(config)
