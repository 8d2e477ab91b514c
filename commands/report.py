"""`tconv report`: the record of a build, as an HTML page."""

from __future__ import annotations

from pathlib import Path

import click

from .. import options


@click.command()
@options.workspace
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it.")
@options.as_json
def report(workspace: Path, html: Path | None, *, as_json: bool) -> None:
    """Write the record of WORKSPACE as a page, or print it.

    \b
    Example:
        tconv report build/gpt2 --html gpt2.html
    """
    import msgspec

    from ..page import to_html
    from ..request import BuildRequest
    from ..show import show_report
    from ..workspace import Workspace, writing

    place = Workspace(workspace)
    found = place.report()
    if html is not None:
        request = place.read("request.json", BuildRequest)
        with writing(html):
            html.write_text(to_html(found, msgspec.to_builtins(request)), "utf-8")
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
    elif html is None:
        show_report(found)
