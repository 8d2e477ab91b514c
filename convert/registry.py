"""The sources and targets tconv knows: each a module beside this file, and its name below."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from ..errors import UsageProblem
from .base import Source, Target

SOURCE_NAMES = ("python", "transformers")
"""In the order they are asked whether a model is theirs."""

TARGET_NAMES = ("torchscript", "onnx", "trt")
"""In the order they are listed; a target stands after the one it is made from."""


def find_target(name: str) -> Target:
    """Return the target called `name`."""
    if name not in TARGET_NAMES:
        raise UsageProblem(
            f"There is no target called {name!r}.",
            remedy=f"Choose from: {', '.join(TARGET_NAMES)}.",
        )
    return cast("Target", import_module(f".{name}", __package__).TARGET)


def find_source(model: str) -> Source:
    """Return the source that `model` names."""
    for name in SOURCE_NAMES:
        source = source_named(name)
        if source.claims(model):
            return source
    raise UsageProblem(
        f"{model!r} names no model that tconv knows how to load.",
        remedy="Give a transformers id or folder, file.py:factory, or package.module:factory.",
    )


def source_named(name: str) -> Source:
    """Return the source called `name`."""
    return cast("Source", import_module(f".{name}", __package__).SOURCE)
