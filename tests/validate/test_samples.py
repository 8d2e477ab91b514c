from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tconv.spec import DTYPES, TensorSpec, parse_tensor
from tconv.validate.samples import Check, Pool, SampleIndex, SampleStore, numpy_dtype

NUMERIC = [dtype for dtype in DTYPES if dtype != "string"]
SHAPES = [(), (0,), (3,), (4, 0, 2), (4, 2)]


def _f32(values: Any) -> Any:
    return np.array(values, "float32")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", NUMERIC)
def test_arrays_come_back(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.random.default_rng(0).standard_normal(shape) * 9)
    array = array.astype("int8").astype(numpy_dtype(dtype))
    store = SampleStore(tmp_path)
    store.write("pool", "in", {0: array, 1: array})
    spec = TensorSpec("a/b:0", dtype, shape)
    back = store.read(Check("pool"), "in", (spec, TensorSpec("c", dtype, shape)))
    assert list(back) == ["a/b:0", "c"]
    for value in back.values():
        assert (value.dtype, value.shape) == (array.dtype, array.shape)
        assert np.array_equal(value, array)


def test_a_check_is_some_rows_in_some_order(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    array = np.arange(8, dtype="float32").reshape(4, 2)
    store.write("pool", "out", {0: array})
    rows = store.read_one(Check("pool", (3, 0, 0)), "out", 0, "float32")
    assert rows.tolist() == [[6, 7], [0, 1], [0, 1]]
    rows[:] = 9  # a copy: what a runner does to its inputs changes no sample
    assert store.read_one(Check("pool"), "out", 0, "float32").max() == 7


def test_a_whole_pool_cannot_be_written_to(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    store.write("pool", "in", {0: np.zeros(3)})
    with pytest.raises(ValueError, match="read-only"):
        store.read_one(Check("pool"), "in", 0, "float64")[:] = 1


def test_columns_that_are_no_block_of_memory_are_stored(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    array = np.arange(12, dtype="int64").reshape(3, 4).T[::2]
    store.write("pool", "in", {0: array})
    assert np.array_equal(store.read_one(Check("pool"), "in", 0, "int64"), array)


def test_scores_keep_their_own_dtype(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    store.write("pool", "score", {1: _f32([1, 2])})
    assert store.read_one(Check("pool"), "score", 1, "").dtype == np.float32


def test_the_index_comes_back(tmp_path: Path) -> None:
    index = SampleIndex(
        inputs=(parse_tensor("x:float32[batch,n=1..4]"),),
        outputs=(parse_tensor("y:bfloat16[batch]"),),
        pools=(Pool("ordinary-n4", "ordinary", {"n": 4, "batch": 8}),),
        checks=(Check("ordinary-n4"), Check("ordinary-n4", (7,), "one row alone")),
        scales={"y": 3.0},
        score_axes={"y": 1},
    )
    store = SampleStore(tmp_path)
    store.write_index(index)
    assert store.read_index() == index
    assert [path.name for path in tmp_path.iterdir()] == ["index.json"]
