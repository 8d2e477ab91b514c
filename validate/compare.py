"""Compare one output with what the source says: pure, and it explains itself.

Shapes come before values, since broadcasting would hide a wrong batch; a NaN never passes because a
comparison with it is false; whole numbers are exact, but for indices whose scores tie and for what
was cut where rounding decides. A fill value (masked logits of -1e9) is no scale: beside it, any
other number would look right.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np

from ..convert.base import SIGN, WHOLE, Array

SMALLEST_SCALE = 3e-2
"""A row's scale is at least this share of the output's typical magnitude: a row that is near zero
by chance has no precision of its own, and its noise would excuse errors elsewhere."""
FILL = 1e3
"""From here on, equal magnitudes far above all others are fill values."""
TOGETHER, FAR = 2.0, 100.0
"""How many times fill values may be below the largest magnitude, and all others must be."""
BY_CHANCE = 0.01
"""The share of an output's numbers that may be whole before they are cut to whole numbers."""
KNOWN_FILLS = np.array(
    [*(10.0**power for power in range(3, 39)), 65504.0, np.finfo(np.float32).max], np.float32
)
"""Magnitudes that a single element has on purpose, and hardly ever by chance."""
MANY = 8
"""How many others there are where fill values were added to something, and so are not equal."""


class Difference(msgspec.Struct, frozen=True):
    """How an output differs. `error` is the worst element's, as a share of its row's scale.

    `problem` is empty where the output is as it should be. `wrong` counts the elements beyond what
    is allowed; the first or worst of them is at `where`.
    """

    error: float = 0.0
    problem: str = ""
    wrong: int = 0
    where: tuple[int, ...] = ()


class Scores(msgspec.Struct, frozen=True):
    """What an output's indices were chosen by: indices with equal scores are equally right.

    Or what its flags and whole numbers were cut from: `axis` is then `SIGN`, `WHOLE` or `HALF`.
    `near` is how far apart equal scores may be, as a share of their scale: an artifact computes
    them anew, and its rounding decides which of two neighbours comes first.
    """

    values: Array
    axis: int
    near: float = 0.0


def compare(
    actual: Array,
    expected: Array,
    allowed: float,
    *,
    typical: float = 0.0,
    by_row: bool = True,
    scores: Scores | None = None,
    columns: Array | None = None,
) -> Difference:
    """Say how far `actual` is from `expected`.

    Args:
        actual: the candidate's output.
        expected: the source's, of the same dtype and shape.
        allowed: the largest error that passes, as a share of the scale.
        typical: the output's usual magnitude; rows near zero are measured against a share of it.
        by_row: whether the first axis separates rows, each with a scale of its own.
        scores: what the indices in `expected` were chosen by.
        columns: scales of parts of a row, of a shape that broadcasts with it, where some are of
            another order of magnitude than the row's largest; infinite where none is.
    """
    if actual.dtype != expected.dtype:
        return _wrong(f"has dtype {actual.dtype} instead of {expected.dtype}")
    if actual.shape != expected.shape:
        return _wrong(f"has shape {list(actual.shape)} instead of {list(expected.shape)}")
    if expected.size == 0:
        return Difference()
    if not _is_float(expected):
        return _compare_exact(actual, expected, scores)
    return _compare_floats(actual, expected, allowed, _Scale(typical, columns), by_row=by_row)


class _Scale(NamedTuple):
    """What is known of an output's magnitude beforehand."""

    typical: float
    columns: Array | None = None


def is_exact(dtype: str) -> bool:
    """Whether outputs of this dtype must agree exactly."""
    return "float" not in dtype


def magnitude(array: Array, axis: int | None = None) -> Array:
    """Return the largest finite magnitude that is no fill value, along `axis` with a size of 1."""
    if _is_float(array) and array.dtype.name != "float64":
        array = array.astype(np.float32)
    with np.errstate(invalid="ignore"):
        largest = np.maximum(
            array.max(axis, keepdims=True, initial=0), -array.min(axis, keepdims=True, initial=0)
        )
    if largest.max(initial=0) < FILL:  # false where it is NaN
        return np.asarray(largest)
    sizes = np.where(np.isfinite(array), np.abs(array), 0).astype(np.float64)
    largest = sizes.max(axis, keepdims=True, initial=0)
    top = sizes > largest / TOGETHER
    others = np.where(top, 0, sizes)
    rest = others.max(axis, keepdims=True, initial=0)
    are_equal = (sizes == largest).sum(axis, keepdims=True) > 1
    are_apart = (others > 0).sum(axis, keepdims=True) >= MANY
    with np.errstate(over="ignore"):
        are_known = np.isin(largest.astype(np.float32), KNOWN_FILLS)
    are_known &= top.sum(axis, keepdims=True) == 1
    is_fill = (
        (largest >= FILL)
        & (are_equal | are_apart | are_known)
        & (rest > 0)
        & (rest < largest / FAR)
    )
    return np.where(is_fill, rest, largest)


def _is_float(array: Array) -> bool:
    return "float" in array.dtype.name


def _wrong(problem: str) -> Difference:
    return Difference(float("inf"), problem)


def _compare_exact(actual: Array, expected: Array, scores: Scores | None) -> Difference:
    wrong = np.asarray(actual != expected)
    if scores is not None and wrong.any():
        wrong &= ~(_tied if scores.axis >= 0 else _at_a_cut)(actual, expected, scores)
    if not wrong.any():
        return Difference()
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    count = int(wrong.sum())
    said = (
        f"differs in {count} of {expected.size} elements, first at {list(where)}: "
        f"{actual[where]} instead of {expected[where]}" + _no_excuse(scores)
    )
    return Difference(float("inf"), said, count, where)


