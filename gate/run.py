"""The gate over the builds of several models: read, measure, judge, and say it in one record."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .. import __version__
from ..errors import TconvError, UsageProblem
from ..process import Crash, Processes
from .baseline import Baseline, Entries, in_ci, new_file, read_baseline
from .judge import Judged, Obstacle, judge_record
from .latency import Plan, Timing
from .limits import LATENCY, Limits, check_limits
from .proposal import Proposal, write_proposal
from .record import Record, read_records
from .store import ArtifactStore
from .threshold import Finding, Threshold, Verdict

MEASURE = "tconv.jobs:measure"
"""What child processes call."""
SLACK = 300.0
"""Seconds that loading both models every round may take beyond the budget."""
Watch = Callable[[str, str], None]
"""Told what begins: `NAME/TARGET` and a word."""


class GateRequest(msgspec.Struct, frozen=True):
    """What is judged, and by what. `store` is a folder or an address that fsspec knows."""

    workspaces: tuple[str, ...]
    baseline: str
    store: str
    limits: dict[str, Threshold] = {}
    plan: Plan = Plan()


class GateReport(msgspec.Struct, frozen=True):
    """The whole record of a gate; every report is made from it."""

    verdict: Verdict
    models: tuple[Judged, ...]
    baseline: str
    in_ci: bool
    plan: Plan
    notes: tuple[str, ...] = ()
    tconv: str = __version__
    platform: dict[str, str] = {}
    schema: int = 1


def gate(
    request: GateRequest, watch: Watch = lambda *_: None, processes: Processes | None = None
) -> GateReport:
    """Judge every target of the workspaces against the baseline.

    Where the verdict is no pass and a person is there, what was measured is written beside the
    baseline, ready to be accepted.

    Raises:
        UsageProblem: a workspace, the baseline's file or a limit is none.
    """
    records = [record for folder in request.workspaces for record in read_records(Path(folder))]
    if not records:
        raise UsageProblem("There is nothing to judge.", remedy="Give a workspace: build/NAME.")
    check_limits(request.limits, [metric for record in records for metric in record.measures])
    path, here = Path(request.baseline), in_ci()
    baseline, notes = _read(path, records)
    with _Bench(request, processes) as bench:
        models = tuple(
            _judge(record, baseline.models.get(record.name, {}), bench, request.limits, watch)
            for record in records
        )
    models += _vanished(records, baseline)
    verdict = _overall(models)
    if verdict is not Verdict.PASS and not here:
        write_proposal(path, Proposal.of(records, baseline))
        notes += (f"What was measured is in {new_file(path)}.",)
    return GateReport(
        verdict,
        models,
        request.baseline,
        here,
        request.plan,
        notes,
        platform={
            "system": platform.platform(),
            "python": platform.python_version(),
            "cpus": str(os.cpu_count()),
        },
    )


def _read(path: Path, records: list[Record]) -> tuple[Baseline, tuple[str, ...]]:
    """Return the baseline, and what is to be said of it."""
    if not path.exists():
        return Baseline(), (f"There is no baseline {path}: nothing can be compared.",)
    baseline = read_baseline(path)
    if not any(record.name in baseline.models for record in records):
        known = ", ".join(sorted(baseline.models)) or "nothing"
        return baseline, (f"{path} holds none of these models; it holds {known}.",)
    return baseline, ()


def _judge(record: Record, entries: Entries, bench: _Bench, limits: Limits, watch: Watch) -> Judged:
    watch(record.name, "measuring")
    return judge_record(record, entries, limits, bench.time(record, entries), in_ci=in_ci())


def _vanished(records: list[Record], baseline: Baseline) -> tuple[Judged, ...]:
    """Return the targets of these models that were accepted once and were not built now."""
    built = {record.name for record in records}
    models = {name.partition("/")[0] for name in built}
    gone = [n for n in baseline.models if n.partition("/")[0] in models and n not in built]
    why = "The baseline holds this target, and it was not built."
    return tuple(
        Judged(name, Verdict.UNKNOWN, (Finding("target", Verdict.UNKNOWN, why),))
        for name in sorted(gone)
    )


def _overall(models: tuple[Judged, ...]) -> Verdict:
    verdicts = {judged.verdict for judged in models}
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        if verdict in verdicts:
            return verdict
    return Verdict.PASS


class _Bench:
    """Where latencies are measured: child processes that are started when first needed."""

    def __init__(self, request: GateRequest, processes: Processes | None) -> None:
        self.request = request
        self._processes, self._borrowed = processes, processes is not None

    def __enter__(self) -> _Bench:
        return self

    def __exit__(self, *_: object) -> None:
        if self._processes is not None and not self._borrowed:
            self._processes.close()

    def time(self, record: Record, entries: Entries) -> list[Timing] | Obstacle:
        """Measure a candidate beside the baseline's artifact."""
        accepted = entries.get(LATENCY)
        if record.artifact is None:
            return Obstacle("There is no artifact to measure.")
        if accepted is None:
            return Obstacle("The baseline holds nothing to compare it with.")
        if accepted.value == record.artifact.digest:
            return Obstacle("The artifact is the baseline's own.", Verdict.PASS)
        with tempfile.TemporaryDirectory(prefix="tconv-gate-") as scratch:
            try:
                old = ArtifactStore(self.request.store).fetch(str(accepted.value), Path(scratch))
            except TconvError as error:
                return Obstacle(f"{error.problem} {error.remedy}")
            folder = Path(record.workspace) / "artifacts" / record.target
            return self._measure(
                record,
                (scratch, msgspec.to_builtins(old)),
                (str(folder), msgspec.to_builtins(record.artifact)),
            )

    def _measure(self, record: Record, baseline: Any, candidate: Any) -> list[Timing] | Obstacle:
        if self._processes is None:
            self._processes = Processes(("tconv.jobs",))
        workspace, plan = Path(record.workspace), self.request.plan
        ended = self._processes.run(
            MEASURE,
            {
                "target": record.target,
                "baseline": baseline,
                "candidate": candidate,
                "samples": str(workspace / "samples"),
                "plan": msgspec.to_builtins(plan),
            },
            log=workspace / "logs" / f"{record.target}-gate.log",
            timeout=plan.budget + SLACK,
        )
        if isinstance(ended.outcome, Crash):
            return Obstacle(f"Measuring ended without a result: {ended.outcome.reason}.")
        if isinstance(ended.outcome, TconvError):
            return Obstacle(ended.outcome.problem)
        return msgspec.convert(ended.outcome, list[Timing])
