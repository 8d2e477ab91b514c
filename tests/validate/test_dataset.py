from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tconv.errors import UsageProblem
from tconv.spec import Signature, parse_signature
from tconv.validate.dataset import DataRequest, RowSet

X = np.arange(30, dtype="float32").reshape(10, 3)
Y = np.arange(10) % 3
ROWS = parse_signature(["x:float32[batch,3]"])
TEXT = parse_signature(["ids:int64[batch,seq=1..4]", "mask:int64[batch,seq=1..4]"])


def _rows(folder: Path, seed: int = 0, **arrays: Any) -> RowSet:
    options = {name: arrays.pop(name) for name in ("labels", "samples") if name in arrays}
    np.savez(folder / "rows.npz", **arrays)
    if "labels" in options:
        options["labels"] = f"{folder}/rows.npz:{options['labels']}"
    return RowSet(DataRequest(f"{folder}/rows.npz", **options), seed)


def _jsonl(folder: Path, *rows: dict[str, Any]) -> RowSet:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return RowSet(DataRequest(f"{folder}/rows.jsonl"), 0)


def test_rows_come_in_batches_and_in_order(tmp_path: Path) -> None:
    parts = list(_rows(tmp_path, x=X, y=Y, labels="y").parts(ROWS, 4))
    assert [part.rows for part in parts] == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    assert np.array_equal(np.concatenate([part.feeds["x"] for part in parts]), X)
    assert np.array_equal(np.concatenate([part.labels for part in parts]), Y)  # type: ignore[arg-type]


def test_samples_of_the_rows_are_drawn_by_the_seed(tmp_path: Path) -> None:
    one, again = (_rows(tmp_path, x=X, samples=4, seed=3).taken for _ in range(2))
    assert one == again
    assert len(set(one)) == 4
    assert list(one) == sorted(one)
    assert one != _rows(tmp_path, x=X, samples=4, seed=4).taken
    assert _rows(tmp_path, x=X, samples=99).taken == tuple(range(10))


def test_rows_of_one_length_go_together(tmp_path: Path) -> None:
    lengths = (2, 4, 2, 1, 4)
    rows = [{"ids": [n] * n, "mask": [1] * n} for n in lengths]
    parts = list(_jsonl(tmp_path, *rows).parts(TEXT, 8))
    assert {part.rows: part.sizes["seq"] for part in parts} == {(0, 2): 2, (1, 4): 4, (3,): 1}


def test_a_row_of_a_model_without_a_batch_is_a_whole_input(tmp_path: Path) -> None:
    whole = parse_signature(["x:float32[2,3]"])
    parts = list(_rows(tmp_path, x=X.reshape(5, 2, 3)).parts(whole, 0))
    assert [part.rows for part in parts] == [(i,) for i in range(5)]
    assert all(part.feeds["x"].shape == (2, 3) for part in parts)
    varying = parse_signature(["x:float32[n=1..8,3]"])
    parts = list(_rows(tmp_path, x=X).parts(varying, 0))
    assert {part.feeds["x"].shape for part in parts} == {(1, 3)}
    assert all(part.sizes == {"n": 1} for part in parts)


def test_a_single_input_needs_no_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    rows = RowSet(DataRequest(str(tmp_path / "x.npy")), 0)
    assert len(next(rows.parts(ROWS, 10)).feeds["x"]) == 10


def test_only_the_width_of_numbers_may_differ(tmp_path: Path) -> None:
    feeds = next(_rows(tmp_path, x=X.astype("float64")).parts(ROWS, 4)).feeds
    assert feeds["x"].dtype == np.float32
    small = parse_signature(["x:int8[batch,3]"])
    assert next(_rows(tmp_path, x=X.astype("int64")).parts(small, 4)).feeds["x"].dtype == np.int8
    whole = next(_jsonl(tmp_path, {"x": [1, 2, 3]}).parts(ROWS, 4)).feeds["x"]
    assert whole.dtype == np.float32


