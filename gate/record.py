"""What a gate knows of a build: its metrics, taken from the workspace's own record."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from ..artifact import Artifact
from ..report import Failed, Passed, Report, Score, TargetReport
from ..spec import Signature
from ..workspace import Workspace
from .threshold import Better, Finding, Measure, Verdict

DECIMALS = 2
"""Of an error as a share of what is allowed: threads add up in another order from run to run."""


class Record(msgspec.Struct, frozen=True):
    """One target of one build, `NAME/TARGET`; `validation` is what its own validation said."""

    name: str
    target: str
    workspace: str
    validation: Finding
    artifact: Artifact | None
    measures: dict[str, Measure] = {}


def read_records(folder: Path) -> list[Record]:
    """Return what is known of every target of a workspace.

    Raises:
        UsageProblem: no build has finished there.
    """
    workspace = Workspace(folder)
    report = workspace.report()
    return [_record(workspace, report, target) for target in report.targets]


def _record(workspace: Workspace, report: Report, target: TargetReport) -> Record:
    batch = report.prepared.batching.max_size if report.prepared else 0
    return Record(
        f"{report.name}/{target.target}",
        target.target,
        str(workspace.folder),
        _validation(target),
        target.artifact,
        _measures(target, batch),
    )


def _validation(target: TargetReport) -> Finding:
    verdict = target.verdict
    if isinstance(verdict, Passed):
        return Finding("validation", Verdict.PASS, f"All {verdict.checks} checks agreed.")
    said = Verdict.FAIL if isinstance(verdict, Failed) else Verdict.UNKNOWN
    return Finding("validation", said, verdict.problem)


def _measures(target: TargetReport, batch: int) -> dict[str, Measure]:
    artifact, verdict = target.artifact, target.verdict
    if artifact is None or not isinstance(verdict, Passed):
        return {}
    measures = {
        "contract": Measure(describe(artifact.signature, batch), Better.SAME),
        "size": Measure(artifact.size, Better.LOWER),
    }
    for output in verdict.outputs:
        if output.exact or output.error is None or output.tolerance <= 0:
            continue
        share = round(output.error / output.tolerance, DECIMALS)
        measures[f"error.{output.name}"] = Measure(share, Better.LOWER)
    return measures if verdict.score is None else measures | _scored(verdict.score)


def _scored(score: Score) -> dict[str, Measure]:
    """Return the accuracy on labelled rows, and what it is of the source's on the same rows."""
    better = Better.HIGHER if score.higher_is_better else Better.LOWER
    name = score.metric.rpartition(":")[2]  # a metric of the user's own is FILE.py:FUNCTION
    value = math.nan if score.artifact is None else score.artifact
    measures = {f"accuracy.{name}": Measure(value, better, score.data_digest)}
    share = _share(score)
    if share is not None:
        measures[f"of_source.{name}"] = Measure(share, Better.HIGHER, score.data_digest)
    return measures


def _share(score: Score) -> float | None:
    """Return how much of the source's score is kept; None where a share has no meaning."""
    if score.artifact is None or score.source is None:
        return math.nan
    if min(score.artifact, score.source) < 0:
        return None
    kept, whole = score.artifact, score.source
    if not score.higher_is_better:
        kept, whole = whole, kept
    return kept / whole if whole else 1.0


def describe(signature: Signature, batch: int) -> str:
    """Return what a client relies on, as one line."""
    takes = ", ".join(map(str, signature.inputs))
    gives = ", ".join(map(str, signature.outputs))
    return f"{takes} -> {gives}, {f'batches to {batch}' if batch else 'no batches'}"
