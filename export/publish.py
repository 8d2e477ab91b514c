"""Bring an exported version to a running server as a transaction: it answers right, or it is gone.

What a server serves is what its repository's `config.pbtxt` pins, so the way forth and the way back
are one rename and one load. The old version is never unloaded first.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ..artifact import Artifact
from ..errors import PublishError, RollbackError, TconvError, UsageProblem
from ..report import Prepared
from ..validate.tolerance import Tolerances
from .remote import RemoteTriton, grpc_address, http_address
from .repository import (
    CONFIG,
    export_version,
    live_version,
    pinned,
    read_config,
    read_manifest,
    replace_config,
)
from .staging import explained
from .verify import Served, Truth, digest_of, verify_answers, verify_config, verify_others

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


class PublishRequest(msgspec.Struct, frozen=True):
    """What to publish, and where.

    `source` is a version folder as `build` exports it, `samples` the folder of the build's samples,
    `repository` the folder that the server at `url` serves. Timeouts are in seconds.
    """

    source: str
    samples: str
    prepared: Prepared
    repository: str
    url: str = "localhost:8001"
    http_url: str | None = None
    tolerances: Tolerances = Tolerances()
    load_timeout: float = 300.0
    request_timeout: float = 60.0


class Published(msgspec.Struct, frozen=True):
    """A version that answers right. `previous` is the one it took the place of."""

    model: str
    version: int
    previous: int | None
    digest: str
    checks: int
    folder: str


class _Before(msgspec.Struct, frozen=True):
    """What there was: the version that answered, if any, and the config to put back, if any.

    `config` is the protobuf's bytes, `digest` what the server's config was made for.
    """

    version: int | None
    config: bytes | None
    digest: str = ""


class _Step(msgspec.Struct, frozen=True):
    """A version in the server's repository. `added` where this run put it there."""

    folder: Path
    model: str
    version: int
    artifact: Artifact
    max_batch_size: int
    added: bool

    @property
    def repository(self) -> Path:
        return self.folder.parent.parent


def publish(request: PublishRequest) -> Published:
    """Load a version on the server and check its answers, or bring back what was there before.

    Raises:
        UsageProblem: the request cannot be carried out; nothing was changed.
        Unavailable: the server cannot be reached or does not answer; nothing is served that was
            not served before.
        TconvError: the version does not answer right, and there was none before; it is gone again.
        PublishError: the version does not answer right; the one before was seen to answer again.
        RollbackError: … and the one before was not.
    """
    source = Path(request.source)
    manifest = read_manifest(source)
    if not Path(request.repository).is_dir():
        raise UsageProblem(
            f"There is no folder {request.repository}.",
            remedy="Give the folder that the server serves with --repository.",
        )
    with RemoteTriton(grpc_address(request.url)) as server:
        server.require_control()
        ready = server.ready()
        before = _look(server, Path(request.repository), manifest.model, ready)
        step = _bring(source, Path(request.repository), server, manifest.model)
        try:
            checks = _load_and_verify(server, step, request, ready)
        except BaseException as error:
            _give_up(server, step, before, request, error)
            raise
    previous = before.version if before.version != step.version else None
    return Published(
        step.model, step.version, previous, step.artifact.digest, checks, str(step.folder)
    )


def _look(server: RemoteTriton, repository: Path, model: str, ready: dict[str, int]) -> _Before:
    """Return what there is of the model now, on the server and on disk."""
    path, version = repository / model / CONFIG, ready.get(model)
    written = read_config(path) if path.is_file() else None
    if version is None:
        return _Before(None, None if written is None else written.SerializeToString())
    served = server.config(model)
    # The file is what the user wrote, and the server's copy is filled with defaults; but a build
    # into the very folder that is served has replaced the file already.
    if written is None or live_version(path.parent) != version:
        written = pinned(served, version)
    return _Before(version, written.SerializeToString(), digest_of(served))


