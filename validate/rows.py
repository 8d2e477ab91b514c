"""Read a user's rows from a file: .npz, .npy, .parquet or .jsonl."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ..convert.base import Array
from ..errors import UsageProblem
from ..extras import needs

Column = Array | list[Array]
"""One array a row; where all rows have one shape, it may be one array."""


class Columns(NamedTuple):
    """A file's columns by name; the only one of a .npy has none.

    `typed` is false for JSON, whose numbers have no dtype.
    """

    path: Path
    values: dict[str, Column]
    typed: bool

    def __len__(self) -> int:
        return len(next(iter(self.values.values())))


def read_columns(path: Path) -> Columns:
    """Read a file whole.

    Raises:
        UsageProblem: it is not there, empty, of another kind, broken, or has no rows.
        MissingExtra: a .parquet without pyarrow.
    """
    read = _READERS.get(path.suffix)
    if read is None:
        raise UsageProblem(
            f"{path} is of no kind that rows can be read from.",
            remedy=f"Use one of: {', '.join(_READERS)}.",
        )
    if not path.is_file():
        raise UsageProblem(f"There is no file {path}.", remedy="Check --data and --labels.")
    if not path.stat().st_size:
        raise UsageProblem(f"{path} is empty.", remedy="Write the rows into it anew.")
    try:
        values = read(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageProblem(
            f"{path} can't be read as {path.suffix}: {_first_line(error)}.",
            remedy="Write it anew, with numbers only.",
        ) from error
    _check_lengths(path, values)
    return Columns(path, values, typed=path.suffix != ".jsonl")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def _check_lengths(path: Path, values: dict[str, Column]) -> None:
    single = next((n for n, v in values.items() if isinstance(v, np.ndarray) and not v.ndim), None)
    if single is not None:
        raise UsageProblem(
            f"{single or 'The array'!r} in {path} is a single number and no rows.",
            remedy="Save an array whose first axis are the rows.",
        )
    lengths = {name: len(column) for name, column in values.items()}
    if not lengths or not min(lengths.values()):
        raise UsageProblem(f"{path} has zero rows.", remedy="Write at least one row into it.")
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
        raise UsageProblem(
            f"The columns of {path} have different numbers of rows: {said}.",
            remedy="Let the first axis of every array be the rows.",
        )


def _read_npz(path: Path) -> dict[str, Column]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _read_npy(path: Path) -> dict[str, Column]:
    return {"": np.load(path, allow_pickle=False)}


def _read_jsonl(path: Path) -> dict[str, Column]:
    columns: dict[str, list[Array]] = {}
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"line {number} is no JSON object: {error}") from error
            if columns and row.keys() != columns.keys():
                raise ValueError(f"line {number} has {list(row)} and not {list(columns)}")
            for name, value in row.items():
                columns.setdefault(name, []).append(_number(value, name, number))
    return dict(columns)


def _number(value: Any, name: str, line: int) -> Array:
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(None)
    if array.dtype.kind not in "bifu":
        raise ValueError(f"line {line}: {name!r} is no number, and no even list of numbers")
    return array


def _read_parquet(path: Path) -> dict[str, Column]:
    with needs("data"):
        import pyarrow as arrow
        from pyarrow import parquet

    table = parquet.read_table(path)
    return {name: _from_arrow(arrow, name, table[name]) for name in table.column_names}


def _from_arrow(arrow: Any, name: str, column: Any) -> Column:
    """Return a column of numbers, or of lists of them; a null is no number."""
    values, kind, depth = column.combine_chunks(), column.type, 0
    has_nulls = column.null_count > 0
    while arrow.types.is_list(kind) or _is_other_list(arrow, kind):
        values, kind, depth = values.flatten(), kind.value_type, depth + 1
        has_nulls |= values.null_count > 0
    if has_nulls:
        raise ValueError(f"the column {name!r} holds nulls")
    numbers = (arrow.types.is_boolean, arrow.types.is_integer, arrow.types.is_floating)
    if not any(is_kind(kind) for is_kind in numbers):
        raise ValueError(f"the column {name!r} is of {column.type}, which is no number")
    flat = values.to_numpy(zero_copy_only=False)
    if not depth:
        return np.asarray(flat)
    return [np.asarray(row, flat.dtype) for row in column.to_pylist()]


def _is_other_list(arrow: Any, kind: Any) -> bool:
    return bool(arrow.types.is_large_list(kind) or arrow.types.is_fixed_size_list(kind))


_READERS: dict[str, Callable[[Path], dict[str, Column]]] = {
    ".npz": _read_npz,
    ".npy": _read_npy,
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
}
