"""A version is tried beside the live one, under a name of its own, before anything is replaced."""

from __future__ import annotations

import contextlib
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from ..artifact import Artifact
from ..errors import TconvError
from .remote import RemoteTriton
from .triton import LocalTriton
from .verify import Served, Truth, verify_answers

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

LARGEST = 1 << 30
"""Bytes that travel in one load call; gRPC takes no message above 2 GiB."""


def try_candidate(
    server: RemoteTriton,
    config: ModelConfig,
    version: int,
    folder: Path,
    artifact: Artifact,
    truth: Truth,
    load_timeout: float,
    request_timeout: float,
) -> int:
    """Load a staged version under a private name, check its answers, unload it; return the checks.

    Where it is too large for one call, a server of its own on this machine takes it.

    Raises:
        TconvError: it does not load, or answers wrong.
        Unavailable: it does not in time, or there is no local server for a large one.
    """
    if artifact.size > LARGEST:
        return _in_own_server(folder, config, version, artifact, truth, request_timeout)
    name = f"tconv-candidate-{secrets.token_hex(6)}"
    own = type(config)()
    own.CopyFrom(config)
    own.name = name
    files = {f"{version}/{f.name}": (folder / f.name).read_bytes() for f in artifact.files}
    served = Served(name, version, artifact, config.max_batch_size)
    try:
        server.load_files(name, own, files, load_timeout)
        server.wait(name, version, request_timeout)
        return verify_answers(server.address, "grpc", served, truth, request_timeout)
    except TconvError as error:
        error.problem = error.problem.replace(name, f"{config.name} (tried as a candidate)")
        raise
    finally:
        with contextlib.suppress(TconvError):
            server.unload(name)


def _in_own_server(
    folder: Path,
    config: ModelConfig,
    version: int,
    artifact: Artifact,
    truth: Truth,
    timeout: float,
) -> int:
    """`folder` is `…/MODEL/VERSION`, with the config beside it: a repository of one model."""
    from .ports import Ports

    with LocalTriton() as scratch:
        scratch.start(folder.parent.parent, Ports(0, 0, 0), load=(folder.parent.name,))
        served = Served(folder.parent.name, version, artifact, config.max_batch_size)
        return verify_answers(scratch.grpc_url, "grpc", served, truth, timeout)