def _bring(source: Path, repository: Path, server: RemoteTriton, model: str) -> _Step:
    """Make sure that the version is in the server's repository, and pinned."""
    manifest, config = read_manifest(source), read_config(source.parent / CONFIG)
    home = repository / model
    if home.is_dir() and source.parent.samefile(home):
        folder, added = source, False
        with explained(repository):
            replace_config(repository, model, pinned(config, manifest.version))
    else:
        before = live_version(home)
        highest = max((v for name, v in server.versions() if name == model), default=0)
        folder = export_version(repository, model, manifest.artifact, source, config, above=highest)
        added = int(folder.name) != before
    return _Step(folder, model, int(folder.name), manifest.artifact, config.max_batch_size, added)


def _load_and_verify(
    server: RemoteTriton, step: _Step, request: PublishRequest, ready: dict[str, int]
) -> int:
    """Load the version and prove that it answers right; return the number of checks."""
    server.load(step.model, request.load_timeout)
    server.wait(step.model, step.version, request.request_timeout)
    verify_config(server, step.model, step.artifact.digest)
    verify_others(server, step.model, ready)
    served = Served(step.model, step.version, step.artifact, step.max_batch_size)
    truth = Truth(request.samples, request.prepared, request.tolerances)
    return sum(
        verify_answers(address, protocol, served, truth, request.request_timeout)
        for address, protocol in _addresses(server, request)
    )


def _addresses(
    server: RemoteTriton, request: PublishRequest
) -> tuple[tuple[str, Literal["grpc", "http"]], ...]:
    return (
        (server.address, "grpc"),
        (http_address(request.http_url, server.address), "http"),
    )


def _give_up(
    server: RemoteTriton,
    step: _Step,
    before: _Before,
    request: PublishRequest,
    error: BaseException,
) -> None:
    """Bring back what there was, and raise what tells how that went, where more is to be said."""
    said = error.problem if isinstance(error, TconvError) else f"{type(error).__name__}: {error}"
    remedy = error.remedy if isinstance(error, TconvError) else "Look at the server's log."
    if before.version is None:
        _withdraw(server, step, before)
        return
    if before.version == step.version and not _changed(step, before):
        return  # what answers wrong is what was there before
    try:
        _go_back(server, step, before, request)
    except Exception as failure:
        raise _needs_person(step, before, request, said, failure) from error
    if isinstance(error, Exception):
        raise PublishError(
            f"{said.rstrip('.')}. Version {before.version} answers again.", remedy=remedy
        ) from error


def _changed(step: _Step, before: _Before) -> bool:
    return bool(read_config(step.folder.parent / CONFIG) != _parse(before.config))


def _parse(config: bytes | None) -> ModelConfig:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    return ModelConfig.FromString(config or b"")


def _go_back(server: RemoteTriton, step: _Step, before: _Before, request: PublishRequest) -> None:
    """Pin the version that answered before, load it, and prove that it answers again."""
    assert before.version is not None
    replace_config(step.repository, step.model, _parse(before.config))
    server.load(step.model, request.load_timeout)
    server.wait(step.model, before.version, request.request_timeout)
    verify_config(server, step.model, before.digest)
    if step.version != before.version:
        _remove(step)


def _withdraw(server: RemoteTriton, step: _Step, before: _Before) -> None:
    """Take away a model that did not answer before, and leave the folder as it was."""
    with contextlib.suppress(TconvError):
        server.unload(step.model)
    home = step.folder.parent
    if before.config is not None:
        replace_config(step.repository, step.model, _parse(before.config))
    elif step.added:
        (home / CONFIG).unlink(missing_ok=True)
    _remove(step)
    if before.config is None:
        with contextlib.suppress(OSError):
            home.rmdir()


def _remove(step: _Step) -> None:
    if step.added:
        shutil.rmtree(step.folder, ignore_errors=True)


def _needs_person(
    step: _Step, before: _Before, request: PublishRequest, said: str, failure: Exception
) -> RollbackError:
    load = (
        f"http://{http_address(request.http_url, grpc_address(request.url))}/v2/repository/models"
    )
    return RollbackError(
        f"{said.rstrip('.')}. Version {before.version} could not be brought back: {failure}",
        remedy=f"See that {step.folder.parent / CONFIG} pins version {before.version}, then run: "
        f"curl -X POST {load}/{step.model}/load",
    )
