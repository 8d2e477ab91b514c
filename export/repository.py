"""A Triton model repository: `<model>/<version>/<file>`, and the `config.pbtxt` that says which.

The config is the commit point. It pins one version; a version folder that no config names is inert,
and replacing the config is one rename. A version folder is never changed and its number never used
again. How Triton reads the tree: model_repository.md, and `ModelRepositoryManager` in its core.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from .. import __version__
from ..artifact import Artifact, hash_file
from ..errors import TconvError, UsageProblem
from .config import to_text
from .names import validate_name
from .staging import (
    copy_file,
    explained,
    flush_folder,
    flush_tree,
    made_folder,
    staging_folder,
    write_flushed,
)
from .template import DIGEST, parse_config

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

CONFIG = "config.pbtxt"
MANIFEST = "tconv.json"

_MOST_DIGITS = 18
"""Triton aborts on a version beyond int64; so many digits always fit."""
_ATTEMPTS = 100


class _TakenError(Exception):
    """Another process has added the version, or the model, first."""


class Manifest(msgspec.Struct, frozen=True):
    """What a version folder holds: `tconv.json` inside it."""

    model: str
    version: int
    digest: str
    created: str
    tconv: str
    artifact: Artifact
    schema: int = 1


def export_version(
    repository: Path,
    name: str,
    artifact: Artifact,
    artifact_folder: Path,
    config: ModelConfig,
    *,
    adopt: bool = False,
    above: int = 0,
) -> Path:
    """Add an artifact to the repository as a model's next version, and pin it.

    Where the live version has the same files it stays, and only a config that differs is replaced.

    Args:
        repository: the root; made if it is not there.
        name: the model's folder.
        artifact: what to export.
        artifact_folder: where its files are.
        config: its config; the version it pins is set here.
        adopt: replace a config that tconv did not write.
        above: a number that was used already; the version's is higher.

    Returns:
        The version's folder.

    Raises:
        UsageProblem: the repository cannot be written, or the model there is somebody else's.
        Unavailable: the disk is full.
        TconvError: the artifact's files are not what was validated.
    """
    validate_name(name)
    _check_files(artifact)
    with explained(repository), made_folder(repository):
        repository = repository.resolve()
        model = repository / name
        if not adopt:
            check_owner(model)
        if (version := same_version(model, artifact)) is not None:
            replace_config(repository, name, pinned(config, version))
            return model / str(version)
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(_TakenError):
                return _add_version(repository / name, above, artifact, artifact_folder, config)
    raise TconvError(
        f"Other processes keep adding versions to {model}.", remedy="Wait until they are done."
    )


def replace_config(repository: Path, name: str, config: ModelConfig) -> None:
    """Put a config in place with one rename, unless it is there already.

    Raises:
        OSError: it cannot be written.
    """
    path = repository / name / CONFIG
    if path.is_file() and read_config(path) == config:
        return
    with staging_folder(repository, name) as staging:
        write_flushed(staging / CONFIG, to_text(config).encode())
        os.replace(staging / CONFIG, path)
        flush_folder(path.parent)


def pinned(config: ModelConfig, *versions: int) -> ModelConfig:
    """Return a copy of `config` that serves these versions, and no other."""
    copy = type(config)()
    copy.CopyFrom(config)
    copy.version_policy.specific.versions[:] = sorted(set(versions))
    return copy


def read_config(path: Path) -> ModelConfig:
    """Read a `config.pbtxt`.

    Raises:
        UsageProblem: it is not there, or malformed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageProblem(
            f"{path} cannot be read: {reason}.",
            remedy="Name a model folder that `tconv build` exported.",
        ) from error
    return parse_config(text, str(path))


