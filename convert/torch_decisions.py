"""Which way a module's code went where it looks at values: a trace holds one way alone."""

from __future__ import annotations

import ast
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

from .tracer import user_line

Decisions = dict[str, set[bool]]
"""The outcomes that were seen, by `file:line`."""


def decisions_recorder(seen: Decisions) -> AbstractContextManager[Any]:
    """Return a context that notes every tensor that becomes a truth value, by the user's line."""
    from torch.overrides import TorchFunctionMode

    class Recorder(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if getattr(func, "__name__", "") == "__bool__" and (place := user_line()):
                seen.setdefault(place, set()).add(bool(result))
            return result

    return Recorder()


def one_sided(seen: Decisions) -> dict[str, bool]:
    """Return the lines that went one way only, and which; not those whose other way raises."""
    return {
        place: next(iter(outcomes))
        for place, outcomes in sorted(seen.items())
        if len(outcomes) == 1 and not _only_raises(place)
    }


@cache
def _only_raises(place: str) -> bool:
    """Whether a line is an assertion, or an `if` that does nothing but raise."""
    file, _, line = place.rpartition(":")
    try:
        tree = ast.parse(Path(file).read_text("utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= int(line) <= (node.end_lineno or 0):
            return True
        if isinstance(node, ast.If) and node.test.lineno <= int(line) <= (
            node.test.end_lineno or 0
        ):
            return all(isinstance(step, ast.Raise) for step in node.body) and not node.orelse
    return False
