from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tconv.spec import DTYPES, Axis, Domain, Signature, TensorSpec, parse_signature
from tconv.validate.sampling import (
    KINDS,
    UNLIMITED,
    axis_values,
    choose_rows,
    draw,
    has_kinds,
    plan_sizes,
    split_batch,
    usual_sizes,
)

RANGES = st.tuples(st.integers(1, 300), st.integers(1, 300)).map(sorted)
AXES = st.builds(lambda bounds: Axis("n", *bounds), RANGES)
NUMERIC = [dtype for dtype in DTYPES if dtype != "string"]


@given(AXES)
def test_an_axis_is_tried_at_both_ends_and_between(axis: Axis) -> None:
    values = axis_values(axis)
    assert axis.max is not None
    assert (values[0], values[-1]) == (axis.min, axis.max)
    assert list(values) == sorted(set(values))
    assert any(size % 2 for size in values) or axis.max - axis.min < 2


@pytest.mark.parametrize("smallest", [1, 2, 64])
def test_an_axis_without_a_limit_is_varied(smallest: int) -> None:
    values = axis_values(Axis("n", smallest))
    assert values[0] == smallest
    assert values[-1] == smallest + UNLIMITED - 1
    assert len(values) > 2


@given(st.lists(AXES, max_size=6))
def test_every_two_values_of_two_axes_meet(axes: list[Axis]) -> None:
    named = {f"a{i}": axis for i, axis in enumerate(axes)}
    plan = plan_sizes(named)
    assert all(list(sizes) == list(named) for sizes in plan)
    assert len({tuple(sizes.items()) for sizes in plan}) == len(plan)
    for a, b in itertools.combinations(named, 2):
        wanted = set(itertools.product(axis_values(named[a]), axis_values(named[b])))
        assert {(sizes[a], sizes[b]) for sizes in plan} == wanted
    for name, axis in named.items():
        assert {sizes[name] for sizes in plan} == set(axis_values(axis))


@given(st.lists(AXES, min_size=1, max_size=6))
def test_all_axes_are_smallest_and_largest_together(axes: list[Axis]) -> None:
    named = {f"a{i}": axis for i, axis in enumerate(axes)}
    plan = plan_sizes(named)
    assert {name: axis.max for name, axis in named.items()} in plan
    longest = max(len(axis_values(axis)) for axis in axes)
    if all(len(axis_values(axis)) == longest for axis in axes):
        assert plan[0] == {name: axis.min for name, axis in named.items()}


@pytest.mark.timeout(10)
def test_the_plan_stays_small_for_many_axes() -> None:
    assert len(plan_sizes({f"a{i}": Axis(f"a{i}", 1, 128) for i in range(24)})) < 100


def test_no_axes_are_one_choice_of_sizes() -> None:
    assert plan_sizes({}) == [{}]


@given(AXES)
def test_the_usual_size_is_above_one(axis: Axis) -> None:
    (size,) = usual_sizes({"n": axis}).values()
    assert axis.min <= size <= (axis.max or 0)
    assert size > 1 or axis.max == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", NUMERIC)
def test_what_is_drawn_fits(dtype: str, kind: str) -> None:
    texts = [f"a:{dtype}[batch,3]", f"b:{dtype}[]", f"c:{dtype}[n]", f"d:{dtype}[batch,0]"]
    signature = parse_signature(texts)
    feeds = draw(signature, {"batch": 4, "n": 5}, kind, 0)
    again = draw(signature, {"batch": 4, "n": 5}, kind, 0)
    assert [array.shape for array in feeds.values()] == [(4, 3), (), (5,), (4, 0)]
    for name, array in feeds.items():
        assert array.dtype.name == dtype
        assert np.isfinite(array.astype("float64")).all()
        assert np.array_equal(array, again[name])


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("kind", ["integer", "mask", "binary"])
def test_whole_domains_hold_for_every_dtype(dtype: str, kind: str) -> None:
    domain = Domain(kind, 0, 1)  # type: ignore[arg-type]
    signature = Signature((TensorSpec("x", dtype, (Axis("batch"), 6), domain),))
    values = draw(signature, {"batch": 8}, "ordinary", 0)["x"]
    assert values.dtype.name == dtype
    assert set(values.astype("float64").ravel().tolist()) == {0.0, 1.0}


@given(
    st.sampled_from([d for d in NUMERIC if "int" in d]),
    st.tuples(*[st.integers(-(2**63), 2**64)] * 2).map(sorted),
    st.sampled_from([(), (1,), (1, 1), (5,), (3, 1), (2, 7)]),
)
def test_whole_numbers_stay_in_their_range_and_reach_its_ends(
    dtype: str, ends: list[int], shape: tuple[int, ...]
) -> None:
    info = np.iinfo(dtype)
    low, high = (min(max(end, info.min), info.max) for end in ends)
    domain = Domain("integer", low, high)
    values = draw(Signature((TensorSpec("x", dtype, shape, domain),)), {}, "ordinary", 3)["x"]
    # A float holds the ends of the widest dtypes inexactly.
    room = 2**10 if "64" in dtype else 0
    assert int(values.min()) >= low - room
    assert int(values.max()) <= high + room
    if not room and values.size > 1:
        assert {low, high} <= set(values.ravel().tolist())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
def test_a_domain_at_the_edge_of_its_dtype_stays_finite(dtype: str) -> None:
    edge = 65504.0 if dtype == "float16" else 3.3e38
    spec = TensorSpec("x", dtype, (99,), Domain("real", -edge, edge))
    for kind in KINDS:
        values = draw(Signature((spec,)), {}, kind, 0)["x"]
        assert np.isfinite(values.astype("float64")).all()


