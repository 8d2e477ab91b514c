"""Whatever a torch module returns, as a flat list of named tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import UsageProblem


def name_outputs(result: Any, taken: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of what a module returned, named by its key path.

    A single tensor is `output`, a tuple's items are `output_0` …; deeper keys are joined by `_`.
    What would be called like one of `taken`, the inputs, has `_out` added: in ONNX's graphs and on
    servers a name stands for one tensor.

    Raises:
        UsageProblem: two leaves have one name, or there is no tensor at all.
    """
    import torch

    leaves = list(_walk(result, ()))
    names = ["_".join(path) if path else "output" for path, _ in leaves]
    if isinstance(result, tuple | list) and not hasattr(result, "_fields"):
        names = [f"output_{name}" for name in names]
    names = [f"{name}_out" if name in taken else name for name in names]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise UsageProblem(
            f"Several outputs would be called {sorted(repeated)}.",
            remedy="Rename the keys so that joining them with '_' gives different names.",
        )
    if not any(isinstance(leaf, torch.Tensor) for _, leaf in leaves):
        raise UsageProblem(
            f"The model returns no tensor but {type(result).__name__}.",
            remedy="Return a tensor, or a tuple, list, dict or dataclass of tensors.",
        )
    yield from zip(names, (leaf for _, leaf in leaves), strict=True)


def _walk(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif hasattr(value, "_fields"):
        items = [(name, getattr(value, name)) for name in value._fields]
    elif isinstance(value, tuple | list):
        items = [(str(position), item) for position, item in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    else:
        yield path, value
        return
    for key, item in items:
        yield from _walk(item, (*path, key))


def why_omitted(leaf: Any) -> str:
    """Return why something that is no tensor is left out."""
    return "it is None" if leaf is None else f"it is no tensor but {type(leaf).__name__}"