def read_manifest(version_folder: Path) -> Manifest:
    """Return what `export_version` recorded of a version.

    Raises:
        UsageProblem: there is no record that can be read.
    """
    try:
        return msgspec.json.decode((version_folder / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise UsageProblem(
            f"{version_folder} has no readable {MANIFEST}.",
            remedy="Name a model folder that `tconv build` exported.",
        ) from error


def versions_of(model_folder: Path) -> tuple[int, ...]:
    """Return the versions that Triton would find, in order."""
    if not model_folder.is_dir():
        return ()
    names = (entry.name for entry in model_folder.iterdir() if entry.is_dir())
    return tuple(sorted({int(n) for n in names if re.fullmatch(r"[1-9][0-9]{0,17}", n)}))


def live_version(model_folder: Path) -> int | None:
    """Return the version that the config pins; None where it pins none, or more than one.

    Raises:
        UsageProblem: the config is malformed.
    """
    versions = pins_of(model_folder)
    return versions[0] if len(versions) == 1 else None


def next_version(model_folder: Path) -> int:
    """Return 1 + the highest number that is pinned, or that any entry starts with.

    To Triton `3.tmp` is version 3.
    """
    if not model_folder.is_dir():
        return 1
    found = (re.match(r"[0-9]+", entry.name) for entry in model_folder.iterdir())
    digits = (match[0].lstrip("0") for match in found if match)
    numbers = [int(d) for d in digits if d and len(d) <= _MOST_DIGITS]
    return 1 + max([*numbers, live_version(model_folder) or 0])


def is_intact(version_folder: Path, artifact: Artifact) -> bool:
    """Whether a version has the artifact's files, unchanged."""
    paths = [(version_folder / file.name, file) for file in artifact.files]
    return all(p.is_file() and p.stat().st_size == file.size for p, file in paths) and all(
        hash_file(path) == file.sha256 for path, file in paths
    )


def _check_files(artifact: Artifact) -> None:
    for file in artifact.files:
        parts = Path(file.name).parts
        if not parts or Path(file.name).is_absolute() or ".." in parts or file.name == MANIFEST:
            raise UsageProblem(
                f"An artifact cannot have a file called {file.name!r}.",
                remedy="Build the model again.",
            )


def check_owner(model: Path) -> None:
    """Refuse a model that tconv did not export.

    Raises:
        UsageProblem: it is somebody else's.
    """
    path = model / CONFIG
    if path.exists() and DIGEST not in read_config(path).parameters:
        raise UsageProblem(
            f"{model} holds a model that tconv did not export.",
            remedy="Choose another --name or --repository, or move it away.",
        )


def pins_of(model: Path) -> tuple[int, ...]:
    """Return the versions that the config pins."""
    if not (model / CONFIG).is_file():
        return ()
    return tuple(read_config(model / CONFIG).version_policy.specific.versions)


def same_version(model: Path, artifact: Artifact) -> int | None:
    """Return the pinned version that has this artifact's files, unchanged."""
    for version in pins_of(model):
        with contextlib.suppress(UsageProblem):
            folder = model / str(version)
            if read_manifest(folder).digest == artifact.digest and is_intact(folder, artifact):
                return version
    return None


def _add_version(
    model: Path, above: int, artifact: Artifact, source: Path, config: ModelConfig
) -> Path:
    """Stage a version, then rename it in and pin it.

    Raises:
        _TakenError: another process has taken the number.
    """
    with staging_folder(model.parent, model.name) as staging:
        version = max(next_version(model), above + 1)
        staged = staging / model.name
        fill_version(staged / str(version), model.name, version, artifact, source)
        content = to_text(pinned(config, version)).encode()
        write_flushed(staged / CONFIG, content)
        flush_tree(staged)
        if model.exists():
            _rename_in(staged, model, version)
        else:
            _rename_folder(staged, model)  # a new model appears at once, with its config
        flush_folder(model.parent)
    return model / str(version)


def fill_version(folder: Path, name: str, version: int, artifact: Artifact, source: Path) -> None:
    """Copy an artifact to a new version folder, with its manifest; every file is flushed."""
    folder.mkdir(parents=True)
    for file in artifact.files:
        copy_file(file, source, folder)
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    manifest = Manifest(name, version, artifact.digest, now, __version__, artifact)
    content = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    write_flushed(folder / MANIFEST, content + b"\n")


def _rename_in(staged: Path, model: Path, version: int) -> None:
    folder = model / str(version)
    _rename_folder(staged / str(version), folder)
    try:
        flush_folder(model)
        os.replace(staged / CONFIG, model / CONFIG)
    except BaseException:
        if live_version(model) != version:  # an interrupt may come just after the rename
            shutil.rmtree(folder, ignore_errors=True)
        raise
    flush_folder(model)


def _rename_folder(source: Path, target: Path) -> None:
    """Rename a folder.

    Raises:
        _TakenError: there is one already.
    """
    try:
        source.rename(target)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise _TakenError from error
        raise
