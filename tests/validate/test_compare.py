from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tconv.convert.base import HALF, SIGN, WHOLE
from tconv.validate import compare as module
from tconv.validate.compare import SMALLEST_SCALE, Difference, Scores, compare, is_exact, magnitude

FLOATS = ("float16", "float32", "float64")
DTYPES = (*FLOATS, "bool", "int8", "uint16", "int32", "int64", "uint64")
SHAPES = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
NAN, INF = float("nan"), float("inf")


def _f32(values: Any) -> Any:
    return np.array(values, "float32")


def _i64(values: Any) -> Any:
    return np.array(values, "int64")


def _f64(values: Any) -> Any:
    return np.array(values, "float64")


@st.composite
def arrays(draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES) -> np.ndarray[Any, Any]:
    return draw(npst.arrays(draw(st.sampled_from(dtypes)), draw(SHAPES)))


def _normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray[Any, Any]:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


@given(arrays(), st.booleans())
def test_an_array_is_as_itself(array: np.ndarray[Any, Any], by_row: bool) -> None:
    assert compare(array.copy(), array, 0.0, by_row=by_row) == Difference()


@given(arrays(), arrays())
def test_other_dtypes_or_shapes_never_agree(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]
) -> None:
    assume(a.dtype != b.dtype or a.shape != b.shape)
    assert compare(a, b, INF).problem
    assert compare(b, a, INF).problem


@given(arrays(FLOATS), st.data())
def test_a_special_on_one_side_never_passes(
    array: np.ndarray[Any, Any], data: st.DataObject
) -> None:
    assume(array.size)
    place = data.draw(st.integers(0, array.size - 1))
    special = data.draw(st.sampled_from((NAN, INF, -INF)))
    other = array.copy()
    other.reshape(-1)[place] = special
    before = array.reshape(-1)[place]
    assume(not (before == special or (np.isnan(before) and np.isnan(special))))
    for pair in ((array, other), (other, array)):
        found = compare(*pair, 0.9)
        assert found.problem
        assert found.error == INF


@given(
    st.integers(0, 99),
    st.integers(-80, 80),
    st.floats(1e-9, 1e-1),
    st.sampled_from(("float32", "float64")),
)
def test_the_error_is_a_share_of_the_scale(
    seed: int, exponent: int, strength: float, dtype: str
) -> None:
    expected = _normal(3, 7, dtype=dtype, seed=seed)
    actual = (expected + strength * _normal(3, 7, seed=seed + 1)).astype(dtype)
    factor = np.asarray(2.0**exponent, dtype)  # exact: no rounding of its own
    plain = compare(actual, expected, INF)
    scaled = compare(actual * factor, expected * factor, INF)
    assert scaled.error == pytest.approx(plain.error, rel=1e-5)


@given(
    arrays(("float32", "float64")), st.integers(-12, 1), st.floats(0, 9), st.booleans(), st.data()
)
def test_the_quick_path_agrees_with_the_slow_one(
    expected: np.ndarray[Any, Any],
    exponent: int,
    typical: float,
    by_row: bool,
    data: st.DataObject,
) -> None:
    noise = data.draw(npst.arrays(expected.dtype, expected.shape))
    with np.errstate(all="ignore"):
        actual = np.asarray(expected + noise * expected.dtype.type(10.0**exponent))
    quick = compare(actual, expected, 1e-4, typical=typical, by_row=by_row)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_quick_error", lambda *_: NAN)
        slow = compare(actual, expected, 1e-4, typical=typical, by_row=by_row)
    close = slow.error == pytest.approx(1e-4, rel=1e-5)
    assert bool(quick.problem) == bool(slow.problem) or close
    assert quick.error == pytest.approx(slow.error, rel=1e-5, abs=1e-12)


def test_the_quick_path_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_errors", lambda *_: pytest.fail("the slow path"))
    expected = _normal(4, 9) * 5000
    assert not compare(expected * np.float32(1 + 1e-6), expected, 1e-5).problem


