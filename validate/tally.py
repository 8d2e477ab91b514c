"""What a verdict says of one output over all checks: how far, where, and how much of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..convert.base import Array
from ..report import OutputCheck, Point, Worst
from ..spec import BATCH, TensorSpec
from .compare import Difference, is_exact
from .samples import Check, Pool
from .tolerance import Tolerances

LIKE_SCORES = ("logit", "score", "prob")
"""What an output is called whose first choice is what counts."""


class Given(NamedTuple):
    """An answer to a check beside the source's."""

    pool: Pool
    check: Check
    actual: Array
    expected: Array


class OutputTally:
    """The tally of one output."""

    def __init__(
        self, spec: TensorSpec, tolerances: Tolerances, noise: float | None, waived: str = ""
    ) -> None:
        self.spec, self.noise, self.waived = spec, noise, waived
        self.tolerance = tolerances.allowed(spec, noise)
        self.floor = tolerances.least(spec)
        self._error = 0.0
        self._worst: Worst | None = None
        self._seen = self._wrong = 0
        self._count = 0
        self._products = np.zeros(4)
        self._same, self._choices = 0, 0
        self._points: dict[tuple[str, int, tuple[tuple[str, int], ...]], float] = {}
        self._failed: set[tuple[str, int, tuple[tuple[str, int], ...]]] = set()

    def add(self, given: Given, difference: Difference) -> None:
        """Count one answer."""
        rows = given.check.rows
        size = len(rows) if rows is not None else given.pool.sizes.get(BATCH, 0)
        others = tuple((k, v) for k, v in given.pool.sizes.items() if k != BATCH)
        key = (given.pool.kind, size, others)
        self._points[key] = max(self._points.get(key, 0.0), difference.error)
        if difference.problem:
            self._failed.add(key)
        self._note_worst(given, difference)
        self._count += 1
        self._wrong += difference.wrong
        self._seen += given.expected.size
        if rows is None and given.actual.shape == given.expected.shape:
            self._measure(given.actual, given.expected)

    def _note_worst(self, given: Given, difference: Difference) -> None:
        if not self._count or difference.error > self._error:
            self._error = difference.error
            if difference.where:
                ours, theirs = (float(x[difference.where]) for x in (given.actual, given.expected))
                finite = all(map(math.isfinite, (ours, theirs)))
                worst = Worst(given.pool.name, difference.where, ours, theirs)
                self._worst = worst if finite else None

    def _measure(self, actual: Array, expected: Array) -> None:
        """Sum up what cosine, relative L2 and the share of equal first choices are made of.

        Row by row, so that no copy of a large output is held.
        """
        if is_exact(self.spec.dtype):
            return
        for ours, theirs in zip(np.atleast_1d(actual), np.atleast_1d(expected), strict=True):
            a, e = _summable(ours), _summable(theirs)
            with np.errstate(all="ignore"):
                d = a - e
                sums = [np.vdot(a, e), np.vdot(a, a), np.vdot(e, e), np.vdot(d, d)]
            if np.isfinite(sums).all():
                self._products += sums
        if self._looks_like_scores and expected.ndim > 1:
            same = actual.argmax(-1) == expected.argmax(-1)
            self._same += int(same.sum())
            self._choices += same.size

    @property
    def _looks_like_scores(self) -> bool:
        return any(word in self.spec.name.lower() for word in LIKE_SCORES)

    def summary(self) -> OutputCheck:
        """Return what the record says."""
        exact = is_exact(self.spec.dtype)
        both, ours, theirs, apart = map(float, self._products)
        error = self._error if self._count and math.isfinite(self._error) else None
        return OutputCheck(
            self.spec.name,
            error,
            0.0 if exact else self.tolerance,
            self.noise,
            exact,
            floor=None if exact else self.floor,
            mismatched=self._wrong / self._seen if self._seen else None,
            cosine=both / math.sqrt(ours * theirs) if ours * theirs > 0 else None,
            relative_l2=math.sqrt(apart / theirs) if theirs > 0 else None,
            agreement=self._same / self._choices if self._choices else None,
            worst=self._worst,
            waived=self.waived,
            points=tuple(self._point(key) for key in self._points),
        )

    def _point(self, key: tuple[str, int, tuple[tuple[str, int], ...]]) -> Point:
        kind, rows, sizes = key
        error = self._points[key]
        return Point(
            kind,
            rows,
            dict(sizes),
            error if math.isfinite(error) else None,
            key not in self._failed,
        )


def _summable(array: Array) -> Array:
    wide = np.float32 if array.dtype.name == "float32" else np.float64
    return np.ravel(array).astype(wide, copy=False)
