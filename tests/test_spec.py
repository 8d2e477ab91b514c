from __future__ import annotations

import string

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tconv.errors import UsageProblem
from tconv.spec import DTYPES, Axis, Signature, TensorSpec, parse_signature, parse_tensor

SIZES = st.integers(1, 10**9 - 1)
AXIS_NAMES = st.text(string.ascii_letters + "_", min_size=1, max_size=8)
# A name may hold whatever a framework puts there; blanks around the whole text belong to the shell.
NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name.lstrip() == name)


def _ranged(name: str, bounds: tuple[int, int]) -> Axis:
    return Axis(name, min(bounds), max(bounds))


AXES = st.builds(Axis, AXIS_NAMES) | st.builds(_ranged, AXIS_NAMES, st.tuples(SIZES, SIZES))
DIMS = st.integers(0, 10**9 - 1) | AXES
SHAPES = st.lists(
    DIMS, max_size=5, unique_by=lambda dim: dim.name if isinstance(dim, Axis) else object()
).map(tuple)
TENSORS = st.builds(TensorSpec, NAMES, st.sampled_from(DTYPES), SHAPES)


@given(TENSORS)
@example(TensorSpec("in/put:0", "float32", (3, Axis("batch"))))
@example(TensorSpec('it\'s "quoted"', "bool", ()))
@example(TensorSpec("größe→输入", "int8", (Axis("seq", 1, 128),)))
@example(TensorSpec("x:float32[2]", "int64", (2,)))
@example(TensorSpec("two\nlines", "string", (0,)))
def test_the_text_form_comes_back(spec: TensorSpec) -> None:
    assert parse_tensor(str(spec)) == spec


@given(TENSORS)
def test_json_comes_back(spec: TensorSpec) -> None:
    assert msgspec.json.decode(msgspec.json.encode(spec), type=TensorSpec) == spec


@given(st.text() | st.text(":[]=.,x0129 float32int", max_size=40))
def test_any_text_is_a_tensor_or_a_usage_problem(text: str) -> None:
    try:
        spec = parse_tensor(text)
    except UsageProblem:
        return
    assert parse_tensor(str(spec)) == spec


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("x", id="a name alone"),
        pytest.param("x:float32", id="no dims"),
        pytest.param(":float32[3]", id="no name"),
        pytest.param("x:[3]", id="no dtype"),
        pytest.param("x:float[3]", id="unknown dtype"),
        pytest.param("x:FLOAT32[3]", id="dtype in capitals"),
        pytest.param("x:float32[3", id="open bracket"),
        pytest.param("x:float32[[3]]", id="nested brackets"),
        pytest.param("x:float32[3] y", id="something behind"),
        pytest.param("x:float32[,]", id="empty dims"),
        pytest.param("x:float32[3,]", id="trailing comma"),
        pytest.param("x:float32[-1]", id="negative dim"),
        pytest.param("x:float32[1.5]", id="fractional dim"),
        pytest.param("x:float32[2²]", id="superscript digit"),
        pytest.param("x:float32[٣]", id="digits of another script"),
        pytest.param("x:float32[1000000000]", id="a dim too large for memory"),
        pytest.param(f"x:float32[{'9' * 5000}]", id="more digits than int() takes"),
        pytest.param(f"x:float32[n=1..{'9' * 5000}]", id="a bound with more digits"),
        pytest.param("x:float32[n=0..4]", id="range from 0"),
        pytest.param("x:float32[n=5..4]", id="range backwards"),
        pytest.param("x:float32[n=1..]", id="range without end"),
        pytest.param("x:float32[n=..4]", id="range without start"),
        pytest.param("x:float32[n=4]", id="range of one number"),
        pytest.param("x:float32[n=1...4]", id="three dots"),
        pytest.param("x:float32[1..4]", id="range without name"),
        pytest.param("x:float32[a b]", id="blank in a name"),
        pytest.param("x:float32[n,n]", id="one axis twice"),
    ],
)
def test_malformed_text_is_explained(text: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        parse_tensor(text)
    assert repr(text) in caught.value.problem
    assert caught.value.remedy.endswith(".")


def test_blanks_around_the_parts_are_allowed() -> None:
    assert parse_tensor(" x:int8[ batch , 3 ] ") == TensorSpec("x", "int8", (Axis("batch"), 3))


def test_a_range_holds_for_its_axis_everywhere() -> None:
    signature = parse_signature(["a:int64[batch,n]", "b:int64[batch=1..4,n=2..9]"])
    assert signature.axes == {"batch": Axis("batch", 1, 4), "n": Axis("n", 2, 9)}
    assert signature.inputs[0].shape == (Axis("batch", 1, 4), Axis("n", 2, 9))


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        pytest.param(["x:int8[]", "x:int8[2]"], "described twice", id="one name twice"),
        pytest.param(["x:int8[n=1..4]", "y:int8[n=1..5]"], "n=1..4 and n=1..5", id="two ranges"),
    ],
)
def test_contradictions_are_explained(texts: list[str], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        parse_signature(texts)


@pytest.mark.parametrize(
    ("text", "batched"),
    [
        pytest.param("x:int8[batch,3]", True, id="first"),
        pytest.param("x:int8[batch=1..4]", True, id="with a range"),
        pytest.param("x:int8[3,batch]", False, id="second"),
        pytest.param("x:int8[n,3]", False, id="of another name"),
        pytest.param("x:int8[]", False, id="scalar"),
    ],
)
def test_the_batch_is_the_first_axis_of_that_name(text: str, batched: bool) -> None:
    assert parse_tensor(text).is_batched is batched


def test_sized_puts_numbers_for_axes() -> None:
    spec = parse_tensor("x:int8[batch,3,n]")
    assert spec.sized({"batch": 2, "n": 7, "other": 1}) == (2, 3, 7)


def test_names_keep_the_models_order() -> None:
    tensors = tuple(map(parse_tensor, ("z:int8[]", "a:int8[]")))
    assert Signature(tensors, tensors[::-1]).input_names == ("z", "a")
    assert Signature(tensors, tensors[::-1]).output_names == ("a", "z")