def test_the_digest_tells_rows_and_labels_and_not_the_file(tmp_path: Path) -> None:
    digest = _rows(tmp_path, x=X, y=Y, labels="y").digest(ROWS)
    assert digest == _rows(tmp_path, x=X.astype("float64"), y=Y, labels="y").digest(ROWS)
    for changed in (
        {"x": X + 1, "y": Y},
        {"x": X, "y": Y[::-1]},
        {"x": X[::-1], "y": Y},
        {"x": X[:9], "y": Y[:9]},
    ):
        assert _rows(tmp_path, labels="y", **changed).digest(ROWS) != digest
    assert _rows(tmp_path, x=X).digest(ROWS) != digest


def test_columns_that_no_input_takes_are_known(tmp_path: Path) -> None:
    assert _rows(tmp_path, x=X, y=Y, id=Y, labels="y").unused(ROWS) == ["id"]


@pytest.mark.parametrize(
    ("signature", "arrays", "says"),
    [
        pytest.param(ROWS, {"z": X}, "has no column for the input 'x'; it has 'z'", id="missing"),
        pytest.param(ROWS, {"x": X[:, :2]}, r"Row 0 of 'x' .* has shape \[2\].*\[3\]", id="size"),
        pytest.param(ROWS, {"x": X[None]}, r"has shape \[10, 3\]", id="rank"),
        pytest.param(
            ROWS, {"x": X.astype("int64")}, "is int64, and the model takes float32", id="int"
        ),
        pytest.param(ROWS, {"x": X > 1}, "is bool, and the model takes float32", id="bool"),
        pytest.param(
            ROWS, {"x": X.astype("float64") * 1e300}, "which is no float32", id="too large"
        ),
        pytest.param(
            TEXT,
            {"ids": X, "mask": X},
            "'ids' .* is float32, and the model takes int64",
            id="float",
        ),
        pytest.param(
            TEXT,
            {"ids": np.ones((2, 5), int), "mask": np.ones((2, 5), int)},
            r"Row 0 of 'ids' .* has shape \[5\], and the model takes \[seq=1..4\]",
            id="too long",
        ),
        pytest.param(
            TEXT,
            {"ids": np.ones((2, 4), int), "mask": np.ones((2, 3), int)},
            r"Row 0 of 'mask' .* has shape \[3\]",
            id="two lengths",
        ),
        pytest.param(
            parse_signature(["x:int8[batch]"]),
            {"x": np.array([1, 300])},
            "Row 1 of 'x' .* holds 300, which is no int8",
            id="narrow",
        ),
        pytest.param(parse_signature(["x:string[batch]"]), {"x": X}, "takes text", id="text"),
    ],
)
def test_rows_that_do_not_fit_are_refused(
    signature: Signature, arrays: dict[str, Any], says: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageProblem, match=says):
        list(_rows(tmp_path, **arrays).parts(signature, 8))


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        pytest.param("rows.npz", "several columns", id="no column named"),
        pytest.param("rows.npz:z", "no column 'z' for --labels", id="no such column"),
        pytest.param("short.npy", "There are 9 labels in .* and 10 rows in", id="too few"),
        pytest.param("nan.npy", "The label of row 2 in .* is NaN", id="NaN"),
        pytest.param("text.npy", "are no numbers", id="text"),
        pytest.param("gone.npy", "There is no file", id="no file"),
    ],
)
def test_labels_that_do_not_belong_are_refused(labels: str, says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=X, y=Y)
    np.save(tmp_path / "short.npy", Y[:9])
    np.save(tmp_path / "nan.npy", np.where(Y == 2, np.nan, Y))
    np.save(tmp_path / "text.npy", Y.astype(str))
    with pytest.raises(UsageProblem, match=says):
        RowSet(DataRequest(f"{tmp_path}/rows.npz", f"{tmp_path}/{labels}"), 0)
