"""What is checked for TensorRT on signatures alone: dtypes, ranges, and the parser's result."""

from __future__ import annotations

import msgspec

from ..errors import ConversionError
from ..report import Prepared
from ..spec import BATCH, Axis, Dim, Signature, TensorSpec

DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "BOOL": "bool",
}
"""`tensorrt.DataType` by name; the 4- and 8-bit floats are never an input or output."""

# The parser takes a float64 input and turns it into float32 without a word, so it is not asked.
_CAST_TO = {"float64": "float32", "int16": "int32", "uint16": "int32", "uint32": "int64"}

_LEAVE_OUT = "or leave out the trt targets"


class ShapeRange(msgspec.Struct, frozen=True):
    """The shapes one input may have: the smallest, the one to be fast at, the largest."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]

    def __str__(self) -> str:
        low, usual, high = (
            "x".join(map(str, sizes)) or "scalar" for sizes in (self.min, self.opt, self.max)
        )
        return low if self.min == self.max else f"{low} to {high}, best at {usual}"


def check_dtypes(signature: Signature) -> None:
    """Refuse what TensorRT has no type for.

    Raises:
        ConversionError: an input or output has such a dtype.
    """
    for kind, specs in (("input", signature.inputs), ("output", signature.outputs)):
        for spec in specs:
            if spec.dtype not in DTYPES.values():
                raise ConversionError(
                    f"TensorRT has no {spec.dtype}, the dtype of the {kind} {spec.name!r}.",
                    remedy=f"{_dtype_remedy(spec, kind)}, {_LEAVE_OUT}.",
                )


def _dtype_remedy(spec: TensorSpec, kind: str) -> str:
    if spec.dtype == "string":
        return "Handle text outside the model"
    other = _CAST_TO.get(spec.dtype, "int64")
    return f"Let the model {'take' if kind == 'input' else 'return'} {other} and cast it inside"


def shape_ranges(prepared: Prepared) -> dict[str, ShapeRange]:
    """Return the range of each input, an axis having the same size in all of them.

    Raises:
        ConversionError: an axis has no largest size.
    """
    batch = prepared.batching.max_size
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    for spec in prepared.signature.inputs:
        for axis in spec.axes:
            if axis.name == BATCH and batch > 0:
                lows[BATCH], highs[BATCH] = 1, batch
            elif axis.max is None:
                raise _no_range(spec, axis)
            else:
                lows[axis.name], highs[axis.name] = axis.min, axis.max
    # The middle is above 1 whenever a batch may be: a graph with a batch of 1 baked in shows.
    usual = {name: (lows[name] + highs[name]) // 2 for name in lows}
    return {
        spec.name: ShapeRange(spec.sized(lows), spec.sized(usual), spec.sized(highs))
        for spec in prepared.signature.inputs
    }


def _no_range(spec: TensorSpec, axis: Axis) -> ConversionError:
    stated = msgspec.structs.replace(
        spec,
        shape=tuple(
            Axis(dim.name, dim.min, 128)
            if isinstance(dim, Axis) and dim.max is None and dim.name != BATCH
            else dim
            for dim in spec.shape
        ),
    )
    if axis.name == BATCH:
        stated = msgspec.structs.replace(spec, shape=(Axis(BATCH, 1, 8), *stated.shape[1:]))
    return ConversionError(
        f"TensorRT needs the largest size of the axis {axis.name!r} of {spec.name!r}, "
        "and none was stated.",
        remedy=f"State its range, as in --input '{stated}'.",
    )


def check_inputs(network: Signature, prepared: Signature) -> tuple[str, ...]:
    """Compare what the parser found with the model's own inputs; return what is worth a note.

    In `network` an axis that varies is an `Axis` of any name.

    Raises:
        ConversionError: the graph has an input the model has not, or fixes an axis that varies.
    """
    known = {spec.name: spec for spec in prepared.inputs}
    for spec in network.inputs:
        if spec.name not in known:
            raise ConversionError(
                f"The ONNX graph has an input {spec.name!r} that the model does not have.",
                remedy=f"Check the inputs with --input, {_LEAVE_OUT}.",
            )
        _check_shape("input", spec, known[spec.name])
    names = network.input_names
    dropped = [name for name in prepared.input_names if name not in names]
    notes = [f"The graph does not have the input {name!r}: nothing uses it." for name in dropped]
    if [name for name in prepared.input_names if name in names] != list(names):
        notes.append(f"The graph has its inputs in another order: {', '.join(names)}.")
    return tuple(notes)


def check_outputs(network: Signature, prepared: Signature) -> None:
    """Compare the graph's outputs with the model's own, as far as these are known.

    Raises:
        ConversionError: one is missing, or an axis that varies is fixed in the graph.
    """
    found = {spec.name: spec for spec in network.outputs}
    for spec in prepared.outputs:
        if spec.name not in found:
            raise ConversionError(
                f"The ONNX graph lacks the output {spec.name!r}.",
                remedy=f"Choose another exporter with --exporter, {_LEAVE_OUT}.",
            )
        _check_shape("output", found[spec.name], spec)


def _check_shape(kind: str, graph: TensorSpec, model: TensorSpec) -> None:
    pairs = zip(graph.shape, model.shape, strict=False)
    if len(graph.shape) == len(model.shape) and all(_agree(*pair) for pair in pairs):
        return
    shapes = [f"[{', '.join(map(str, spec.shape))}]" for spec in (graph, model)]
    raise ConversionError(
        f"The ONNX graph fixes the {kind} {graph.name!r} at {shapes[0]}, "
        f"where the model has {shapes[1]}.",
        remedy=f"Export it with these axes left to vary, or state fixed sizes, {_LEAVE_OUT}.",
    )


def _agree(graph: Dim, model: Dim) -> bool:
    if isinstance(graph, Axis):
        return True
    if isinstance(model, Axis):
        return model.min == model.max == graph
    return graph == model


def declared(network: Signature, prepared: Signature) -> Signature:
    """Return the network's own signature with the model's names for its axes."""
    return Signature(
        tuple(_named(spec, prepared.inputs) for spec in network.inputs),
        tuple(_named(spec, prepared.outputs) for spec in network.outputs),
    )


def _named(spec: TensorSpec, own: tuple[TensorSpec, ...]) -> TensorSpec:
    for other in own:
        if other.name == spec.name and len(other.shape) == len(spec.shape):
            shape = tuple(
                model if isinstance(graph, Axis) else graph
                for graph, model in zip(spec.shape, other.shape, strict=True)
            )
            return TensorSpec(spec.name, spec.dtype, shape, other.domain)
    return spec
