"""Read an ONNX graph's ends, and put right what exporters leave at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ConversionError, UsageProblem
from ..spec import Axis, Dim, Signature, TensorSpec

ONNX_DTYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FLOAT16": "float16",
    "BFLOAT16": "bfloat16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "STRING": "string",
}
"""ONNX's names of element types (onnx.proto, TensorProto.DataType) and ours."""


def read_signature(path: Path) -> Signature:
    """Return the inputs and outputs that an ONNX file declares.

    Raises:
        UsageProblem: it is no ONNX file, or an end of it is no tensor.
    """
    graph = _load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in weights]
    return Signature(tuple(map(_spec, inputs)), tuple(map(_spec, graph.output)))


def _load(path: Path) -> Any:
    import google.protobuf.message
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except (OSError, google.protobuf.message.DecodeError) as error:
        raise UsageProblem(
            f"{path} can't be read as ONNX: {error}", remedy="Check that it is a whole ONNX file."
        ) from error
    if not model.graph.node and not model.graph.output:
        raise UsageProblem(f"{path} holds no ONNX graph.", remedy="Check what wrote the file.")
    return model


def _spec(value: Any) -> TensorSpec:
    import onnx

    kind = value.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(kind.elem_type)
    if not value.type.HasField("tensor_type") or dtype not in ONNX_DTYPES:
        raise UsageProblem(
            f"{value.name!r} is no tensor of a type that a server takes, but {dtype}.",
            remedy="Let the graph take and give plain tensors.",
        )
    if not kind.HasField("shape"):
        raise UsageProblem(
            f"The file does not say how many dimensions {value.name!r} has.",
            remedy="Add the shape, for example with onnx.shape_inference.",
        )
    dims: list[Dim] = []
    for place, dim in enumerate(kind.shape.dim):
        fixed = dim.HasField("dim_value")
        name = dim.dim_param or f"{value.name}_dim{place}"
        dims.append(dim.dim_value if fixed else Axis(name))
    return TensorSpec(value.name, ONNX_DTYPES[dtype], tuple(dims))


def finish(path: Path, signature: Signature) -> None:
    """Make the file's ends the signature's: every input there, in order; then check the file.

    Raises:
        ConversionError: the exporter wrote other outputs, or a graph that breaks ONNX's rules.
    """
    import onnx

    model = _load(path)
    changed = _restore_inputs(model.graph, signature)
    changed |= _restore_shapes(model.graph, signature)
    if changed:
        onnx.save(model, path)
    written = [value.name for value in model.graph.output]
    if written != list(signature.output_names):
        raise ConversionError(
            f"The exporter wrote the outputs {written} instead of {list(signature.output_names)}.",
            remedy="Try the other --exporter.",
        )
    try:
        onnx.checker.check_model(path)
    except onnx.checker.ValidationError as error:
        raise ConversionError(
            f"The exporter wrote a graph that breaks ONNX's rules: {str(error).splitlines()[0]}",
            remedy="Try the other --exporter.",
        ) from error


def check_opset(path: Path, opset: int | None) -> None:
    """Make sure that the file has the opset that was asked for.

    Raises:
        ConversionError: it has another: the exporter could not convert it, and only logs that.
    """
    written = next((s.version for s in _load(path).opset_import if not s.domain), None)
    if opset not in (None, written):
        raise ConversionError(
            f"The exporter wrote opset {written} instead of {opset}.",
            remedy="Leave --opset out, or try the other --exporter.",
        )


def _restore_inputs(graph: Any, signature: Signature) -> bool:
    """Put back the inputs that an exporter dropped because nothing reads them."""
    import onnx

    present = {value.name: value for value in graph.input}
    if list(present) == list(signature.input_names):
        return False
    kinds = {ours: theirs for theirs, ours in ONNX_DTYPES.items()}
    wanted = [
        present.get(spec.name)
        or onnx.helper.make_tensor_value_info(
            spec.name,
            onnx.TensorProto.DataType.Value(kinds[spec.dtype]),
            [dim.name if isinstance(dim, Axis) else dim for dim in spec.shape],
        )
        for spec in signature.inputs
    ]
    del graph.input[:]
    graph.input.extend(wanted)
    return True


def _restore_shapes(graph: Any, signature: Signature) -> bool:
    """Name the output axes that an exporter left without a name, or named by itself."""
    specs = {spec.name: spec for spec in signature.outputs}
    changed = False
    for value in graph.output:
        kind = value.type.tensor_type
        spec = specs.get(value.name)
        if spec is None:
            continue
        if not kind.HasField("shape"):
            kind.shape.SetInParent()
            kind.shape.dim.extend(type(kind.shape).Dimension() for _ in spec.shape)
            changed = True
        dims = kind.shape.dim
        if len(spec.shape) != len(dims):
            continue
        for dim, truth in zip(dims, spec.shape, strict=True):
            wanted = truth.name if isinstance(truth, Axis) else ""
            if wanted and not dim.dim_value and dim.dim_param != wanted:
                dim.dim_param, changed = wanted, True
            elif not wanted and not dim.dim_value:
                dim.dim_value, changed = truth, True
    return changed


def unused_inputs(path: Path) -> list[str]:
    """Return the inputs that no node and no output reads."""
    graph = _load(path).graph
    read = {value.name for value in graph.output}
    pending = [graph]
    while pending:
        for node in pending.pop().node:
            read.update(node.input)
            for attribute in node.attribute:
                pending += [attribute.g] if attribute.HasField("g") else []
                pending += attribute.graphs
    return [value.name for value in graph.input if value.name not in read]
