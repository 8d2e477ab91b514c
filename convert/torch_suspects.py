"""Why a torch module differs from itself: the operators that draw, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .tracer import user_line

DROPOUT, STATISTICS, SAMPLING = "live dropout", "batch statistics", "sampling"

_DRAWS = (
    "rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial "
    "poisson binomial gumbel_softmax _standard_gamma _sample_dirichlet normal_ uniform_ bernoulli_ "
    "exponential_ cauchy_ log_normal_ geometric_ random_"
)
DRAWS = frozenset(_DRAWS.split())
"""Operators that draw random numbers: `torch` "Random sampling", and the in-place ones."""


@contextmanager
def suspects_recorder() -> Iterator[list[str]]:
    """Collect what makes a module's answer differ from call to call or depend on the batch.

    Each is `kind: operator at file:line`.
    """
    from torch.overrides import TorchFunctionMode

    found: list[str] = []

    class Recorder(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = getattr(func, "__name__", "")
            kind = _kind(name, args, kwargs or {})
            if kind:
                place = user_line()
                text = f"{kind}: {name}{f' at {place}' if place else ''}"
                found.extend([text] if text not in found else [])
            return func(*args, **(kwargs or {}))

    with Recorder():
        yield found


def _kind(name: str, args: Any, kwargs: Any) -> str:
    if name in DRAWS:
        return SAMPLING
    if "dropout" in name and (kwargs.get("training") or True in args[1:]):
        return DROPOUT
    if name == "scaled_dot_product_attention" and _rate(args, kwargs):
        return DROPOUT
    if name == "batch_norm" and (kwargs.get("training") or True in args[3:]):
        return STATISTICS
    return ""


def _rate(args: Any, kwargs: Any) -> float:
    place = 4
    rate: float = args[place] if len(args) > place else kwargs.get("dropout_p", 0.0)
    return rate
