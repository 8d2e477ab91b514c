"""`tconv explain`: where an artifact that failed leaves the source's path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import options

if TYPE_CHECKING:
    from ..validate.explain import Explanation


@click.command()
@options.workspace
@click.argument("target")
@options.as_json
def explain(workspace: Path, target: str, *, as_json: bool) -> None:
    """Name the first node of TARGET in WORKSPACE whose value leaves the source's path.

    \b
    Example:
        tconv explain build/gpt2 onnx
    """
    import msgspec

    from ..stages import explain_target

    found = explain_target(workspace, target)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2))
        return
    for line in describe(found):
        click.echo(line)


def describe(found: Explanation) -> list[str]:
    """Return what a person is told."""
    lines = [found.finding]
    facts = {
        "sample": found.sample,
        "node": f"{found.node} ({found.operator})" if found.node else "",
        "module": found.module,
        "line": found.line,
        "differs": f"by {found.error:.2g} of its largest value" if found.error else "",
    }
    lines += [f"  {name:8} {said}" for name, said in facts.items() if said]
    for item in found.inputs:
        between = "nothing finite" if item.low is None else f"{item.low:.6g} to {item.high:.6g}"
        specials = f", {item.specials} NaN or infinite" if item.specials else ""
        lines.append(f"  input    {item.name}: {item.dtype}{list(item.shape)}, {between}{specials}")
    lines += [f"  frozen   {note}" for note in found.tracer]
    return [*lines, *([f"  try: {found.remedy}"] if found.remedy else [])]
