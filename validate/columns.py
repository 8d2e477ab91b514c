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

    def see(self, value: Array) -> None:
        """Note the magnitudes of a float output of usual values; its first axis are rows."""
        self._largest = self._larger(self._largest, self._reduce(value))

    def hear(self, actual: Array, exact: Array) -> None:
        """Note how far the source's float32 is from float64; both as float64."""
        self._noise = self._larger(self._noise, self._reduce(actual - exact))

    def _reduce(self, value: Array) -> Array | None:
        if value.ndim <= max(self.axis, 1) or not 1 < value.shape[self.axis] <= MOST:
            return None
        others = tuple(axis for axis in range(value.ndim) if axis != self.axis)
        with np.errstate(invalid="ignore"):
            finite = np.where(np.isfinite(value), np.abs(value), 0)
        return np.asarray(finite.max(axis=others, initial=0)).astype(np.float64)

    @staticmethod
    def _larger(before: Array | None, now: Array | None) -> Array | None:
        if before is None or now is None:
            return now if before is None else before
        return np.maximum(before, now) if before.shape == now.shape else None

    def columns(self, dtype: str) -> Columns | None:
        """Return the scales that parts have of their own; None where there is no such part."""
        if self._largest is None or self._noise is None or self._noise.shape != self._largest.shape:
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
    others = tuple(axis for axis in range(expected.ndim) if axis != columns.axis)
    with np.errstate(invalid="ignore"):
        finite = np.where(np.isfinite(expected), np.abs(expected), 0)
    here = finite.max(axis=others, keepdims=True, initial=0)
    return np.maximum(usual, here)
