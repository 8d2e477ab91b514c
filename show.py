"""What a person sees: progress on stderr while a build runs, one table at its end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .outcome import is_frozen
from .report import (
    Failed,
    NotConverted,
    NotJudged,
    OutputCheck,
    Passed,
    PreflightOnly,
    Report,
    TargetReport,
    Verdict,
)

if TYPE_CHECKING:
    from .pipeline import Stage, Watch

SAID: dict[type, tuple[str, str]] = {
    Passed: ("passed", "green"),
    Failed: ("FAILED", "red"),
    NotConverted: ("NOT CONVERTED", "red"),
    PreflightOnly: ("preflight only", "yellow"),
    NotJudged: ("not judged", "yellow"),
}
MANY = 1000
WIDE = 200
"""Columns where no terminal says how many there are."""
STAGES = {
    "prepare": "running the source",
    "convert": "converting",
    "validate": "checking",
    "export": "exporting",
}


def console(*, err: bool = False) -> Console:
    """Return a console that wraps nothing when its output is read by a program."""
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() else WIDE
    return Console(stderr=err, soft_wrap=not stream.isatty(), highlight=False, width=width)


@contextmanager
def progress() -> Iterator[Watch]:
    """Yield a watch that shows the stage, the target and the time: a spinner, or plain lines."""
    screen = console(err=True)
    started = time.monotonic()
    if not screen.is_terminal:

        def line(target: str, stage: Stage, detail: str) -> None:
            elapsed = time.monotonic() - started
            print(f"[{elapsed:6.1f} s] {_doing(target, stage, detail)}", file=sys.stderr)

        yield line
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=screen) as bar:
        tasks: list[int] = []

        def spin(target: str, stage: Stage, detail: str) -> None:
            for task in tasks:
                bar.update(task, total=1, completed=1)  # type: ignore[arg-type]
            tasks.append(bar.add_task(escape(_doing(target, stage, detail)), total=None))

        yield spin
        for task in tasks:
            bar.update(task, total=1, completed=1)  # type: ignore[arg-type]


def _doing(target: str, stage: Stage, detail: str) -> str:
    words = [f"{target}: {STAGES[stage]}" if target else STAGES[stage]]
    return " ".join([*words, f"({detail})"] if detail else words)


def show_report(report: Report) -> None:
    """Print the table, what went wrong, what is worth knowing, and the next command."""
    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("target", "verdict", "error", "allowed", "noise", "size", "time", "memory"):
        left = title in ("target", "verdict")
        table.add_column(title, justify="left" if left else "right", no_wrap=True)
    table.add_column("where", overflow="fold")
    for target in report.targets:
        table.add_row(*_row(target))
    out.print(table)
    for target in report.targets:
        _show_trouble(out, target)
    for line in (*_scores(report), *_remarks(report)):
        out.print(f"[dim]{escape(line)}[/dim]")
    for line in _frozen(report):
        out.print(f"[yellow]warning:[/yellow] {escape(line)}")
    out.print(f"\n{escape(next_command(report))}")


def _row(target: TargetReport) -> tuple[str, ...]:
    said, colour = SAID[type(target.verdict)]
    costs = [c for a in target.attempts for c in (a.convert_cost, a.validate_cost) if c]
    return (
        target.target,
        f"[{colour}]{said}[/{colour}]",
        *map(escape, worst(target.verdict)),
        size(target.artifact.size) if target.artifact else "",
        f"{sum(cost.seconds for cost in costs):.1f} s" if costs else "",
        size(max(cost.peak_memory for cost in costs)) if costs else "",
        escape(nearby(target.exported)) if target.exported else "",
    )


def worst(verdict: Verdict) -> tuple[str, str, str]:
    """Return error, tolerance and share of the source's own noise of the output nearest its limit.

    For a failed verdict that is the output that went furthest beyond.
    """
    outputs = verdict.outputs if isinstance(verdict, Passed | Failed) else ()
    if not outputs:
        return "", "", ""
    check = max(outputs, key=_closeness)
    if check.exact:
        return "exact" if check.error == 0 else "differs", "exact", ""
    if check.error is None:
        return "differs", f"{check.tolerance:.0e}", ""
    return f"{check.error:.1e}", f"{check.tolerance:.0e}", _times(check.error, check.noise)


def _times(error: float, noise: float | None) -> str:
    """Return how many times the source's own noise an error is."""
    if not noise:
        return "unknown"
    ratio = error / noise
    return f"{ratio:.1f}×" if ratio < MANY else f">{MANY}×"