def test_kinds_are_what_they_are_called() -> None:
    signature = Signature((TensorSpec("x", "float32", (4, 99), Domain("real", 0, 10)),))
    drawn = {kind: draw(signature, {}, kind, 0)["x"] for kind in KINDS}
    assert drawn["ordinary"].mean() == pytest.approx(5, abs=1)
    assert drawn["flipped"].mean() == pytest.approx(-5, abs=1)
    assert drawn["large"].mean() == pytest.approx(40, abs=8)
    assert drawn["small"].mean() == pytest.approx(5 / 64, abs=1 / 64)
    assert not drawn["zero"].any()


def test_inputs_and_rows_all_differ() -> None:
    signature = parse_signature(["a:float32[batch,4]", "b:float32[batch,4]"])
    a, b = draw(signature, {"batch": 8}, "ordinary", 0).values()
    assert len({row.tobytes() for row in (*a, *b)}) == 16


@given(st.integers(0, 9), st.integers(1, 9), st.integers(1, 12))
def test_a_mask_pads_on_one_side(seed: int, rows: int, length: int) -> None:
    spec = TensorSpec("m", "int64", (Axis("batch"), Axis("n")), Domain("mask", 0, 1))
    mask = draw(Signature((spec,)), {"batch": rows, "n": length}, "ordinary", seed)["m"]
    assert mask[0].all()
    assert mask.any(axis=1).all()
    assert (np.diff(mask[1::2], axis=1) <= 0).all()
    assert (np.diff(mask[::2], axis=1) >= 0).all()


def test_a_mask_has_as_many_ones_as_its_domain_asks_for() -> None:
    spec = TensorSpec("m", "int64", (Axis("batch"), Axis("n")), Domain("mask", 10, 1))
    mask = draw(Signature((spec,)), {"batch": 64, "n": 12}, "ordinary", 0)["m"]
    assert set(mask.sum(axis=1)) == {10, 11, 12}


def test_the_padding_id_stands_where_the_mask_is_0() -> None:
    shape = (Axis("batch"), Axis("n"))
    ids = TensorSpec("ids", "int64", shape, Domain("integer", 0, 99))
    mask = TensorSpec("mask", "int64", shape, Domain("mask", 0, 1))
    feeds = draw(Signature((ids, mask)), {"batch": 8, "n": 16}, "ordinary", 0, padding=50)
    assert (feeds["ids"][feeds["mask"] == 0] == 50).all()
    assert (feeds["mask"] == 0).any()
    assert {0, 99} <= set(feeds["ids"].ravel().tolist())


@pytest.mark.parametrize("padding", [0, 1, 98], ids=["first id", "second id", "last id"])
def test_any_token_can_be_the_padding(padding: int) -> None:
    shape = (Axis("batch"), Axis("n"))
    ids = TensorSpec("ids", "int64", shape, Domain("integer", 0, 98))
    kinds = TensorSpec("kinds", "int64", shape, Domain("integer", 0, 1))
    mask = TensorSpec("mask", "int64", shape, Domain("mask", 0, 1))
    feeds = draw(Signature((ids, kinds, mask)), {"batch": 8, "n": 16}, "ordinary", 0, padding)
    assert (feeds["ids"][feeds["mask"] == 0] == padding).all()
    assert len(set(feeds["kinds"][feeds["mask"] == 0])) == 2


@pytest.mark.parametrize(
    ("text", "domain", "expected"),
    [
        pytest.param("x:float32[2]", None, True, id="real"),
        pytest.param("x:bfloat16[2]", Domain(), True, id="bfloat16"),
        pytest.param("x:float32[2]", Domain("binary", 0, 1), False, id="binary"),
        pytest.param("x:int64[2]", None, False, id="whole"),
        pytest.param("x:bool[2]", None, False, id="bool"),
    ],
)
def test_only_real_inputs_have_kinds(text: str, domain: Domain | None, expected: bool) -> None:
    (spec,) = parse_signature([text]).inputs
    spec = TensorSpec(spec.name, spec.dtype, spec.shape, domain)
    assert has_kinds(Signature((spec,))) is expected


@given(st.integers(1, 64))
def test_rows_are_asked_whole_alone_reordered_and_repeated(largest: int) -> None:
    checks = choose_rows("pool", largest)
    rows = [check.rows for check in checks]
    assert rows[0] is None
    assert all(0 <= row < largest for chosen in rows[1:] for row in chosen or ())
    sizes = {len(chosen) if chosen else largest for chosen in rows}
    assert {min(n, largest) for n in (1, 2, 3, largest)} <= sizes
    assert len({check.why for check in checks}) == len(checks)


def test_the_batch_is_no_axis_of_the_plan() -> None:
    signature = parse_signature(["x:float32[batch,n=1..4]"])
    assert split_batch(signature) == {"n": Axis("n", 1, 4)}


@pytest.mark.parametrize("padding", [None, 0, 7], ids=["no padding", "another id", "the end's id"])
def test_a_text_ends_once_and_before_its_padding(padding: int | None) -> None:
    shape = (Axis("batch"), Axis("n"))
    ids = TensorSpec("ids", "int64", shape, Domain("integer", 0, 9, end=7))
    mask = TensorSpec("mask", "int64", shape, Domain("mask", 1, 1))
    feeds = draw(Signature((ids, mask)), {"batch": 16, "n": 5}, "ordinary", 0, padding)
    for row, real in zip(feeds["ids"], feeds["mask"], strict=True):
        assert row[real == 1].tolist().count(7) == 1
        assert row[real == 1][-1] == 7