@pytest.mark.parametrize("dtype", [*FLOATS, "bfloat16"])
def test_one_wrong_element_is_told(dtype: str) -> None:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    expected = np.full((4, 3), 2, kind)
    actual = expected.copy()
    actual[2, 1] = 1.5
    found = compare(actual, expected, 0.125)
    assert found.problem == (
        "differs in 1 of 12 elements, by up to 0.25 of its scale (allowed 0.12): "
        "1.5 instead of 2 at [2, 1]"
    )
    assert found.error == 0.25
    assert not compare(actual, expected, 0.25).problem


@pytest.mark.parametrize(
    ("actual", "expected", "says"),
    [
        pytest.param(1.5, 2.0, "1.5 instead of 2 at []", id="scalar"),
        pytest.param([1.0, NAN], [1.0, 2.0], "nan instead of 2 at [1]", id="NaN"),
        pytest.param([1.0, INF], [1.0, -INF], "inf instead of -inf at [1]", id="other sign"),
        pytest.param([1.0, 9.0], [1.0, INF], "9 instead of inf at [1]", id="number for infinity"),
        pytest.param([[2.0], [0.0]], [[2.0], [1.0]], "0 instead of 1 at [1, 0]", id="second row"),
        pytest.param([[2.2], [4.0]], [[2.0], [1.0]], "4 instead of 1 at [1, 0]", id="the worst"),
    ],
)
def test_the_worst_element_is_shown(actual: Any, expected: Any, says: str) -> None:
    found = compare(_f32(actual), _f32(expected), 0.01)
    assert found.problem.endswith(says)


def test_all_wrong_elements_are_counted() -> None:
    expected = np.ones((5, 4), "float32")
    actual = expected.copy()
    actual[1, :3] = 2
    actual[4, 0] = NAN
    assert compare(actual, expected, 0.1).problem.startswith("differs in 4 of 20 elements")


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param((1, 3), (4, 3), id="one row for four"),
        pytest.param((3,), (4, 3), id="no batch"),
        pytest.param((4, 1), (4, 3), id="a column"),
        pytest.param((), (1,), id="scalar for one element"),
        pytest.param((0, 3), (0, 4), id="empty"),
        pytest.param((3, 4), (4, 3), id="transposed"),
    ],
)
def test_shapes_that_broadcast_are_told(actual: tuple[int, ...], expected: tuple[int, ...]) -> None:
    found = compare(np.ones(actual, "float32"), np.ones(expected, "float32"), 0.5)
    assert found.problem == f"has shape {list(actual)} instead of {list(expected)}"
    assert found.error == INF


@pytest.mark.parametrize(
    ("actual", "expected"), [("int32", "int64"), ("float64", "float32"), ("bool", "uint8")]
)
def test_a_wider_or_narrower_dtype_is_told(actual: str, expected: str) -> None:
    found = compare(np.ones(3, actual), np.ones(3, expected), 0.5)
    assert found.problem == f"has dtype {actual} instead of {expected}"


def test_every_row_has_its_own_scale() -> None:
    expected = _f32([[1000, 500], [0.5, 1]])
    actual = expected + _f32([[0, 0], [0.1, 0]])
    assert compare(actual, expected, 0.01).error == pytest.approx(0.1)
    assert compare(actual, expected, 0.01, by_row=False).error == pytest.approx(1e-4)


def test_a_row_of_zeros_is_measured_by_what_is_typical() -> None:
    expected, actual = np.zeros((2, 2), "float32"), np.full((2, 2), 1e-6, "float32")
    error = 1e-6 / (SMALLEST_SCALE * 100)
    assert compare(actual, expected, 1e-3, typical=100.0).error == pytest.approx(error)
    assert compare(actual, expected, 1e-3).problem


def test_a_difference_that_overflows_is_told() -> None:
    expected = _f64([1e308, 1.0])
    found = compare(-expected, expected, 1e-3, by_row=False)
    assert found.problem.startswith("differs in 1 of 2 elements: -1e+308 instead of")
    assert found.error == INF