def nearby(path: str) -> str:
    """Return `path` from the current folder, where it lies below that."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def _closeness(check: OutputCheck) -> float:
    if check.error is None:
        return float("inf")
    return check.error / check.tolerance if check.tolerance else check.error


def _show_trouble(out: Console, target: TargetReport) -> None:
    verdict = target.verdict
    for attempt in target.attempts[:-1]:
        if not isinstance(attempt.verdict, Passed):
            why = attempt.verdict.problem
            out.print(f"\n[bold]{target.target}[/bold] by {attempt.recipe}: {escape(why)}")
    if isinstance(verdict, Passed):
        return
    out.print(f"\n[bold]{target.target}[/bold]: {escape(verdict.problem)}")
    out.print(f"  try: {escape(verdict.remedy)}")
    if isinstance(verdict, NotConverted) and verdict.tail:
        out.print(f"[dim]{escape(verdict.tail)}[/dim]")


def _remarks(report: Report) -> list[str]:
    prepared = report.prepared
    if prepared is None:
        return []
    lines = [f"input  {spec}" for spec in prepared.signature.inputs]
    lines += [f"output {spec}" for spec in prepared.signature.outputs]
    if prepared.frozen:
        frozen = ", ".join(f"{name}={value}" for name, value in prepared.frozen.items())
        lines.append(f"frozen {frozen}")
    lines += [f"left out {item.name}: {item.reason}" for item in prepared.omitted]
    if not prepared.batching.max_size:
        lines.append(f"no batching: {prepared.batching.reason}")
    return [*lines, *dict.fromkeys((*prepared.notes, *_notes(report)))]


def _scores(report: Report) -> list[str]:
    """Return how good each artifact is on the user's own rows, beside the source."""
    lines = []
    for target in report.targets:
        score = target.verdict.score if isinstance(target.verdict, Passed | Failed) else None
        if score is not None:
            ours, theirs = (f"{v:.6g}" if v is not None else "-" for v in score.pair)
            said = f"{score.metric} {ours} on {score.rows} rows, the source's {theirs}"
            lines.append(f"{target.target}: {said}")
    return lines


def _notes(report: Report) -> list[str]:
    notes = [n for t in report.targets if t.artifact for n in t.artifact.notes]
    return [note for note in notes if not is_frozen(note)]


def _frozen(report: Report) -> list[str]:
    """Return what a tracer froze in artifacts that passed: no sample took another way."""
    passed = [t.artifact for t in report.targets if t.artifact and isinstance(t.verdict, Passed)]
    notes = dict.fromkeys(n for artifact in passed for n in artifact.notes if is_frozen(n))
    return [f"{note}: the tracer froze it, and no sample went another way." for note in notes]


def next_command(report: Report) -> str:
    """Return what to type next."""
    exported = [target.exported for target in report.targets if target.exported]
    if not exported:
        return "Nothing was exported."
    repository = exported[0].rsplit("/", 2)[0]
    served = f"tconv serve --repository {nearby(repository)}"
    return f"Next: {served}, or to a running server: tconv publish {report.name}"


def size(number: int) -> str:
    """Return a number of bytes for a person, in powers of 1000."""
    value = float(number)
    for unit in ("B", "kB", "MB"):
        if value < 1000:  # noqa: PLR2004
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.2f} GB"
