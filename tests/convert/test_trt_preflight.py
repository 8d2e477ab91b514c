from __future__ import annotations

from collections.abc import Sequence

import pytest

from tconv.convert.trt_preflight import ShapeRange, check_dtypes, shape_ranges
from tconv.errors import ConversionError
from tconv.report import Batching, Prepared
from tconv.spec import Signature, parse_signature, parse_tensor


def prepare(inputs: Sequence[str], outputs: Sequence[str], max_batch: int = 8) -> Prepared:
    signature = Signature(parse_signature(inputs).inputs, tuple(map(parse_tensor, outputs)))
    return Prepared("model", "python", "torch", signature, Batching(max_batch))


@pytest.mark.parametrize(
    ("inputs", "outputs", "problem", "remedy"),
    [
        pytest.param(["x:float64[2]"], [], "no float64, the dtype of the input 'x'", "float32"),
        pytest.param(["x:string[2]"], [], "no string", "text outside the model"),
        pytest.param(["x:int8[2]"], ["y:uint32[2]"], "of the output 'y'", "return int64"),
    ],
    ids=["float64", "string", "output"],
)
def test_a_dtype_tensorrt_lacks_is_refused(
    inputs: list[str], outputs: list[str], problem: str, remedy: str
) -> None:
    with pytest.raises(ConversionError, match=problem) as caught:
        check_dtypes(prepare(inputs, outputs).signature)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "max_batch", "axis"),
    [
        pytest.param("x:int64[batch,seq]", 8, "seq", id="an axis"),
        pytest.param("x:int64[batch,seq]", 0, "batch", id="the batch where none may be formed"),
    ],
)
def test_an_axis_without_a_largest_size_is_refused(text: str, max_batch: int, axis: str) -> None:
    with pytest.raises(ConversionError, match=f"the axis '{axis}' of 'x'") as caught:
        shape_ranges(prepare([text], [], max_batch))
    suggested = caught.value.remedy.split("'")[1]
    assert shape_ranges(prepare([suggested], [], max_batch))["x"].min == (1, 1)


@pytest.mark.parametrize(
    ("max_batch", "sizes"),
    [
        pytest.param(1, (1, 1, 1), id="1"),
        pytest.param(2, (1, 1, 2), id="2"),
        pytest.param(8, (1, 4, 8), id="8"),
    ],
)
def test_the_batch_goes_from_one_to_the_largest(
    max_batch: int, sizes: tuple[int, int, int]
) -> None:
    inputs = ["a:int64[batch,seq=2..6]", "b:int64[batch,3,seq]"]
    ranges = shape_ranges(prepare(inputs, [], max_batch))
    low, usual, high = sizes
    assert ranges["a"] == ShapeRange((low, 2), (usual, 4), (high, 6))
    assert ranges["b"] == ShapeRange((low, 3, 2), (usual, 3, 4), (high, 3, 6))
