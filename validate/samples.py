"""The samples of a build and the source's answers to them, stored once and used by every check.

A *pool* is one set of inputs, with as many rows as the largest batch. A *check* is a choice of its
rows: since a batchable model treats rows alone, its answer must be the same rows of the pool's
answer, whatever the batch, the order and the neighbours. A model that can't be batched has one
check a pool, without a choice.

    samples/index.json
    samples/<pool>/in0.npy …  out0.npy …     and score0.npy for an output of indices,
                                             label0.npy for the user's own rows
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..convert.base import Array
from ..spec import TensorSpec

INDEX = "index.json"


class Pool(msgspec.Struct, frozen=True):
    """One set of inputs; `sizes` are the axes' sizes, `kind` what the values are like.

    `rows` are the numbers of the user's own rows, where it holds such.
    """

    name: str
    kind: str
    sizes: dict[str, int]
    rows: tuple[int, ...] = ()


class Check(msgspec.Struct, frozen=True):
    """A pool, or some of its rows in some order."""

    pool: str
    rows: tuple[int, ...] | None = None
    why: str = "as it is"


class Dataset(msgspec.Struct, frozen=True):
    """The user's own rows. `metric` and `output` are empty where they have no labels."""

    rows: int
    digest: str
    metric: str = ""
    output: str = ""


class Columns(msgspec.Struct, frozen=True):
    """Parts of an output with scales of their own: boxes beside a probability.

    `scales` are along `axis`; None where a part is to be measured by the largest of its row.
    """

    axis: int
    scales: tuple[float | None, ...]


class SampleIndex(msgspec.Struct, frozen=True):
    """All samples of a build. `scales` are the outputs' typical magnitudes over ordinary values."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    pools: tuple[Pool, ...]
    checks: tuple[Check, ...]
    scales: dict[str, float] = {}
    score_axes: dict[str, int] = {}
    data: Dataset | None = None
    columns: dict[str, Columns] = {}


class SampleStore:
    """Reads and writes the samples below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write_index(self, index: SampleIndex) -> None:
        """Write what the arrays are; the last thing that is written."""
        scratch = self.folder / f"{INDEX}.part"
        scratch.write_bytes(msgspec.json.format(msgspec.json.encode(index), indent=1))
        scratch.replace(self.folder / INDEX)

    def read_index(self) -> SampleIndex:
        """Return what `write_index` wrote."""
        return msgspec.json.decode((self.folder / INDEX).read_bytes(), type=SampleIndex)

    def write(self, pool: str, prefix: str, arrays: Mapping[int, Array]) -> None:
        """Write `in`, `out`, `score` or `label` arrays of a pool, by position in the signature."""
        folder = self.folder / pool
        folder.mkdir(parents=True, exist_ok=True)
        for position, array in arrays.items():
            np.save(folder / f"{prefix}{position}.npy", _plain(array))

    def read(self, check: Check, prefix: str, specs: tuple[TensorSpec, ...]) -> dict[str, Array]:
        """Return arrays of a check, by name; whole pools are mapped into memory, not read."""
        return {
            spec.name: self.read_one(check, prefix, position, spec.dtype)
            for position, spec in enumerate(specs)
        }

    def read_one(self, check: Check, prefix: str, position: int, dtype: str) -> Array:
        """Return one array of a check; an empty `dtype` is the file's own."""
        array: Array = np.load(self.folder / check.pool / f"{prefix}{position}.npy", mmap_mode="r")
        array = array.view(numpy_dtype(dtype)) if dtype else array
        return array if check.rows is None else array[list(check.rows)]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype for a name of `spec.DTYPES`; bfloat16 is ml_dtypes' own."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(object if name == "string" else name)


def _plain(array: Array) -> Array:
    """Return an array that the npy format can describe: bfloat16 goes as its bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
