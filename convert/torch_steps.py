"""Every operation of a torch module on one sample: what it took, what it gave, and where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .base import Array
from .torch_tensors import to_array
from .tracer import user_line


class Operation(NamedTuple):
    """An operation: `inputs` and `output` number tensors; `line` is the user's that called it."""

    name: str
    line: str
    inputs: tuple[int, ...]
    output: int
    value: Array


@contextmanager
def operations_recorder() -> Iterator[list[Operation]]:
    """Collect all operations that give floating-point tensors, in order."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_leaves

    found: list[Operation] = []
    kept: list[Any] = []  # alive, so that no number is used twice

    class Recorder(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            given = tree_leaves((args, kwargs or {}))
            tensors = [x for x in given if isinstance(x, torch.Tensor)]
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and tensors:
                    kept.extend([*tensors, leaf])
                    found.append(
                        Operation(
                            getattr(func, "__name__", str(func)),
                            user_line(),
                            tuple(map(id, tensors)),
                            id(leaf),
                            to_array(leaf.detach().clone(), "a value"),
                        )
                    )
            return result

    with Recorder():
        yield found
