"""What must hold of a version on a server: its config, its neighbours, and its answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from ..artifact import Artifact
from ..errors import TconvError
from ..report import Failed, Prepared
from ..spec import BATCH
from ..validate.judge import edge_checks, judge
from ..validate.samples import Check, SampleIndex, SampleStore
from ..validate.server import TritonRunner
from ..validate.tolerance import Tolerances
from .remote import RemoteTriton
from .template import DIGEST

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


class Served(msgspec.Struct, frozen=True):
    """A version on a server. `max_batch_size` is what its config says."""

    model: str
    version: int
    artifact: Artifact
    max_batch_size: int


class Truth(msgspec.Struct, frozen=True):
    """What its answers are compared with: a build's samples, and how far they may stray."""

    samples: str
    prepared: Prepared
    tolerances: Tolerances


def digest_of(config: ModelConfig) -> str:
    """Return the digest of the artifact that a config was made for; empty where it has none."""
    return str(config.parameters[DIGEST].string_value) if DIGEST in config.parameters else ""


def verify_config(server: RemoteTriton, model: str, digest: str) -> None:
    """Check that the server works by the config of the artifact with this digest.

    Raises:
        TconvError: it does not.
    """
    found = digest_of(server.config(model))
    if found != digest:
        raise TconvError(
            f"The server's config of {model} is for {found or 'another model'}, not for {digest}.",
            remedy="Check that --repository is the folder that the server serves.",
        )


def verify_others(server: RemoteTriton, model: str, before: dict[str, int]) -> None:
    """Check that every other model that answered before still does.

    Raises:
        TconvError: one does not.
    """
    lost = before.keys() - server.ready().keys() - {model}
    if lost:
        raise TconvError(
            f"Since {model} was loaded, {', '.join(sorted(lost))} does not answer any more.",
            remedy="Look for an ensemble that the new version does not fit.",
        )


def verify_answers(
    address: str, protocol: Literal["grpc", "http"], served: Served, truth: Truth, timeout: float
) -> int:
    """Ask the samples at batch 1 and at the largest; return how many were asked.

    Raises:
        TconvError: an answer is not the source's.
        Unavailable: the server does not answer.
    """
    store = SampleStore(Path(truth.samples))
    checks = choose_checks(store.read_index(), served.max_batch_size)
    with TritonRunner(
        address,
        served.model,
        served.version,
        served.artifact,
        batched=served.max_batch_size > 0,
        protocol=protocol,
        timeout=timeout,
    ) as runner:
        verdict = judge(runner, store, truth.prepared, truth.tolerances, checks)
    if isinstance(verdict, Failed):
        raise TconvError(
            f"{served.model} answers wrong at {runner.device}: {verdict.problem}",
            remedy=verdict.remedy,
        )
    return verdict.checks


def choose_checks(index: SampleIndex, largest: int) -> tuple[Check, ...]:
    """Return the checks of one row, and of as many as the server lets into a batch."""
    rows = {pool.name: pool.sizes.get(BATCH, 0) for pool in index.pools}
    return tuple(
        msgspec.structs.replace(check, rows=tuple(range(largest)), why=f"batch {largest}")
        if check.rows is None and 0 < largest < rows[check.pool]
        else check
        for check in edge_checks(index)
    )
