"""The two exporters of torch that write ONNX, each turning a refusal into one sentence."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ConversionError, TconvError
from ..extras import needs
from ..spec import Axis, Signature
from .mapped_weights import attach_weights
from .torch_model import TorchModel
from .torch_modes import export_friendly_mode
from .tracer import is_user_code, tracer_warnings

INLINE_LIMIT = 1_500_000_000
"""Bytes of weights up to which one file holds all; protobuf ends at 2 GiB."""
TORCHSCRIPT_OPSET = 18
SIDE_FILE = "model.onnx.data"

_USER_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>\w+)')


def export_dynamo(
    model: TorchModel, signature: Signature, path: Path, opset: int | None
) -> list[str]:
    """Write ONNX through `torch.export`; return what is worth noting.

    Raises:
        ConversionError: the model's code can't be captured for every size and value.
    """
    with needs("torch"):
        import onnx_ir
        import onnxscript  # noqa: F401
        import torch

    model, notes = _prepared(model, signature)
    dynamic = torch.export.Dim.DYNAMIC
    shapes = tuple(
        {place: dynamic for place, dim in enumerate(spec.shape) if isinstance(dim, Axis)}
        for spec in signature.inputs
    )
    names = list(signature.input_names)
    with _explained("torch.export"), torch.no_grad():
        with export_friendly_mode():
            program = torch.export.export(
                model.flat, model.tensors(model.examples), dynamic_shapes=(shapes,), strict=False
            )
        exported: Any = torch.onnx.export(
            program,
            (),
            dynamo=True,
            input_names=names,
            output_names=list(signature.output_names),
            opset_version=opset,
            verbose=False,
        )
    graph = exported.model
    _name_axes(graph.graph.inputs, signature.inputs)
    _name_axes(graph.graph.outputs, signature.outputs)
    attached = attach_weights(graph, path.parent)
    inline = sum(
        value.const_value.nbytes
        for value in graph.graph.initializers.values()
        if not isinstance(value.const_value, onnx_ir.ExternalTensor)
    )
    side_file = SIDE_FILE if inline > INLINE_LIMIT and not attached else None
    onnx_ir.save(graph, path, external_data=side_file)
    return notes


def _name_axes(values: Any, specs: Any) -> None:
    """Give the axes of the graph's ends the signature's names."""
    import onnx_ir

    for value, spec in zip(values, specs, strict=True):
        dims = [
            onnx_ir.SymbolicDim(dim.name) if isinstance(dim, Axis) else shape
            for dim, shape in zip(spec.shape, value.shape, strict=True)
        ]
        value.shape = onnx_ir.Shape(dims)


def export_torchscript(
    model: TorchModel, signature: Signature, path: Path, opset: int | None
) -> list[str]:
    """Write ONNX through the older, tracing exporter; return the tracer's warnings.

    Raises:
        ConversionError: an operator has no translation.
    """
    import torch

    model, notes = _prepared(model, signature)
    specs = (*signature.inputs, *signature.outputs)
    axes = {
        spec.name: {
            place: dim.name for place, dim in enumerate(spec.shape) if isinstance(dim, Axis)
        }
        for spec in specs
    }
    with _explained("The TorchScript exporter"), torch.no_grad(), tracer_warnings() as caught:
        with export_friendly_mode():
            torch.onnx.export(
                model.flat,
                model.tensors(model.examples),
                str(path),
                dynamo=False,
                input_names=list(signature.input_names),
                output_names=list(signature.output_names),
                dynamic_axes={name: places for name, places in axes.items() if places},
                opset_version=opset or TORCHSCRIPT_OPSET,
            )
        return notes + caught


def _prepared(model: TorchModel, signature: Signature) -> tuple[TorchModel, list[str]]:
    """Return the model as the exporters can take it, and what is worth noting of that.

    Raises:
        ConversionError: it is TorchScript.
    """
    import torch

    if isinstance(model.flat.module, torch.jit.ScriptModule):
        raise ConversionError(
            "The model is TorchScript already, from which torch writes no ONNX.",
            remedy="Let the factory return the torch.nn.Module that it was made from.",
        )
    exported = model.for_export().widened(signature.outputs)
    if exported is model:
        return exported, []
    return exported, ["Computed in float32 instead of bfloat16: CPU kernels lack that."]


@contextmanager
def _explained(exporter: str) -> Iterator[None]:
    """Turn whatever an exporter raises into one sentence; the log keeps the traceback."""
    try:
        yield
    except (TconvError, MemoryError):
        raise
    except Exception as error:
        traceback.print_exc()
        raise ConversionError(
            f"{exporter} refused the model: {_reason(error)}",
            remedy="Mend that line, or try the other --exporter.",
        ) from error


def _reason(error: Exception) -> str:
    """Return the sentence that matters of an exporter's long message, with the user's line."""
    text = "\n".join(str(e) for e in _chain(error))
    lines = [line.strip(" -") for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("You marked", "Could not guard"))]
    first = (marked or lines or ["no message"])[0].split(". ")[0].rstrip(".")
    if first.startswith("Failed to") and error.__cause__ is not None:
        first += f": {str(error.__cause__).strip().splitlines()[0].rstrip('.')}"
    places = [match for match in _USER_LINE.finditer(text) if is_user_code(match["file"])]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_code(f.filename)]
    inside = [f for f in frames if f.name == "forward"]
    where = ""
    if places:
        where = f" at {places[-1]['file']}:{places[-1]['line']}"
    elif inside:
        where = f" at {inside[-1].filename}:{inside[-1].lineno}"
    return f"{first}{where}."


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