def _no_excuse(scores: Scores | None) -> str:
    if scores is None:
        return ""
    return "; their scores do not tie" if scores.axis >= 0 else "; rounding does not explain it"


def _at_a_cut(actual: Array, expected: Array, scores: Scores) -> Array:
    """Where a number is so near a cut that rounding decides on which side it is."""
    if scores.values.shape != expected.shape or not _is_float(scores.values):
        return np.zeros(expected.shape, bool)
    values = scores.values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        if scores.axis == SIGN:
            return np.asarray(np.abs(values) <= scores.near * magnitude(values))
        distance = values - (np.round(values) if scores.axis == WHOLE else np.floor(values) + 0.5)
        near = np.abs(distance) <= scores.near * magnitude(values)
    near &= np.abs(actual.astype(np.float64) - expected.astype(np.float64)) <= 1
    at_once = distance == 0
    # Few lie on a cut by chance; many do on purpose (limited to 0..255), and nothing moves them.
    return np.asarray(near if at_once.mean() < BY_CHANCE else near & ~at_once)


def _tied(actual: Array, expected: Array, scores: Scores) -> Array:
    """Where both indices point at equal scores, and no index of a row is used twice."""
    values, axis = scores.values, scores.axis
    keep = actual.ndim == values.ndim
    a, e = (x if keep else np.expand_dims(x, axis) for x in (actual, expected))
    inside = (a >= 0) & (a < values.shape[axis])
    ours = np.take_along_axis(values, np.where(inside, a, 0), axis)
    tied = inside & _are_equal(ours, np.take_along_axis(values, e, axis), scores)
    ordered = np.sort(a, axis)
    repeated = (np.diff(ordered, axis=axis) == 0).any(axis, keepdims=True)
    tied &= ~repeated
    return tied if keep else np.asarray(np.squeeze(tied, axis))


def _are_equal(ours: Array, theirs: Array, scores: Scores) -> Array:
    equal = np.asarray(ours == theirs)
    if not scores.near or not _is_float(scores.values):
        return equal
    room = scores.near * magnitude(scores.values, scores.axis)
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(ours.astype(np.float64) - theirs) <= room
    return np.asarray(equal | near)


def _compare_floats(
    actual: Array, expected: Array, allowed: float, scale: _Scale, *, by_row: bool
) -> Difference:
    by_row = by_row and expected.ndim > 0
    where: tuple[int, ...] = ()
    worst, wrong = 0.0, 0
    for start in range(len(expected)) if by_row else [0]:
        row = slice(start, start + 1) if by_row else ...
        a, e = np.atleast_1d(actual[row]), np.atleast_1d(expected[row])
        largest = _quick_error(a, e, scale)
        if not largest <= allowed:
            error = _errors(a.astype(np.float64), e.astype(np.float64), scale)
            largest = float(error.max())
            beyond = int((error > allowed).sum())
            wrong += beyond
            if beyond and (not where or largest > worst):
                place = [int(i) for i in np.unravel_index(int(error.argmax()), e.shape)]
                where = (start + place[0], *place[1:])
        worst = max(worst, largest)
    if not wrong:
        return Difference(worst)
    how_far = f", by up to {worst:.2g} of its scale (allowed {allowed:.2g})"
    # bfloat16 has no format of its own.
    ours, theirs = (float(x[where] if x.ndim else x) for x in (actual, expected))
    said = (
        f"differs in {wrong} of {expected.size} elements"
        f"{how_far if np.isfinite(worst) else ''}: {ours:.6g} instead of {theirs:.6g} at "
        f"{list(where) if expected.ndim else []}"
    )
    return Difference(worst, said, wrong, where if expected.ndim else ())


def _scale(largest: float, typical: float) -> float:
    return max(largest, SMALLEST_SCALE * typical, 1e-30)


def _quick_error(actual: Array, expected: Array, scale: _Scale) -> float:
    """Return the worst error in few passes and no copy in float64; NaN where it can't be told."""
    is_plain = expected.dtype.name in ("float32", "float64") and expected.size
    if not is_plain or scale.columns is not None:
        return float("nan")
    with np.errstate(invalid="ignore", over="ignore"):
        largest = float(max(expected.max(), -expected.min()))
        difference = np.subtract(actual, expected)
        error = float(max(difference.max(), -difference.min()))
        error /= _scale(largest, scale.typical)
    # A NaN anywhere comes out of max() as one, and an infinity as itself: neither is judged here.
    return error if np.isfinite(largest) and not _may_be_fill(expected, largest) else float("nan")


def _may_be_fill(array: Array, largest: float) -> bool:
    if largest < FILL:
        return False
    sizes = np.abs(array)
    return not ((sizes > largest / FAR) & (sizes <= largest / TOGETHER)).any()


def _errors(actual: Array, expected: Array, known: _Scale) -> Array:
    """Return every element's error as a share of the scale; infinite where a special stands alone.

    Both are float64.
    """
    finite = np.isfinite(expected)
    scale: Array | float = _scale(float(magnitude(expected).max()), known.typical)
    if known.columns is not None:
        scale = np.minimum(scale, known.columns)
    error: Array = np.zeros_like(expected)
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(actual, expected, out=error, where=finite)
        # Only a fill value is larger than the scale; it is measured by itself.
        error = np.abs(error) / np.maximum(scale, np.where(finite, np.abs(expected), 0))
    error[_mismatched_specials(actual, expected, finite)] = np.inf
    return error


def _mismatched_specials(actual: Array, expected: Array, finite: Array) -> Array:
    """Where NaN or an infinity stands on one side only, or with the other sign."""
    both_nan = np.isnan(actual) & np.isnan(expected)
    same = both_nan | (actual == expected)
    wrong: Array = np.where(finite, ~np.isfinite(actual), ~same)
    return wrong
