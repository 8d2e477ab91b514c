"""The user's own rows, made to fit a model's inputs, with their labels.

A row has an input's shape without its batch axis. Rows of one shape are asked together, as many as
a batch holds. Of a model without batches a row is a whole set of inputs; where its first axis may
vary, a row is one along it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import numpy as np

from ..convert.base import Array
from ..errors import UsageProblem
from ..spec import Axis, Signature, TensorSpec
from .batching import ROWS
from .rows import Column, Columns, read_columns
from .samples import numpy_dtype
from .sampling import Sizes


class DataRequest(msgspec.Struct, frozen=True):
    """What a build is asked to judge by; paths are the user's.

    `labels` is `FILE[:column]` and `metric` is `[OUTPUT=]NAME`; `samples` is how many rows are
    taken (None: all), `seconds` and `bytes` are what the sweep may cost (None: whatever it takes).
    `allow_stochastic` waives the comparison of what varies from run to run.
    """

    rows: str | None = None
    labels: str | None = None
    metric: str | None = None
    samples: int | None = None
    seconds: float | None = None
    bytes: int | None = None
    allow_stochastic: bool = False


class Part(msgspec.Struct, frozen=True):
    """Rows of one shape that are asked together: their numbers in the file, from 0."""

    rows: tuple[int, ...]
    sizes: Sizes
    feeds: dict[str, Array]
    labels: Array | None


class RowSet:
    """A file of rows and its labels, read and found sound; not yet known to fit a model.

    Raises:
        UsageProblem: a file is missing, empty or broken, or the labels don't belong to the rows.
        MissingExtra: a .parquet without pyarrow.
    """

    def __init__(self, request: DataRequest, seed: int) -> None:
        assert request.rows is not None
        self.columns = read_columns(Path(request.rows))
        self.label_column = ""
        self.labels = self._read_labels(request.labels) if request.labels else None
        count = len(self.columns)
        taken = np.arange(count)
        if request.samples is not None and request.samples < count:
            random = np.random.default_rng(seed)
            taken = np.sort(random.choice(count, request.samples, replace=False))
        self.taken: tuple[int, ...] = tuple(int(row) for row in taken)

    def _read_labels(self, text: str) -> Column:
        path, wanted = _split(text)
        same = path.resolve() == self.columns.path.resolve()
        columns = self.columns if same else read_columns(path)
        if not wanted and len(columns.values) > 1:
            raise UsageProblem(
                f"{path} has several columns, and one of them must be the labels.",
                remedy=f"Name it: --labels {path}:{next(iter(columns.values))}. "
                f"It has: {', '.join(columns.values)}.",
            )
        wanted = wanted or next(iter(columns.values))
        if wanted not in columns.values:
            raise UsageProblem(
                f"{path} has no column {wanted!r} for --labels.",
                remedy=f"It has: {', '.join(columns.values)}.",
            )
        if len(columns) != len(self.columns):
            raise UsageProblem(
                f"There are {len(columns)} labels in {path} and {len(self.columns)} rows in "
                f"{self.columns.path}.",
                remedy="Give one label for each row, in the same order.",
            )
        self.label_column = wanted if same else ""
        _check_labels(columns.values[wanted], path)
        return columns.values[wanted]

    def unused(self, signature: Signature) -> list[str]:
        """Return the columns that are neither an input nor the labels."""
        known = {*signature.input_names, self.label_column, ""}
        return [name for name in self.columns.values if name not in known]

    def parts(self, signature: Signature, largest: int) -> Iterator[Part]:
        """Yield the rows that were taken, as parts of at most `largest` rows (0: no batches).

        Raises:
            UsageProblem: a column is missing, or is of another dtype or shape than an input.
        """
        fitted = self._fit(signature)
        groups: dict[tuple[tuple[int, ...], ...], list[int]] = {}
        for row in self.taken:
            shapes = [fitted[spec.name][row].shape for spec in signature.inputs]
            if self.labels is not None:
                shapes.append(np.shape(self.labels[row]))
            groups.setdefault(tuple(shapes), []).append(row)
        for key, rows in groups.items():
            sizes = _fit_shapes(signature, key, rows[0], self.columns.path, largest)
            step = largest or 1
            for start in range(0, len(rows), step):
                yield self._part(signature, fitted, rows[start : start + step], sizes, largest)

    def _part(
        self,
        signature: Signature,
        fitted: Mapping[str, Column],
        rows: list[int],
        sizes: Sizes,
        largest: int,
    ) -> Part:
        feeds = {}
        for spec in signature.inputs:
            stacked = np.stack([fitted[spec.name][row] for row in rows])
            whole = not largest and stacked.ndim == len(spec.shape) + 1
            feeds[spec.name] = stacked[0] if whole else stacked
        labels = None if self.labels is None else np.stack([self.labels[row] for row in rows])
        return Part(tuple(rows), sizes, feeds, labels)

    def _fit(self, signature: Signature) -> dict[str, Column]:
        return {
            spec.name: _fit_dtype(spec, self._column(spec, signature), self.columns)
            for spec in signature.inputs
        }

    def _column(self, spec: TensorSpec, signature: Signature) -> Column:
        values = self.columns.values
        if "" in values and len(signature.inputs) == 1:
            return values[""]
        if spec.name not in values:
            found = ", ".join(repr(name) for name in values if name) or "one array without a name"
            raise UsageProblem(
                f"{self.columns.path} has no column for the input {spec.name!r}; it has {found}.",
                remedy=f"Give one for each input: {', '.join(signature.input_names)}.",
            )
        return values[spec.name]

    def digest(self, signature: Signature) -> str:
        """Return a digest of the rows as the model takes them, and of their labels."""
        hashed = hashlib.sha256()
        columns = self._fit(signature)
        if self.labels is not None:
            columns["labels"] = self.labels
        for name, column in columns.items():
            hashed.update(f"{name}:{column[0].dtype.str}".encode())
            for row in self.taken:
                value = np.ascontiguousarray(column[row])
                hashed.update(f"{value.shape}".encode())
                hashed.update(value.tobytes())
        return f"sha256:{hashed.hexdigest()}"


def _split(text: str) -> tuple[Path, str]:
    """Return the file and the column of `FILE[:column]`."""
    if Path(text).exists():
        return Path(text), ""
    file, separator, column = text.rpartition(":")
    return (Path(file), column) if separator else (Path(text), "")


def _check_labels(labels: Column, path: Path) -> None:
    """Raise unless all labels are numbers."""
    for row, label in enumerate(labels):
        kind = np.asarray(label).dtype.kind
        if kind not in "bifu":
            raise UsageProblem(
                f"The labels in {path} are no numbers.", remedy="Give the classes' indices, from 0."
            )
        if kind == "f" and np.isnan(label).any():
            raise UsageProblem(
                f"The label of row {row} in {path} is NaN.",
                remedy="Leave the row out, or label it; -100 is a class that is not counted.",
            )


def _fit_dtype(spec: TensorSpec, column: Column, columns: Columns) -> Column:
    """Return a column in an input's dtype.

    Only the width may differ, and no number may change by more than rounding; JSON's numbers, which
    have no dtype, may be whole where an input's are not.
    """
    if isinstance(column, np.ndarray):
        return _cast(spec, column, columns, None)
    return [_cast(spec, value, columns, row) for row, value in enumerate(column)]


def _cast(spec: TensorSpec, array: Array, columns: Columns, row: int | None) -> Array:
    if spec.dtype == "string":
        raise UsageProblem(
            f"The input {spec.name!r} takes text, and rows are numbers only.",
            remedy="Leave --data out.",
        )
    dtype = numpy_dtype(spec.dtype)
    takes = "f" if "float" in spec.dtype else "b" if dtype.kind == "b" else "i"
    has = "i" if array.dtype.kind in "iu" else "f" if "float" in array.dtype.name else "b"
    if has != takes and not (not columns.typed and has == "i" and takes == "f"):
        said = "" if row is None else f" in row {row}"
        raise UsageProblem(
            f"The column {spec.name!r} of {columns.path} is {array.dtype}{said}, "
            f"and the model takes {spec.dtype}.",
            remedy=f"Convert it before it is saved: array.astype({spec.dtype!r}).",
        )
    with np.errstate(over="ignore"):
        cast = array.astype(dtype, copy=False)
    lost = cast != array if takes != "f" else np.isfinite(array) & ~np.isfinite(cast)
    if np.any(lost):
        where = row if row is not None else int(np.argwhere(lost)[0][0])
        raise UsageProblem(
            f"Row {where} of {spec.name!r} in {columns.path} holds {array[lost].flat[0]}, "
            f"which is no {spec.dtype}.",
            remedy="Mend the row, or leave it out.",
        )
    return np.asarray(cast)


def _fit_shapes(
    signature: Signature, shapes: tuple[tuple[int, ...], ...], row: int, path: Path, largest: int
) -> Sizes:
    """Return the axes' sizes in a row of these shapes."""
    sizes: Sizes = {}
    for spec, shape in zip(signature.inputs, shapes, strict=False):  # the labels' comes last
        dims = spec.shape[1:] if largest else spec.shape
        lacks_first = not largest and len(shape) == len(dims) - 1 and _is_one(dims[0])
        whole = (1, *shape) if lacks_first else shape
        if len(whole) != len(dims):
            raise _misfit(spec, shape, dims, row, path)
        for dim, size in zip(dims, whole, strict=True):
            wanted = sizes.setdefault(dim.name, size) if isinstance(dim, Axis) else dim
            is_inside = not isinstance(dim, Axis) or dim.min <= size <= (dim.max or size)
            if size != wanted or not is_inside:
                raise _misfit(spec, shape, dims, row, path)
    return sizes


def _is_one(dim: int | Axis) -> bool:
    return dim.name == ROWS if isinstance(dim, Axis) else dim == 1


def _misfit(
    spec: TensorSpec, shape: tuple[int, ...], dims: tuple[int | Axis, ...], row: int, path: Path
) -> UsageProblem:
    return UsageProblem(
        f"Row {row} of {spec.name!r} in {path} has shape {list(shape)}, "
        f"and the model takes [{', '.join(map(str, dims))}].",
        remedy=f"Give rows that fit {spec}, or state another --input.",
    )
