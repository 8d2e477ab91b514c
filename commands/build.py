"""`tconv build`, and its stages alone: `convert`, `validate`, `export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import options

if TYPE_CHECKING:
    from ..report import Report
    from ..request import BuildRequest


@click.command()
@click.argument("model")
@click.option("--name", help="What the model is called.  [default: from MODEL]")
@click.option("--output", default="build", show_default=True, help="Where workspaces lie.")
@options.repository
@options.source
@options.data
@options.conversion
@options.validation
@options.config
@options.allow_unavailable
@options.as_json
@options.verbose
def build(**given: Any) -> None:
    """Convert MODEL, prove every result against it, and export what passed.

    MODEL is a transformers id or folder, file.py:factory, or package.module:factory.

    \b
    Example:
        tconv build gpt2 --targets onnx,trt
        tconv build model.py:create --input 'x:float32[batch,8]' --max-batch-size 16
    """
    from .. import pipeline
    from ..request import request_from
    from ..show import progress

    as_json, verbose = given.pop("as_json"), given.pop("verbose")
    request = request_from(given)
    with progress() as watch:
        report = pipeline.build(request, watch)
    _end(report, request, as_json=as_json, verbose=verbose)


def _end(report: Report, request: BuildRequest, *, as_json: bool, verbose: bool) -> None:
    """Print the record and leave with its exit code."""
    import msgspec

    from ..show import show_report
    from ..workspace import Workspace

    workspace = Workspace(Path(request.output) / request.name)
    if verbose:
        for log in sorted((workspace.folder / "logs").glob("*.log")):
            click.echo(f"── {log.name}\n{log.read_text(errors='replace')}", err=True)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(report), indent=2))
    else:
        show_report(report)
    sys.exit(report.exit_code)


def _stage(workspace: Path, stage: str, **given: Any) -> None:
    from .. import stages
    from ..show import progress

    as_json, verbose = given.pop("as_json"), given.pop("verbose")
    with progress() as watch:
        report, request = stages.run_stage(stage, workspace, given, watch)
    _end(report, request, as_json=as_json, verbose=verbose)


@click.command()
@options.workspace
@options.conversion
@options.allow_unavailable
@options.as_json
@options.verbose
def convert(workspace: Path, **given: Any) -> None:
    """Convert the source of WORKSPACE again, for the targets given; check and export nothing.

    \b
    Example:
        tconv convert build/gpt2 --targets onnx --exporter torchscript
    """
    _stage(workspace, "convert", **given)


@click.command()
@options.workspace
@options.validation
@options.allow_unavailable
@options.as_json
@options.verbose
def validate(workspace: Path, **given: Any) -> None:
    """Judge the artifacts of WORKSPACE again, by the samples and answers that lie there.

    \b
    Example:
        tconv validate build/gpt2 --tolerance logits=1e-4
    """
    _stage(workspace, "validate", **given)


@click.command()
@options.workspace
@options.repository
@options.config
@options.allow_unavailable
@options.as_json
@options.verbose
def export(workspace: Path, **given: Any) -> None:
    """Export what passed in WORKSPACE to a model repository.

    \b
    Example:
        tconv export build/gpt2 --repository /models --instance-count 2
    """
    _stage(workspace, "export", **given)
