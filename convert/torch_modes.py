"""Ways to run a torch module differently without touching it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from .torch_cuts import Cuts

INDEX_FUNCTIONS = ("topk", "sort", "argsort", "argmax", "argmin", "max", "min")


def float64_mode() -> AbstractContextManager[Any]:
    """Return a context in which every operation on narrower floats is computed in float64.

    Weights are widened one at a time as they are used, so the model is neither changed nor copied;
    constants that the code makes, and the dtypes that it asks for, are widened too.
    """
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._pytree import tree_map

    narrow = (torch.float32, torch.float16, torch.bfloat16)

    def widen(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            # Under the mode itself the dtype would already look wide.
            with torch._C.DisableTorchFunction():
                return value.to(torch.float64) if value.dtype in narrow else value
        return torch.float64 if isinstance(value, torch.dtype) and value in narrow else value

    class Float64(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return tree_map(widen, func(*tree_map(widen, args), **tree_map(widen, kwargs or {})))

    return Float64()


def index_recorder() -> Any:
    """Return a context that remembers by which scores indices were chosen.

    Its `find(tensor)` gives `(scores, axis)` for a tensor that `topk`, `argmax` and the like made,
    and what flags and whole numbers were cut from; see `torch_cuts`.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Recorder(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[Any, Any, int]] = []
            self.cuts = Cuts()

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if name in INDEX_FUNCTIONS:
                indices = result if isinstance(result, torch.Tensor) else result[-1]
                if indices.dtype == torch.int64:
                    self.seen.append((indices, *_scores_of(name, args, kwargs or {})))
            else:
                self.cuts.note(name, args, kwargs or {}, result)
            return result

        def find(self, tensor: Any) -> tuple[Any, int] | None:
            for indices, scores, axis in self.seen:
                if indices is tensor and scores.dim():
                    return scores, axis % scores.dim()
            return self.cuts.find(tensor)

    return Recorder()


def _scores_of(name: str, args: Any, kwargs: Any) -> tuple[Any, int]:
    """Return what a call chose by, and along which axis; without one, over all elements."""
    scores = args[0] if args else kwargs["input"]
    place = 2 if name == "topk" else 1
    axis = kwargs.get("dim", args[place] if len(args) > place else None)
    if axis is not None:
        return scores, axis
    return (scores, -1) if name in ("topk", "sort", "argsort") else (scores.reshape(-1), 0)


def export_friendly_mode() -> AbstractContextManager[Any]:
    """Return a context that replaces what the ONNX exporters translate wrongly.

    `repeat_interleave` by a number becomes unsqueeze, expand, flatten: the TorchScript exporter's
    own version has a bad Reshape for every shape but the example's. `1.0 - whole numbers`, as is
    written of masks, gets its cast: torch.onnx finds no overload for it. Attention of a query that
    may see no key at all is zero, as in torch: the graph's softmax would give all values' mean.
    """
    import torch
    from torch.nn.functional import scaled_dot_product_attention
    from torch.overrides import TorchFunctionMode

    class Friendly(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if func in (torch.repeat_interleave, torch.Tensor.repeat_interleave):
                return _repeat(func, *args, **kwargs)
            if func is scaled_dot_product_attention:
                return _attend(func, *args, **kwargs)
            if func is torch.Tensor.__rsub__ and isinstance(args[1], float):
                return func(_as_float(args[0]), args[1])
            return func(*args, **kwargs)

    return Friendly()


def _as_float(tensor: Any) -> Any:
    import torch

    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    return tensor.to(torch.get_default_dtype()) if is_whole else tensor


def _attend(
    func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **kwargs: Any
) -> Any:
    import torch

    attended = func(query, key, value, attn_mask, *args, **kwargs)
    if attn_mask is None or attn_mask.dtype != torch.bool:
        return attended
    return torch.where(attn_mask.any(-1, keepdim=True), attended, 0.0)


def _repeat(func: Any, tensor: Any, repeats: Any, dim: int | None = None, **more: Any) -> Any:
    if not isinstance(repeats, int) or dim is None:
        return func(tensor, repeats, dim, **more)
    dim %= tensor.dim()
    sizes = [-1] * (tensor.dim() + 1)
    sizes[dim + 1] = repeats
    return tensor.unsqueeze(dim + 1).expand(sizes).flatten(dim, dim + 1)


@contextmanager
def inlined_functions() -> Iterator[None]:
    """Call the forward of each `autograd.Function` as plain code.

    A trace would hold a call into Python there, which no file can keep.
    """
    from torch.autograd.function import Function, FunctionCtx

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls.setup_context is not Function.setup_context:
            return cls.forward(*args, **kwargs)
        context: Any = FunctionCtx()
        context.needs_input_grad = (False,) * len(args)
        return cls.forward(context, *args, **kwargs)

    original = Function.__dict__["apply"]
    setattr(Function, "apply", classmethod(apply))  # noqa: B010 - mypy knows it as a method
    try:
        yield
    finally:
        setattr(Function, "apply", original)  # noqa: B010
