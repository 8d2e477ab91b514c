"""`tconv publish`: bring what was built to a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from .. import options


@click.command()
@click.argument("workspace")
@click.option("--output", default="build", show_default=True, help="Where workspaces lie.")
@click.option("--url", default="localhost:8001", show_default=True, help="The server's gRPC.")
@click.option("--http-url", help="The server's HTTP.  [default: port 8000 of the same host]")
@options.repository
@click.option("--target", "targets", multiple=True, help="One target alone. Repeatable.")
@click.option(
    "--load-timeout",
    type=options.Seconds(),
    default=120.0,
    show_default=True,
    help="Seconds for a load.",
)
@click.option(
    "--request-timeout",
    type=options.Seconds(),
    default=30.0,
    show_default=True,
    help="Seconds for an answer.",
)
@options.as_json
def publish(workspace: str, output: str, *, as_json: bool, **given: Any) -> None:
    """Bring what passed in WORKSPACE to a running Triton, and check its answers there.

    WORKSPACE is a folder like build/gpt2, or a NAME below --output. --repository is the folder that
    the server serves.

    \b
    Example:
        tconv publish gpt2 --url localhost:8001 --repository models
    """
    from .. import stages

    # A source folder may have the workspace's name.
    is_workspace = (Path(workspace) / "request.json").is_file()
    folder = Path(workspace) if is_workspace else Path(output) / workspace
    results = stages.publish_workspace(folder, given, lambda text: click.echo(text, err=True))
    import msgspec

    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(results), indent=2))
        return
    for done in results:
        click.echo(f"{done.model} version {done.version} answers right ({done.checks} checks).")
