from __future__ import annotations

from typing import Any

import pytest

from tconv.errors import TconvError
from tconv.spec import Axis, Signature, parse_signature
from tconv.validate.shapes import infer_shape

SIGNATURE = parse_signature(["x:float32[batch=1..8,n=1..9,m=1..9]"])


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        pytest.param([((8, 1, 2), (8, 1)), ((8, 9, 4), (8, 9))], ("batch", "n"), id="axis"),
        pytest.param([((8, 1, 2), (8, 5)), ((8, 9, 4), (8, 5))], ("batch", 5), id="constant"),
        pytest.param(
            [((8, 1, 2), (8, 2)), ((8, 9, 4), (8, 18))], ("batch", "y_dim1"), id="a formula"
        ),
        pytest.param([((8, 4, 4), (8, 4)), ((2, 5, 5), (2, 5))], ("batch", "n"), id="either"),
        pytest.param([((8, 1, 1), (3, 8)), ((8, 9, 9), (3, 8))], (3, 8), id="never varied"),
        pytest.param([((8, 1, 1), ()), ((2, 9, 9), ())], (), id="scalar"),
    ],
)
def test_infer_shape(observed: list[Any], expected: tuple[Any, ...]) -> None:
    runs = [
        (dict(zip(("batch", "n", "m"), sizes, strict=True)), {"y": shape})
        for sizes, shape in observed
    ]
    found = infer_shape("y", runs, SIGNATURE)
    assert tuple(d.name if isinstance(d, Axis) else d for d in found) == expected


def test_a_signature_without_axes() -> None:
    assert infer_shape("y", [({}, {"y": (2, 3)})], Signature(())) == (2, 3)


def test_a_rank_that_changes_is_told_with_the_sizes() -> None:
    runs = [({"n": 1}, {"y": (8,)}), ({"n": 2}, {"y": (8, 2)})]
    with pytest.raises(TconvError, match=r"shape \[8\] at n 1 but \[8, 2\] at n 2"):
        infer_shape("y", runs, SIGNATURE)
