"""The target `torchscript`: traced, or scripted where asked; run by libtorch."""

from __future__ import annotations

import keyword
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..artifact import Artifact, list_files
from ..errors import ConversionError, Unavailable, UsageProblem
from ..extras import needs, version_of
from ..report import Prepared
from ..spec import Axis, Signature, TensorSpec
from .base import Array, Arrays, Availability, ConvertOptions, SourceModel, unused_note
from .torch_model import TorchModel
from .torch_modes import inlined_functions
from .torch_tensors import to_array, to_tensor
from .tracer import tracer_warnings

SERVED_DTYPES = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
"""What Triton's PyTorch backend takes (its README's table of data types)."""


RESERVED = (*keyword.kwlist, "self", "forward")
"""What can't be the name of an argument."""


class _TorchScript:
    name = "torchscript"
    extra = "torch"
    filename = "model.pt"
    platform = "pytorch_libtorch"
    base = None
    preload = ("torch",)

    def recipes(self, options: ConvertOptions, framework: str | None = None) -> tuple[str, ...]:
        if framework not in (None, TorchModel.framework):
            raise ConversionError(
                f"TorchScript is made from a torch model, and this is one of {framework}.",
                remedy="Choose another target: --targets onnx.",
            )
        return ("script",) if options.script else ("trace",)

    def availability(self) -> Availability:
        if version_of("torch"):
            return Availability()
        reason, remedy = "torch is not installed", "Run: pip install 'tconv[torch]'"
        return Availability(reason, reason, remedy)

    def convert(
        self,
        model: SourceModel | Path,
        prepared: Prepared,
        recipe: str,
        folder: Path,
        options: ConvertOptions,
    ) -> Artifact:
        with needs("torch"):
            import torch
        assert isinstance(model, TorchModel)  # `recipes` has seen to it
        _check_dtypes(prepared.signature)
        with _explained(recipe), torch.no_grad(), tracer_warnings() as notes:
            module = _trace(model) if recipe == "trace" else _script(model)
            torch.jit.save(module, str(folder / self.filename))
        return Artifact(
            target=self.name,
            recipe=recipe,
            files=list_files(folder),
            signature=prepared.signature,
            wire_names=_wire_names(prepared.signature),
            versions=version_of("torch"),
            notes=(*notes, *map(unused_note, _unused_inputs(module, prepared.signature))),
        )

    def open(self, folder: Path, artifact: Artifact, device: str, threads: int = 0) -> _Script:
        with needs("torch"):
            import torch
        if threads:
            torch.set_num_threads(threads)
        has_cuda = torch.cuda.is_available()
        if device == "cuda" and not has_cuda:
            raise Unavailable("torch finds no GPU here.", remedy="Use --device cpu.")
        chosen = "cuda" if device != "cpu" and has_cuda else "cpu"
        try:
            module = torch.jit.load(str(folder / self.filename), map_location=chosen)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            traceback.print_exc()
            reason = next((line for line in str(error).splitlines() if line.strip()), "no reason")
            raise ConversionError(
                f"libtorch can't load the file: {reason.rstrip('.')}.",
                remedy="Replace what libtorch does not know in the model, or use another target.",
            ) from error
        return _Script(module, artifact.signature, chosen)

    def inspect(self, path: Path) -> Signature:
        with needs("torch"):
            import torch
        try:
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError) as error:
            raise UsageProblem(
                f"{path} can't be read as TorchScript: {str(error).splitlines()[0]}",
                remedy="Check that torch.jit.save wrote it; a state dict is no model.",
            ) from error
        names = [argument.name for argument in module.forward.schema.arguments[1:]]
        # TorchScript declares neither dtypes nor shapes of its arguments.
        return Signature(tuple(TensorSpec(name, "float32", (Axis("any"),)) for name in names))


def _check_dtypes(signature: Signature) -> None:
    for spec in (*signature.inputs, *signature.outputs):
        if spec.dtype not in SERVED_DTYPES:
            raise ConversionError(
                f"Triton's PyTorch backend has no type for {spec.name!r}: {spec.dtype}.",
                remedy="Cast at the ends: take float32 and give float32, or use the onnx target.",
            )


class _explained:  # noqa: N801 - reads as the sentence it is: with _explained(...)
    """Turn whatever torch.jit raises into one sentence; the log keeps the traceback."""

    def __init__(self, recipe: str) -> None:
        self.recipe = recipe

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConversionError | MemoryError):
            traceback.print_exception(error)
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            other = "without --script" if self.recipe == "script" else "with --script"
            raise ConversionError(
                f"torch.jit.{self.recipe} refused the model: {(lines or ['no message'])[0]}",
                remedy=f"Try {other}, or the onnx target.",
            ) from error


def _trace(model: TorchModel) -> Any:
    import torch

    exported = model.for_export()
    names = exported.flat.input_names
    module = _named(exported.flat, names) if _are_arguments(names) else exported.flat
    with inlined_functions():
        return torch.jit.trace(module, exported.tensors(exported.examples), check_trace=False)  # type: ignore[no-untyped-call]


def _unused_inputs(module: Any, signature: Signature) -> list[str]:
    values = list(module.inlined_graph.inputs())[1:]
    return [n for n, v in zip(signature.input_names, values, strict=False) if not v.uses()]


def _named(flat: Any, names: Sequence[str]) -> Any:
    """Return `flat` with a forward that has the inputs' names: the server asks for them."""
    import torch

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.flat = flat

    arguments = ", ".join(names)
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {arguments}):\n    return self.flat({arguments})", scope)
    Named.forward = scope["forward"]
    return Named().eval()


def _script(model: TorchModel) -> Any:
    import torch

    module = torch.jit.script(model.flat.module)
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    if names[: len(model.flat.input_names)] != list(model.flat.input_names):
        raise ConversionError(
            f"The scripted model takes {names}, not {list(model.flat.input_names)} in this order.",
            remedy="Order --input as the arguments of forward.",
        )
    result = module(*model.tensors(model.examples))
    if not isinstance(result, torch.Tensor | tuple | list):
        raise ConversionError(
            f"The scripted model returns a {type(result).__name__}, which Triton can't serve.",
            remedy="Return a tensor or a tuple of tensors, or leave --script out.",
        )
    return module


def _are_arguments(names: Sequence[str]) -> bool:
    # libtorch writes a file with a name that is no ASCII, and can't read it.
    return all(n.isidentifier() and n.isascii() and n not in RESERVED for n in names)


def _wire_names(signature: Signature) -> dict[str, str]:
    """Return the names by the PyTorch backend's rules (its README, "naming convention").

    Inputs are all called as forward's arguments or all `INPUT__0` …; outputs are `OUTPUT__0` ….
    """
    wire = {name: f"OUTPUT__{i}" for i, name in enumerate(signature.output_names)}
    if not _are_arguments(signature.input_names):
        wire |= {name: f"INPUT__{i}" for i, name in enumerate(signature.input_names)}
    return wire


class _Script:
    """A loaded TorchScript file."""

    def __init__(self, module: Any, signature: Signature, device: str) -> None:
        self._module, self._signature, self.device = module, signature, device

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        import torch

        inputs = [to_tensor(feeds[name], self.device) for name in self._signature.input_names]
        with torch.inference_mode():
            result = self._module(*inputs)
        values = (result,) if isinstance(result, torch.Tensor) else result
        return dict(zip(self._signature.output_names, map(to_array, values), strict=True))


TARGET = _TorchScript()
