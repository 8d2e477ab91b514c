"""Hear what torch's tracer says about the values it freezes, with the line that froze them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TextIO

SITE = "site-packages"
FRAMEWORKS = ("torch", "transformers", "onnxscript", "onnx", "tconv")
PYTHON = Path(os.__file__).parent
OWN = tuple(Path(__file__).parents[1] / name for name in ("", "convert", "validate", "export"))


@contextmanager
def tracer_warnings() -> Iterator[list[str]]:
    """Collect the tracer's warnings about lines outside the libraries; all others are printed."""
    found: list[str] = []

    def hear(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        print(warnings.formatwarning(message, category, filename, lineno, line), file=file)
        place = user_line()
        if category.__name__ == "TracerWarning" and place:
            text = f"{place}: {str(message).partition(' might ')[0].partition('. ')[0]}"
            found.extend([text] if text not in found else [])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = hear
        yield found


def user_line() -> str:
    """Return the innermost line of the stack that is the user's: the tracer names a library's."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if is_user_code(frame.f_code.co_filename) and frame.f_code.co_name != "<module>":
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def is_user_code(filename: str) -> bool:
    """Whether a file is the user's: none of Python's, of a framework's, or of ours."""
    path = Path(filename)
    if filename.startswith("<") or path.parent in OWN:
        return False
    if SITE in path.parts:
        return path.parts[path.parts.index(SITE) + 1] not in FRAMEWORKS
    return PYTHON not in path.parents
