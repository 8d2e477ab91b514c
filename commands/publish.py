"""`tconv publish`, `rollback`, `versions`, `verify`: what a running server serves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import options

if TYPE_CHECKING:
    from ..export.publish import Published

_url = click.option("--url", default="localhost:8001", show_default=True, help="The server's gRPC.")
_timeouts = options.stacked(
    click.option(
        "--load-timeout",
        type=options.Seconds(),
        default=120.0,
        show_default=True,
        help="Seconds for a load.",
    ),
    click.option(
        "--request-timeout",
        type=options.Seconds(),
        default=30.0,
        show_default=True,
        help="Seconds for an answer.",
    ),
)
_model = click.argument("model", metavar="NAME")


@click.command()
@click.argument("workspace", required=False)
@click.option("--output", default="build", show_default=True, help="Where workspaces lie.")
@_url
@click.option("--http-url", help="The server's HTTP.  [default: port 8000 of the same host]")
@options.repository
@click.option("--target", "targets", multiple=True, help="One target alone. Repeatable.")
@_timeouts
@click.option(
    "--also-serve",
    type=click.IntRange(min=1),
    multiple=True,
    help="A version that stays served beside the new one. Repeatable.",
)
@click.option(
    "--keep",
    type=click.IntRange(min=0),
    help="Remove all but so many of the versions that are not served.  [default: keep all]",
)
@click.option("--allow-contract-change", is_flag=True, help="Publish although clients would break.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@click.option("--recover", is_flag=True, help="Only close what a publish that was killed left.")
@options.as_json
def publish(
    workspace: str | None, output: str, *, recover: bool, as_json: bool, **given: Any
) -> None:
    """Bring what passed in WORKSPACE to a running Triton, and check its answers there.

    WORKSPACE is a folder like build/gpt2, or a NAME below --output. --repository is the folder that
    the server serves. What fails is taken back, and the version before is seen to answer.

    \b
    Example:
        tconv publish gpt2 --url localhost:8001 --repository models
        tconv publish --recover --repository models
    """
    if recover:
        _recover(given, as_json=as_json)
        return
    if workspace is None:
        raise click.UsageError("Missing argument 'WORKSPACE'.")
    from .. import stages

    # A source folder may have the workspace's name.
    is_workspace = (Path(workspace) / "request.json").is_file()
    folder = Path(workspace) if is_workspace else Path(output) / workspace
    results = stages.publish_workspace(folder, given, lambda text: click.echo(text, err=True))
    if as_json:
        _echo_json(results)
        return
    for done in results:
        _tell(done)


def _tell(done: Published) -> None:
    if done.plan:
        click.echo(f"{done.model}:")
        for step in done.plan:
            click.echo(f"  {step}")
        return
    how = "is served already and answers" if done.unchanged else "answers"
    click.echo(f"{done.model} version {done.version} {how} right ({done.checks} checks).")
    for version in done.removed:
        click.echo(f"{done.model} version {version} was removed.")


def _recover(given: dict[str, Any], *, as_json: bool) -> None:
    from ..export.publish import recover_all

    closed = recover_all(
        given["repository"], given["url"], given["load_timeout"], given["request_timeout"]
    )
    if as_json:
        _echo_json({"recovered": closed})
        return
    for model in closed:
        click.echo(f"{model} is what it was before the publish that was cut off.")
    if not closed:
        click.echo("Nothing was left open.")


@click.command()
@_model
@click.option("--to", type=click.IntRange(min=1), help="The version.  [default: the one before]")
@_url
@options.repository
@_timeouts
@options.as_json
def rollback(model: str, *, to: int | None, as_json: bool, **given: Any) -> None:
    """Serve an older version of model NAME again, without a pause.

    \b
    Example:
        tconv rollback gpt2_onnx --to 3 --repository models
    """
    from ..export.history import roll_back
    from ..export.publish import opened

    with opened(
        given["repository"], given["url"], given["load_timeout"], given["request_timeout"]
    ) as site:
        done = roll_back(site, model, to)
    if as_json:
        _echo_json(done)
        return
    click.echo(f"{model} version {done.version} is served again, in place of {done.previous}.")


@click.command()
@_model
@click.option("--url", help="The server's gRPC: say what it serves as well.")
@options.repository
@options.as_json
def versions(model: str, *, url: str | None, repository: str, as_json: bool) -> None:
    """List the versions of model NAME: on disk, pinned, served, of which build, published when.

    \b
    Example:
        tconv versions gpt2_onnx --url localhost:8001 --repository models
    """
    from ..export.history import list_versions

    found = list_versions(repository, model, url)
    if as_json:
        _echo_json(found)
        return
    for one in found:
        marks = (("on disk", one.on_disk), ("pinned", one.pinned), (one.served or "", one.served))
        state = ", ".join(text for text, holds in marks if holds)
        published = f"  published {one.when} by {one.by}" if one.when else ""
        click.echo(f"{one.version:>4}  {one.digest[:12]:12}  {state}  {one.build}{published}")


@click.command()
@_model
@options.repository
@options.as_json
def verify(model: str, *, repository: str, as_json: bool) -> None:
    """Hash the files of what model NAME serves, and compare them with what was published.

    \b
    Example:
        tconv verify gpt2_onnx --repository models
    """
    from ..export.history import check_whole, verify_files

    found = verify_files(repository, model)
    check_whole(found)
    if as_json:
        _echo_json(found)
        return
    for one in found:
        click.echo(f"{model} version {one.version}: {one.files} files are what was published.")


def _echo_json(record: Any) -> None:
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(record), indent=2))
