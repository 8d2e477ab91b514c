"""What a gate measured and a person may accept: the file `….new` beside a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..errors import UsageProblem
from ..workspace import writing
from .baseline import Baseline, Entry, new_file, propose, read_baseline
from .limits import LATENCY
from .record import Record
from .threshold import Better, Measure, Verdict


class Proposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured, by `NAME/TARGET`, and in which workspace its artifact lies."""

    models: dict[str, dict[str, Entry]]
    workspaces: dict[str, str]

    @classmethod
    def of(cls, records: Sequence[Record], baseline: Baseline) -> Proposal:
        """Return the proposal of builds; one that did not pass its validation has none."""
        sound = [r for r in records if r.validation.verdict is Verdict.PASS]
        return cls(
            {
                record.name: propose(baseline.models.get(record.name, {}), _measured(record))
                for record in sound
            },
            {record.name: record.workspace for record in sound},
        )


def _measured(record: Record) -> dict[str, Measure]:
    """Return what is accepted of a build: of its latency, the artifact to measure beside."""
    if record.artifact is None:
        return dict(record.measures)
    return {**record.measures, LATENCY: Measure(record.artifact.digest, Better.SAME)}


def write_proposal(path: Path, proposal: Proposal) -> None:
    """Write the proposal beside the baseline at `path`.

    Raises:
        UsageProblem: the place can't be written.
        Unavailable: the disk is full.
    """
    target = new_file(path)
    scratch = target.with_name(f"{target.name}.part")
    with writing(target):
        try:
            scratch.write_bytes(msgspec.json.format(msgspec.json.encode(proposal), indent=1))
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)


def read_proposal(path: Path) -> Proposal:
    """Read what lies beside the baseline at `path`.

    Raises:
        UsageProblem: there is nothing, or it is something else.
    """
    source = new_file(path)
    try:
        return msgspec.json.decode(source.read_bytes(), type=Proposal)
    except OSError as error:
        raise UsageProblem(
            f"There is nothing to accept: {source} is not there.",
            remedy="Run `tconv gate`; it writes what it measured when that is no pass.",
        ) from error
    except msgspec.DecodeError as error:
        raise UsageProblem(
            f"{source} can't be read: {error}.", remedy="Remove it, and run `tconv gate` again."
        ) from error


class Change(msgspec.Struct, frozen=True):
    """One metric that moved. None: it is new, or gone."""

    model: str
    metric: str
    old: Entry | None
    new: Entry | None


def review(baseline: Baseline, proposal: Proposal) -> list[Change]:
    """Return what accepting the proposal would change."""
    return [
        Change(model, metric, before.get(metric), entries.get(metric))
        for model, entries in sorted(proposal.models.items())
        for before in [baseline.models.get(model, {})]
        for metric in sorted({*before, *entries})
        if before.get(metric) != entries.get(metric)
    ]


def open_review(path: Path) -> list[Change]:
    """Return what accepting what lies beside the baseline at `path` would change.

    Raises:
        UsageProblem: there is nothing to accept.
    """
    return review(read_baseline(path) if path.exists() else Baseline(), read_proposal(path))
