"""Find the parts of an output that have scales of their own: boxes beside a probability.

An error of 0.01 is nothing beside boxes of 600 pixels and everything in a probability. Not every
part that is small is precise, though: what is left of large terms that cancel carries their noise.
So a part is measured by its own scale only where the source's float32 noise in it is as small as
that scale.
"""

from __future__ import annotations

import numpy as np

from ..convert.base import Array
from .compare import magnitude
from .samples import Columns
from .tolerance import FLOORS, NOISE_FACTOR

APART = 10.0
"""How many times smaller than the row a part must be."""
MOST = 4096
"""Parts that are looked at."""


class ColumnMeter:
    """What is seen of one output's parts, along one axis of its rows: largest value and noise."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._largest: Array | None = None
        self._noise: Array | None = None
        self._varies = False

    def see(self, value: Array) -> None:
        """Note the magnitudes of a float output of usual values; its first axis are rows."""
        self._largest = self._larger(self._largest, self._reduce(value))

    def hear(self, actual: Array, exact: Array) -> None:
        """Note how far the source's float32 is from float64; both as float64."""
        with np.errstate(invalid="ignore"):
            difference = actual - exact
        self._noise = self._larger(self._noise, self._reduce(difference))

    def _reduce(self, value: Array) -> Array | None:
        if value.ndim <= max(self.axis, 1) or not 1 < value.shape[self.axis] <= MOST:
            return None
        return _largest(value, self.axis).reshape(-1)

    def _larger(self, before: Array | None, now: Array | None) -> Array | None:
        """Return the larger of two; an axis whose size varies is none of parts."""
        if before is None or now is None:
            return now if before is None else before
        self._varies |= before.shape != now.shape
        return before if self._varies else np.maximum(before, now)

    def columns(self, dtype: str) -> Columns | None:
        """Return the scales that parts have of their own; None where there is no such part."""
        if self._varies or self._largest is None or self._noise is None:
            return None
        if self._noise.shape != self._largest.shape:
            return None
        largest = float(magnitude(self._largest).max())
        precise = self._noise * NOISE_FACTOR <= FLOORS[dtype] * self._largest
        own = precise & (self._largest * APART < largest) & (self._largest > 0)
        if not own.any():
            return None
        scales = zip(self._largest, own, strict=True)
        return Columns(self.axis, tuple(float(size) if yes else None for size, yes in scales))


def scales_of(columns: Columns, expected: Array) -> Array:
    """Return what an answer's parts are measured by, in a shape that broadcasts with a row's.

    A part that is larger in this answer than it usually is is measured by that.
    """
    shape = [1] * expected.ndim
    shape[columns.axis] = -1
    usual = np.array([np.inf if s is None else s for s in columns.scales]).reshape(shape)
    return np.maximum(usual, _largest(expected, columns.axis))


def _largest(value: Array, axis: int) -> Array:
    """Return the largest finite magnitude of every part along `axis`, with all axes kept."""
    others = tuple(place for place in range(value.ndim) if place != axis)
    if value.dtype.name not in ("float32", "float64"):
        value = value.astype(np.float32)
    with np.errstate(invalid="ignore"):
        largest = np.maximum(
            value.max(others, keepdims=True, initial=0),
            -value.min(others, keepdims=True, initial=0),
        )
        if not np.isfinite(largest).all():
            finite = np.where(np.isfinite(value), np.abs(value), 0)
            largest = finite.max(others, keepdims=True, initial=0)
    return np.asarray(largest, np.float64)
