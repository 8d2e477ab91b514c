"""Which sizes a model can be run at: what its config leaves open is found by trying."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np

from ..spec import BATCH, Axis, Dim, Signature, TensorSpec
from .base import Array, Arrays

USUAL = 16

Sizes = dict[str, int]


def narrow(signature: Signature, run: Callable[[Arrays], object]) -> Signature:
    """Return `signature` with the range of each axis cut down to what `run` accepts.

    It comes back as it is where even usual sizes are refused: then sizes are not the reason.
    """
    usual = {
        name: 1 if name == BATCH else _between(axis.min, USUAL, axis.max or USUAL)
        for name, axis in signature.axes.items()
    }

    def runs(name: str, size: int) -> bool:
        sizes = {**usual, name: size}
        try:
            run({spec.name: _fill(spec, sizes) for spec in signature.inputs})
        except Exception:  # whatever a model raises, it is a no
            return False
        return True

    if not runs(BATCH, 1):
        return signature
    found: dict[str, Dim] = {}
    for name, axis in signature.axes.items():
        if name != BATCH:
            reach = partial(_reach, usual[name], runs=partial(runs, name))
            high = axis.max if axis.max is None else reach(axis.max)
            low = reach(axis.min)
            found[name] = low if low == high else Axis(name, low, high)
    return Signature(tuple(_with_axes(spec, found) for spec in signature.inputs))


def _between(low: int, size: int, high: int) -> int:
    return max(low, min(size, high))


def _reach(good: int, wanted: int, runs: Callable[[int], bool]) -> int:
    """Return the size nearest to `wanted` that runs, going there from one that does."""
    if good == wanted or runs(wanted):
        return wanted
    bad = wanted
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        if runs(middle):
            good = middle
        else:
            bad = middle
    return good


def _fill(spec: TensorSpec, sizes: Sizes) -> Array:
    """Return plain values: an id of the middle, ones for a mask."""
    shape = spec.sized(sizes)
    if "float" in spec.dtype:
        return np.random.default_rng(0).standard_normal(shape).astype(spec.dtype)
    domain = spec.domain
    value = 1 if domain is None or domain.kind != "integer" else (domain.low + domain.high) // 2
    array = np.full(shape, value, spec.dtype)
    if domain is not None and domain.end is not None:
        array[..., -1] = domain.end
    return array


def _with_axes(spec: TensorSpec, axes: dict[str, Dim]) -> TensorSpec:
    shape = tuple(axes.get(dim.name, dim) if isinstance(dim, Axis) else dim for dim in spec.shape)
    return msgspec.structs.replace(spec, shape=shape)
