"""What a model takes and gives: tensors with a dtype and a shape whose axes may vary.

The text form is `name:dtype[dim,dim,…]`; a dim is a number, a name, or a name with a range:

    tokens:int64[batch,seq=1..128]      x:float32[3,16,24]      t:float32[]

The axis called `batch`, when it comes first, is the batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from .errors import UsageProblem

BATCH = "batch"

DTYPES = (
    "bool",
    "uint8", "uint16", "uint32", "uint64",
    "int8", "int16", "int32", "int64",
    "float16", "bfloat16", "float32", "float64",
    "string",
)  # fmt: skip

_EXAMPLE = "write it like 'tokens:int64[batch,seq=1..128]'."
_TENSOR = re.compile(r"(?P<name>.+):(?P<dtype>\w+)\[(?P<dims>[^\[\]]*)\]", re.DOTALL)
_AXIS = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:=(?P<min>[0-9]{1,9})\.\.(?P<max>[0-9]{1,9}))?")
_SIZE = re.compile(r"[0-9]{1,9}")


class Axis(msgspec.Struct, frozen=True):
    """A dimension that varies. `max` is None where no limit was stated."""

    name: str
    min: int = 1
    max: int | None = None

    def __str__(self) -> str:
        return self.name if self.max is None else f"{self.name}={self.min}..{self.max}"


Dim = int | Axis


class Domain(msgspec.Struct, frozen=True):
    """The values an input may hold.

    `real`: any number around `low`..`high`. `integer`: whole numbers, both ends included.
    `mask`: in a row `low` ones or more, and zeros (padding) on one side. `binary`: 0 or 1.
    `end` is the whole number that each row ends with, before its padding, and has nowhere else.
    """

    kind: Literal["real", "integer", "mask", "binary"] = "real"
    low: float = -1.0
    high: float = 1.0
    end: int | None = None


class TensorSpec(msgspec.Struct, frozen=True):
    """One input or output."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]
    domain: Domain | None = None

    def __str__(self) -> str:
        return f"{self.name}:{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The dimensions that vary, in order."""
        return tuple(dim for dim in self.shape if isinstance(dim, Axis))

    @property
    def is_batched(self) -> bool:
        """Whether the first axis is the batch."""
        return bool(self.shape) and isinstance(self.shape[0], Axis) and self.shape[0].name == BATCH

    def sized(self, sizes: dict[str, int]) -> tuple[int, ...]:
        """Return the shape with every axis replaced by its entry in `sizes`."""
        return tuple(sizes[dim.name] if isinstance(dim, Axis) else dim for dim in self.shape)


class Signature(msgspec.Struct, frozen=True):
    """The names, dtypes and shapes of a model's inputs and outputs, in the model's own order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = ()

    @property
    def axes(self) -> dict[str, Axis]:
        """Every axis of the inputs that varies, by name."""
        return {axis.name: axis for spec in self.inputs for axis in spec.axes}

    @property
    def input_names(self) -> tuple[str, ...]:
        """The inputs' names, in order."""
        return tuple(spec.name for spec in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The outputs' names, in order."""
        return tuple(spec.name for spec in self.outputs)


def parse_tensor(text: str) -> TensorSpec:
    """Read `name:dtype[dims]`.

    Raises:
        UsageProblem: the text has another form, an unknown dtype, or an empty range.
    """
    match = _TENSOR.fullmatch(text.strip())
    if match is None:
        raise UsageProblem(f"{text!r} does not describe a tensor.", remedy=f"Please {_EXAMPLE}")
    if match["dtype"] not in DTYPES:
        raise UsageProblem(
            f"{text!r} has the unknown dtype {match['dtype']!r}.",
            remedy=f"Use one of: {', '.join(DTYPES)}.",
        )
    dims = [part.strip() for part in match["dims"].split(",")] if match["dims"].strip() else []
    spec = TensorSpec(match["name"], match["dtype"], tuple(_parse_dim(dim, text) for dim in dims))
    if len({axis.name for axis in spec.axes}) < len(spec.axes):
        raise UsageProblem(
            f"{text!r} names one axis twice.", remedy="Give each axis of a tensor its own name."
        )
    return spec


def parse_signature(texts: Iterable[str]) -> Signature:
    """Read several inputs, and let an axis that has its range in one have it in all.

    Raises:
        UsageProblem: a text is malformed, or two of them contradict each other.
    """
    inputs = [parse_tensor(text) for text in texts]
    if len({spec.name for spec in inputs}) < len(inputs):
        raise UsageProblem("An input is described twice.", remedy="Give one --input for each.")
    ranged: dict[str, Axis] = {}
    for axis in (axis for spec in inputs for axis in spec.axes if axis.max is not None):
        if ranged.setdefault(axis.name, axis) != axis:
            raise UsageProblem(
                f"The axis {axis.name!r} has two ranges: {ranged[axis.name]} and {axis}.",
                remedy="State the range once, or the same one everywhere.",
            )
    return Signature(
        tuple(
            msgspec.structs.replace(spec, shape=tuple(_ranged(dim, ranged) for dim in spec.shape))
            for spec in inputs
        )
    )


def _ranged(dim: Dim, ranged: dict[str, Axis]) -> Dim:
    return ranged.get(dim.name, dim) if isinstance(dim, Axis) else dim


def _parse_dim(text: str, whole: str) -> Dim:
    if _SIZE.fullmatch(text):
        return int(text)
    match = _AXIS.fullmatch(text)
    if match is None:
        raise UsageProblem(
            f"{text!r} in {whole!r} is no dimension.",
            remedy="A dimension is a number of at most 9 digits, a name, or a name with a range: "
            "3, seq, seq=1..128.",
        )
    if match["max"] is None:
        return Axis(match["name"])
    low, high = int(match["min"]), int(match["max"])
    if not 1 <= low <= high:
        raise UsageProblem(
            f"The range {low}..{high} in {whole!r} is empty or starts below 1.",
            remedy="Write the smallest and the largest size, as in seq=1..128.",
        )
    return Axis(match["name"], low, high)
