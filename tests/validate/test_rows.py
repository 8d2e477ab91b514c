from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tconv.errors import UsageProblem
from tconv.validate.rows import read_columns

X = np.arange(12, dtype="float32").reshape(4, 3)
Y = np.array([0, 1, 2, 1])


def _npz(path: Path) -> None:
    np.savez(path, x=X, y=Y)


def _jsonl(path: Path) -> None:
    rows = [{"x": x.tolist(), "y": int(y)} for x, y in zip(X, Y, strict=True)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")


def _parquet(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"x": list(X), "y": Y}), path)


def _fixed_parquet(path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    x = arrow.FixedSizeListArray.from_arrays(arrow.array(X.ravel()), 3)
    parquet.write_table(arrow.table({"x": x, "y": Y}), path)


@pytest.mark.parametrize(
    ("suffix", "write"),
    [(".npz", _npz), (".jsonl", _jsonl), (".parquet", _parquet), (".parquet", _fixed_parquet)],
)
def test_every_kind_gives_the_same_rows(
    suffix: str, write: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / f"rows{suffix}"
    write(path)
    columns = read_columns(path)
    assert list(columns.values) == ["x", "y"]
    assert len(columns) == 4
    assert columns.typed == (suffix != ".jsonl")
    for row in range(4):
        assert np.array_equal(columns.values["x"][row], X[row])
        assert columns.values["y"][row] == Y[row]


def test_a_single_array_has_no_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    assert list(read_columns(tmp_path / "x.npy").values) == [""]


def test_rows_may_have_different_lengths(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"ids": [1, 2, 3]}\n{"ids": [4]}\n')
    assert [row.tolist() for row in read_columns(path).values["ids"]] == [[1, 2, 3], [4]]


def _arrays(**arrays: object) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)  # type: ignore[arg-type]


def _text(text: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(text) and None


def _table(**columns: object) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(arrow.table(columns), path)

    return write


@pytest.mark.parametrize(
    ("name", "write", "says"),
    [
        pytest.param("a.csv", _text("x"), "of no kind that rows can be read from", id="kind"),
        pytest.param("a.npz", lambda _: None, "There is no file", id="missing"),
        pytest.param("a.npz", _text(""), "is empty", id="empty npz"),
        pytest.param("a.jsonl", _text(""), "is empty", id="empty jsonl"),
        pytest.param("a.npz", _text("hello"), "can't be read as .npz", id="no npz"),
        pytest.param("a.npy", _text("hello"), "can't be read as .npy", id="no npy"),
        pytest.param("a.parquet", _text("hello"), "can't be read as .parquet", id="no parquet"),
        pytest.param("a.npz", _arrays(), "has zero rows", id="no arrays"),
        pytest.param("a.npz", _arrays(x=X[:0]), "has zero rows", id="zero rows"),
        pytest.param("a.jsonl", _text("\n\n"), "has zero rows", id="blank lines"),
        pytest.param("a.parquet", _table(x=[]), "can't be read|has zero rows", id="no parquet row"),
        pytest.param("a.npz", _arrays(x=np.float32(1)), "'x' .* is a single number", id="scalar"),
        pytest.param("a.npz", _arrays(x=X, y=Y[:2]), "numbers of rows: 'x' 4, 'y' 2", id="uneven"),
        pytest.param("a.npz", _arrays(x=np.array([None])), "can't be read as .npz", id="objects"),
        pytest.param("a.jsonl", _text("[1]\n"), "line 1 is no JSON object", id="no object"),
        pytest.param("a.jsonl", _text('{"x": 1}\n{'), "line 2 is no JSON object", id="cut off"),
        pytest.param(
            "a.jsonl", _text('{"x": 1}\n{"z": 1}'), r"line 2 has \['z'\] and not", id="other keys"
        ),
        pytest.param("a.jsonl", _text('{"x": null}'), "line 1: 'x' is no number", id="null"),
        pytest.param("a.jsonl", _text('{"x": "a"}'), "line 1: 'x' is no number", id="text"),
        pytest.param("a.jsonl", _text('{"x": [[1], [1, 2]]}'), "no even list", id="ragged row"),
        pytest.param("a.parquet", _table(x=[1.0, None]), "'x' holds nulls", id="null column"),
        pytest.param("a.parquet", _table(x=[[1.0, None]]), "'x' holds nulls", id="null inside"),
        pytest.param("a.parquet", _table(x=["a"]), "'x' is of string", id="text column"),
    ],
)
def test_what_is_no_rows_is_said(
    name: str, write: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    write(path)
    with pytest.raises(UsageProblem, match=says) as error:
        read_columns(path)
    assert error.value.exit_code == 2
    assert name in error.value.problem
