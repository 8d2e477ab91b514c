from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tconv.errors import UsageProblem
from tconv.spec import DTYPES, TensorSpec
from tconv.validate.compare import is_exact
from tconv.validate.tolerance import FLOORS, LARGEST, NOISE_FACTOR, Tolerances, parse_tolerances

SHARES = st.floats(1e-12, 0.999)


def _spec(dtype: str = "float32", name: str = "y") -> TensorSpec:
    return TensorSpec(name, dtype, ())


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_a_floor_or_is_exact(dtype: str) -> None:
    allowed = Tolerances().allowed(_spec(dtype), None)
    assert allowed == (0.0 if is_exact(dtype) else FLOORS[dtype])


@given(st.floats(0, 1))
def test_noise_gives_room_but_not_without_end(noise: float) -> None:
    allowed = Tolerances().allowed(_spec(), noise)
    assert FLOORS["float32"] <= allowed <= max(FLOORS["float32"], LARGEST)
    assert allowed >= min(NOISE_FACTOR * noise, LARGEST)


def test_no_noise_makes_whole_numbers_stray() -> None:
    assert Tolerances(0.5, {"y": 0.5}).allowed(_spec("int64"), 1e-3) == 0.0


def test_an_outputs_own_tolerance_comes_first() -> None:
    tolerances = Tolerances(0.1, {"y": 1e-6})
    assert tolerances.allowed(_spec(), 1e-3) == 1e-6
    assert tolerances.allowed(_spec(name="z"), 1e-3) == 0.1


@given(st.dictionaries(st.text(min_size=1), SHARES, max_size=3), SHARES)
def test_the_text_form_is_read(by_output: dict[str, float], floor: float) -> None:
    texts = tuple(f"{name}={share!r}" for name, share in by_output.items())
    assert parse_tolerances((*texts, repr(floor))) == Tolerances(floor, by_output)


@pytest.mark.parametrize(
    "text",
    ["", "x", "logits=", "=1e-3", "0", "1", "-1e-3", "nan", "inf", "logits=nan", "a=b", "1e-3%"],
)
def test_what_is_no_share_is_explained(text: str) -> None:
    with pytest.raises(UsageProblem, match="is no tolerance") as caught:
        parse_tolerances((text,))
    assert repr(text) in caught.value.problem


@pytest.mark.parametrize("texts", [("1e-3", "1e-3"), ("a=1e-3", "a=1e-4")], ids=["floor", "output"])
def test_nothing_is_given_twice(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageProblem, match="given twice"):
        parse_tolerances(texts)


def test_nothing_given_are_the_defaults() -> None:
    assert parse_tolerances(()) == Tolerances()
