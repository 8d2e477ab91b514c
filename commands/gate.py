"""`tconv gate` and `tconv baseline`: whether a build may take the place of the last one."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import options

if TYPE_CHECKING:
    from ..gate.proposal import Change
    from ..gate.run import GateReport

BASELINE, STORE = "tconv-baseline.json", ".tconv-store"

_workspaces = click.argument("workspaces", nargs=-1, type=click.Path(path_type=Path))
_baseline = click.option(
    "--baseline", default=BASELINE, show_default=True, help="The committed record."
)
_store = click.option(
    "--store", default=STORE, show_default=True, help="Accepted artifacts: a folder or s3://…"
)
_file = click.Path(dir_okay=False, path_type=Path)


@click.command()
@_workspaces
@_baseline
@_store
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="METRIC.KIND=NUMBER",
    help="A limit, like size.max_drop_rel=0.1 or onnx:latency.max_drop_rel=0.05. Repeatable.",
)
@click.option(
    "--bench-budget",
    type=options.Seconds(),
    default=60.0,
    show_default=True,
    help="Seconds to measure latency in, for each target.",
)
@click.option("--markdown", type=_file, help="Write a summary, as for a job in CI.")
@click.option("--junit", type=_file, help="Write a test report.")
@options.as_json
def gate(workspaces: tuple[Path, ...], *, as_json: bool, **given: Any) -> None:
    """Judge the builds in WORKSPACES against the baseline: accuracy, errors, contract, size, speed.

    Exits with 0 if all passed, 1 if something got worse, 3 if something could not be judged.

    \b
    Example:
        tconv gate build/gpt2
        tconv gate build/gpt2 --limit size.max_drop_rel=0.1 --markdown summary.md --junit gate.xml
    """
    from ..gate.latency import Plan
    from ..gate.limits import parse_limits
    from ..gate.run import GateRequest
    from ..gate.run import gate as run

    request = GateRequest(
        tuple(map(str, workspaces)),
        given["baseline"],
        given["store"],
        parse_limits(given["limits"]),
        Plan(given["bench_budget"]),
    )
    report = run(request, lambda name, what: click.echo(f"{name}: {what}", err=True))
    _write_reports(report, given["markdown"], given["junit"])
    _show(report, as_json=as_json)
    sys.exit(report.verdict.exit_code)


def _write_reports(report: GateReport, markdown: Path | None, junit: Path | None) -> None:
    from ..gate.reports import to_annotations, to_junit, to_markdown
    from ..workspace import writing

    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    places = ((markdown, to_markdown), (Path(summary) if summary else None, to_markdown))
    for path, render in (*places, (junit, to_junit)):
        if path is not None:
            with writing(path), path.open("a" if str(path) == summary else "w") as stream:
                stream.write(render(report))
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in to_annotations(report):
            click.echo(line, err=True)


def _show(report: GateReport, *, as_json: bool) -> None:
    if as_json:
        _echo_json(report)
    else:
        _show_table(report)


def _show_table(report: GateReport) -> None:
    from rich.markup import escape
    from rich.table import Table

    from ..gate.reports import HEADLINE, headline, show
    from ..gate.threshold import Verdict
    from ..show import console

    colours = {Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.UNKNOWN: "yellow"}
    out = console()
    colour = colours[report.verdict]
    out.print(f"[{colour} bold]{HEADLINE[report.verdict]}[/]: {escape(headline(report))}")
    for judged in report.models:
        table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
        for title in (judged.name, "baseline", "now", "limit"):
            table.add_column(title, overflow="fold")
        table.add_column("", overflow="fold")
        for finding in judged.findings:
            colour = colours[finding.verdict]
            table.add_row(
                f"[{colour}]{escape(finding.metric)}[/]",
                escape(show(finding.old)),
                escape(show(finding.new)),
                escape(finding.limit),
                escape(finding.why),
            )
        out.print("")
        out.print(table)
    for note in report.notes:
        out.print(f"[dim]{escape(note)}[/dim]")
    if report.verdict is not Verdict.PASS and not report.in_ci:
        out.print(
            f"\nTo accept it: tconv baseline accept --baseline {escape(report.baseline)} "
            "--reason '…'"
        )


@click.group()
def baseline() -> None:
    """Make, look at and accept what `tconv gate` compares with.

    \b
    Example:
        tconv baseline init build/gpt2
        tconv baseline accept --reason 'a larger vocabulary'
    """


@baseline.command()
@_workspaces
@_baseline
@_store
@click.option("--reason", default="the first", show_default=True, help="Why, for the file.")
@options.as_json
def init(
    workspaces: tuple[Path, ...], *, baseline: str, store: str, reason: str, as_json: bool
) -> None:
    """Make a baseline of the builds in WORKSPACES.

    \b
    Example:
        tconv baseline init build/gpt2
    """
    from ..gate.accept import init_baseline

    changes = init_baseline(tuple(map(str, workspaces)), Path(baseline), store, reason)
    _tell(changes, as_json=as_json)


@baseline.command()
@_baseline
@options.as_json
def review(*, baseline: str, as_json: bool) -> None:
    """Show what the last gate measured that differs from the baseline.

    \b
    Example:
        tconv baseline review
    """
    from ..gate.proposal import open_review

    _tell(open_review(Path(baseline)), as_json=as_json)


@baseline.command()
@click.argument("changes", nargs=-1)
@_baseline
@_store
@click.option("--reason", required=True, help="Why, for the reader of the file.")
@options.as_json
def accept(
    changes: tuple[str, ...], *, baseline: str, store: str, reason: str, as_json: bool
) -> None:
    """Take over what the last gate measured: all of it, or CHANGES like digits/onnx:size.

    \b
    Example:
        tconv baseline accept --reason 'a larger vocabulary'
        tconv baseline accept digits/onnx:size --reason 'two more layers'
    """
    from ..gate.accept import accept_changes
    from ..gate.store import ArtifactStore

    accepted = accept_changes(Path(baseline), ArtifactStore(store), changes, reason)
    _tell(accepted, as_json=as_json)


@baseline.command()
@_workspaces
@_baseline
@options.as_json
def prune(workspaces: tuple[Path, ...], *, baseline: str, as_json: bool) -> None:
    """Drop from the baseline what the builds in WORKSPACES do not have.

    \b
    Example:
        tconv baseline prune build/gpt2 build/digits
    """
    from ..gate.accept import prune_baseline

    dropped = prune_baseline(tuple(map(str, workspaces)), Path(baseline))
    if as_json:
        _echo_json(dropped)
        return
    for name in dropped:
        click.echo(f"dropped {name}")


def _echo_json(record: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(record), indent=2))


def _tell(changes: list[Change], *, as_json: bool) -> None:
    from ..gate.reports import show

    if as_json:
        _echo_json(changes)
        return
    for change in changes:
        old, new = (e.value if e else None for e in (change.old, change.new))
        click.echo(f"{change.model}:{change.metric}  {show(old)} -> {show(new)}")
    if not changes:
        click.echo("Nothing changed.")
