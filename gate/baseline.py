"""The record of the last accepted build: a committed file in which a review sees only what moved.

One line a metric, sorted, with the reason it was accepted for. What did not change keeps its line
byte for byte. A gate that fails writes what it measured beside it, as `….new`; accepting copies
lines from there. Where no person watches (CI), neither is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ..errors import UsageProblem
from ..workspace import writing
from .threshold import Better, Known, Measure, Value

SCHEMA = 1
NEW = ".new"
"""What is put behind the baseline's name for the file that holds what was measured."""
CI_VARIABLE = "CI"
"""Set by every CI service that tconv knows of: GitHub, GitLab, Buildkite, CircleCI, Travis."""


class Entry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was accepted of one metric.

    `basis` is the digest of what it was measured on, `was` the better value that it took the place
    of, where accepting it loosened the baseline.
    """

    value: Value
    better: Better
    basis: str = ""
    accepted: str = ""
    reason: str = ""
    was: Value | None = None

    @property
    def known(self) -> Known:
        """Return what a candidate is compared with."""
        return Known(self.value, self.basis)


Entries = Mapping[str, Entry]
"""By metric."""


class Baseline(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was accepted, by `NAME/TARGET` and metric."""

    schema: int = SCHEMA
    models: dict[str, dict[str, Entry]] = {}


def in_ci() -> bool:
    """Whether no person is there."""
    return os.environ.get(CI_VARIABLE, "").lower() not in ("", "0", "false")


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        UsageProblem: there is none, or it is something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageProblem(
            f"The baseline {path} can't be read: {error.strerror}.",
            remedy=f"Make one with: tconv baseline init --baseline {path}",
        ) from error
    _check_schema(content, path)
    try:
        return msgspec.json.decode(content, type=Baseline)
    except msgspec.ValidationError as error:
        raise _no_baseline(path, str(error)) from error


def _check_schema(content: bytes, path: Path) -> None:
    """Refuse another version's file by its number, not by a field that it happens to have."""
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError as error:
        raise _no_baseline(path, str(error) if content.strip() else "it is empty") from error
    schema = found.get("schema") if isinstance(found, dict) else None
    if schema is None:
        raise _no_baseline(path, "it has no schema")
    if schema != SCHEMA:
        raise UsageProblem(
            f"{path} is a baseline of schema {schema}, and this tconv reads {SCHEMA}.",
            remedy="Use the tconv that wrote it, or make a new one with `tconv baseline init`.",
        )


def _no_baseline(path: Path, why: str) -> UsageProblem:
    return UsageProblem(
        f"{path} is no baseline: {why.rstrip('.')}.",
        remedy="Give another file with --baseline, or take it back from version control.",
    )


def to_text(baseline: Baseline) -> str:
    """Return a baseline as JSON: sorted, a line a metric."""
    lines = ["{", f'  "schema": {baseline.schema},', '  "models": {']
    models = sorted(baseline.models.items())
    for place, (model, entries) in enumerate(models, start=1):
        lines.append(f"    {json.dumps(model)}: {{")
        rows = [f"      {json.dumps(m)}: {_line(e)}" for m, e in sorted(entries.items())]
        lines += [f"{row}," for row in rows[:-1]] + rows[-1:]
        lines.append("    }," if place < len(models) else "    }")
    return "\n".join([*lines, "  }", "}", ""])


def _line(entry: Entry) -> str:
    return json.dumps(msgspec.to_builtins(entry), ensure_ascii=False)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline whole or not at all.

    Raises:
        UsageProblem: CI never writes one, or the place can't be written.
        Unavailable: the disk is full.
    """
    if in_ci():
        raise UsageProblem(
            f"{path} is not written here: ${CI_VARIABLE} is set, and CI writes no baseline.",
            remedy="Accept it at your desk, and commit the file.",
        )
    scratch = path.with_name(f"{path.name}.part")
    with writing(path):
        try:
            scratch.write_text(to_text(baseline), encoding="utf-8")
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)


def new_file(path: Path) -> Path:
    """Return where what was measured is written, beside the baseline at `path`."""
    return path.with_name(f"{path.name}{NEW}")


def propose(old: Entries, measured: Mapping[str, Measure]) -> dict[str, Entry]:
    """Return what was measured as entries; what did not change keeps its old one whole."""
    return {
        metric: kept
        if (kept := old.get(metric)) is not None and _is_same(kept, measure)
        else Entry(measure.value, measure.better, measure.basis)
        for metric, measure in measured.items()
    }


def _is_same(entry: Entry, measure: Measure) -> bool:
    return (entry.value, entry.better, entry.basis) == (
        measure.value,
        measure.better,
        measure.basis,
    )


def accept(
    old: Entries, proposed: Entries, metrics: Iterable[str], reason: str, date: str
) -> dict[str, Entry]:
    """Return the baseline's entries with the proposal's for `metrics`.

    Args:
        old: the baseline's.
        proposed: what was measured.
        metrics: which to take over; one that the proposal lacks is dropped.
        reason: why, for the reader of the file.
        date: when, as YYYY-MM-DD.
    """
    accepted = dict(old)
    for metric in metrics:
        if metric not in proposed:
            accepted.pop(metric, None)
        elif proposed[metric] != old.get(metric):
            accepted[metric] = _accepted(old.get(metric), proposed[metric], reason, date)
    return accepted


def _accepted(old: Entry | None, new: Entry, reason: str, date: str) -> Entry:
    was = old.value if old is not None and is_worse(old.value, new) else None
    return msgspec.structs.replace(new, accepted=date, reason=reason, was=was)


def is_worse(old: Value, new: Entry) -> bool:
    """Whether accepting `new` in the place of `old` loosens the baseline."""
    if isinstance(old, str) or isinstance(new.value, str) or new.better is Better.SAME:
        return False
    return new.value < old if new.better is Better.HIGHER else new.value > old