@pytest.mark.parametrize("fill", [-1e4, -1e9, float(np.finfo("float32").min), 65504.0], ids=str)
@pytest.mark.parametrize("by_row", [True, False], ids=["by row", "whole"])
def test_a_fill_value_hides_nothing(fill: float, by_row: bool) -> None:
    expected = _normal(2, 8)
    expected[:, 5:] = fill
    actual = expected.copy()
    actual[1, 2] += 1e-2
    typical = float(magnitude(expected).max())
    assert typical < 5
    assert "at [1, 2]" in compare(actual, expected, 1e-4, typical=typical, by_row=by_row).problem
    actual = expected * np.float32(1 - 1e-6)
    assert not compare(actual, expected, 1e-4, typical=typical, by_row=by_row).problem


def test_a_wrong_fill_value_is_told() -> None:
    expected = _f32([1, 2, -1e9, -1e9])
    assert compare(_f32([1, 2, -1e9, -1.1e9]), expected, 0.01, by_row=False).problem


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param([3.0, -4.0], 4.0, id="negative"),
        pytest.param([3.0, NAN, -INF], 3.0, id="specials"),
        pytest.param([NAN], 0.0, id="nothing finite"),
        pytest.param([], 0.0, id="empty"),
        pytest.param([5e3, 1.0], 5e3, id="large once"),
        pytest.param([5e3, 5e3, 1.0], 1.0, id="fill value"),
        pytest.param([5e3, -5e3, 1.0], 1.0, id="fill value of either sign"),
        pytest.param([5e3, 5e3, 60.0], 5e3, id="large twice, but not far above"),
        pytest.param([5e3, 5e3, 0.0], 5e3, id="nothing but zeros beside it"),
        pytest.param([9e2, 9e2, 1.0], 9e2, id="no fill value is so small"),
        pytest.param([-9997.0, -1e4, *range(1, 9)], 8.0, id="fill values that were added"),
        pytest.param([-9997.0, -1e4, *range(1, 8)], 1e4, id="too few to tell"),
        pytest.param([5e3, 2e3, *range(1, 9)], 5e3, id="large ones that do not keep together"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_magnitude(values: list[float], expected: float, dtype: str) -> None:
    assert magnitude(np.asarray(values, dtype)).max() == expected


def test_magnitude_along_an_axis() -> None:
    values = _f32([[1, 2, -1e9, -1e9], [3, 2, 7e3, 1]])
    assert magnitude(values, 1).tolist() == [[2], [7e3]]


def test_whole_numbers_are_exact() -> None:
    found = compare(_i64([[1, 2], [3, 5]]), _i64([[1, 2], [3, 4]]), 0.9)
    assert found.problem == "differs in 1 of 4 elements, first at [1, 1]: 5 instead of 4"


def test_large_whole_numbers_are_exact() -> None:
    expected = _i64([2**62 + 1])  # not a float64
    assert compare(expected - 1, expected, 0.9).problem


SCORES = _f32([[1, 5, 5, 2], [4, 3, 4, 4]])


@pytest.mark.parametrize(
    ("actual", "expected", "passes"),
    [
        pytest.param([1, 0], [2, 0], True, id="argmax, tied"),
        pytest.param([3, 0], [2, 0], False, id="argmax, not tied"),
        pytest.param([4, 0], [2, 0], False, id="argmax, beyond the end"),
        pytest.param([-2, 0], [2, 0], False, id="argmax, negative"),
        pytest.param([[1], [3]], [[2], [0]], True, id="argmax that keeps the axis"),
        pytest.param([[1, 2], [2, 3]], [[2, 1], [0, 2]], True, id="topk, tied"),
        pytest.param([[1, 1], [0, 2]], [[2, 1], [0, 2]], False, id="topk, one twice"),
        pytest.param([[1, 3], [0, 2]], [[2, 1], [0, 2]], False, id="topk, not tied"),
        pytest.param(
            [[2, 1, 3, 0], [3, 2, 0, 1]], [[1, 2, 3, 0], [0, 2, 3, 1]], True, id="argsort, tied"
        ),
        pytest.param(
            [[2, 1, 0, 3], [3, 2, 0, 1]], [[1, 2, 3, 0], [0, 2, 3, 1]], False, id="argsort, not"
        ),
    ],
)
def test_indices_whose_scores_tie(actual: Any, expected: Any, passes: bool) -> None:
    found = compare(_i64(actual), _i64(expected), 0.0, scores=Scores(SCORES, 1))
    assert (not found.problem) is passes
    assert passes or found.problem.endswith("their scores do not tie")
    assert compare(_i64(actual), _i64(expected), 0.0).problem


@pytest.mark.parametrize(
    ("values", "cut", "actual", "expected", "passes"),
    [
        pytest.param([1e-7, 1.0], SIGN, [0, 1], [1, 1], True, id="flag, near"),
        pytest.param([1e-7, 1.0], SIGN, [1, 0], [1, 1], False, id="flag, far"),
        pytest.param([3.999999, 9.5], WHOLE, [4, 9], [3, 9], True, id="cut off, near"),
        pytest.param([3.999999, 9.5], WHOLE, [5, 9], [3, 9], False, id="cut off, two away"),
        pytest.param([3.999999, 9.5], WHOLE, [3, 8], [3, 9], False, id="cut off, far"),
        pytest.param([3.500001, 9.2], HALF, [3, 9], [4, 9], True, id="rounded, near"),
        pytest.param([3.500001, 9.2], HALF, [4, 8], [4, 9], False, id="rounded, far"),
        pytest.param([0.0, 0.0, 9.5], WHOLE, [1, 0, 9], [0, 0, 9], False, id="whole on purpose"),
        pytest.param([4.0, *[0.5] * 200], WHOLE, [3, *[0] * 200], [4, *[0] * 200], True, id="luck"),
        pytest.param([1e-7], SIGN, [0, 1], [1, 1], False, id="of another shape"),
    ],
)
def test_what_was_cut_where_rounding_decides(
    values: list[float], cut: int, actual: Any, expected: Any, passes: bool
) -> None:
    dtype = "bool" if cut == SIGN else "uint8"
    scores = Scores(_f32(values), cut, near=2e-5)
    found = compare(np.array(actual, dtype), np.array(expected, dtype), 0.0, scores=scores)
    assert (not found.problem) is passes
    assert passes or found.problem.endswith("rounding does not explain it")


def test_ties_along_the_first_axis_and_over_all_elements() -> None:
    first = compare(_i64([1, 0]), _i64([0, 0]), 0.0, scores=Scores(_f32([[3, 2], [3, 1]]), 0))
    assert not first.problem
    flat = Scores(_f32([1, 7, 7]), 0)
    assert not compare(np.asarray(1), np.asarray(2), 0.0, scores=flat).problem
    assert compare(np.asarray(0), np.asarray(2), 0.0, scores=flat).problem


def test_scores_that_rounding_could_swap_tie() -> None:
    values = _f32([[10, 3, 3.00001, -1e9, -1e9]])
    actual, expected = _i64([[0, 1]]), _i64([[0, 2]])
    assert compare(actual, expected, 0.0, scores=Scores(values, 1)).problem
    assert not compare(actual, expected, 0.0, scores=Scores(values, 1, near=2e-5)).problem
    # A fill value is no scale for them, and no excuse.
    values[0, 2] = 3.01
    assert compare(actual, expected, 0.0, scores=Scores(values, 1, near=2e-5)).problem


def test_scores_of_minus_infinity_tie_with_themselves_only() -> None:
    scores = Scores(_f32([1, -INF, -INF, 0]), 0, near=0.1)
    assert not compare(_i64([0, 1]), _i64([0, 2]), 0.0, scores=scores).problem
    assert compare(_i64([0, 3]), _i64([0, 2]), 0.0, scores=scores).problem


@pytest.mark.parametrize("dtype", DTYPES)
def test_floats_alone_may_stray(dtype: str) -> None:
    assert is_exact(dtype) is (dtype not in FLOATS)
