"""The target `onnx`: written by one of torch's exporters, run by ONNX Runtime."""

from __future__ import annotations

import ctypes
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ..artifact import Artifact, list_files
from ..errors import ConversionError, Unavailable, UsageProblem
from ..extras import needs, version_of
from ..report import Prepared
from ..spec import Axis, Dim, Signature, TensorSpec
from .base import Array, Arrays, Availability, ConvertOptions, SourceModel, unused_note
from .onnx_from_torch import export_dynamo, export_torchscript
from .onnx_graph import check_opset, finish, read_signature, unused_inputs

Exporter = Callable[[Any, Signature, Path, int | None], list[str]]
"""Writes a source's model as the file, at an opset if one is asked for; returns notes."""
EXPORTERS: dict[str, dict[str, Exporter]] = {
    "torch": {"dynamo": export_dynamo, "torchscript": export_torchscript},
}
"""By framework, the one whose graph serves best first: fewer nodes, tied weights once."""
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class _Onnx:
    name = "onnx"
    extra = "torch"
    filename = "model.onnx"
    platform = "onnxruntime_onnx"
    base = None
    preload = ("onnx", "onnxruntime")

    def recipes(self, options: ConvertOptions, framework: str | None = None) -> tuple[str, ...]:
        known = [name for exporters in EXPORTERS.values() for name in exporters]
        own = known if framework is None else list(EXPORTERS.get(framework, ()))
        if options.exporter not in ("auto", *known):
            raise UsageProblem(
                f"There is no exporter called {options.exporter!r}.",
                remedy=f"Choose from: auto, {', '.join(known)}.",
            )
        if not own:
            raise ConversionError(
                f"ONNX is not made from a model of {framework}.",
                remedy="Choose another target: `tconv targets` lists them.",
            )
        if options.exporter not in ("auto", *own):
            raise ConversionError(
                f"The exporter {options.exporter} writes no models of {framework}.",
                remedy=f"Choose from: auto, {', '.join(own)}.",
            )
        return tuple(own) if options.exporter == "auto" else (options.exporter,)

    def availability(self) -> Availability:
        missing = [p for p in ("onnx", "onnxscript", "torch") if not version_of(p)]
        runtime = version_of("onnxruntime", "onnxruntime-gpu")
        return Availability(
            build=f"{', '.join(missing)} is not installed" if missing else "",
            run="" if runtime else "onnxruntime is not installed",
            remedy="" if runtime and not missing else "Run: pip install 'tconv[torch]'",
        )

    def convert(
        self,
        model: SourceModel | Path,
        prepared: Prepared,
        recipe: str,
        folder: Path,
        options: ConvertOptions,
    ) -> Artifact:
        assert not isinstance(model, Path)  # `base` is None
        with needs(self.extra):
            import onnx  # noqa: F401
        path = folder / self.filename
        export = EXPORTERS[prepared.framework][recipe]
        notes = export(model, prepared.signature, path, options.opset)
        try:
            check_opset(path, options.opset)
            finish(path, prepared.signature)
            signature = read_signature(path)
        except UsageProblem as error:  # of the file, which is the exporter's and not the user's
            raise ConversionError(error.problem, remedy="Try the other --exporter.") from error
        notes += map(unused_note, unused_inputs(path))
        return Artifact(
            target=self.name,
            recipe=recipe,
            files=list_files(folder),
            signature=_with_ranges(signature, prepared.signature),
            versions=version_of("torch", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu"),
            notes=tuple(notes),
        )

    def open(self, folder: Path, artifact: Artifact, device: str, threads: int = 0) -> _Session:
        with needs("torch"):
            import onnxruntime
        provider = PROVIDERS[_choose_device(device, onnxruntime.get_available_providers())]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(
                folder / self.filename, options, providers=[provider]
            )
        except MemoryError:
            raise
        except Exception as error:  # its exceptions have no type in common
            traceback.print_exc()
            reason = str(error).strip().partition("\n")[0].rpartition("] : ")[2]
            raise ConversionError(
                f"ONNX Runtime can't load the file: {reason.rstrip('.')}.",
                remedy="Try the other --exporter, or another --opset.",
            ) from error
        if session.get_providers()[0] != provider:
            raise Unavailable(
                f"ONNX Runtime fell back to {session.get_providers()[0]} from {provider}.",
                remedy="Install the CUDA libraries that onnxruntime-gpu asks for, or --device cpu.",
            )
        return _Session(session, artifact.signature)

    def inspect(self, path: Path) -> Signature:
        with needs("torch"):
            import onnx  # noqa: F401
        return read_signature(path)


def _choose_device(device: str, providers: list[str]) -> str:
    has_cuda = PROVIDERS["cuda"] in providers
    if device == "cuda" and not has_cuda:
        raise Unavailable(
            "This ONNX Runtime has no CUDA provider.",
            remedy="Install tconv[gpu] on a machine with an NVIDIA GPU, or use --device cpu.",
        )
    return device if device != "auto" else "cuda" if has_cuda else "cpu"


class _Session:
    """A loaded ONNX file."""

    def __init__(self, session: Any, signature: Signature) -> None:
        self._session, self._signature = session, signature
        self.device = "cuda" if session.get_providers()[0] == PROVIDERS["cuda"] else "cpu"

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        specs = (*self._signature.inputs, *self._signature.outputs)
        if any(spec.dtype == "bfloat16" for spec in specs):
            values = self._run_bfloat16(feeds)
        else:
            values = self._session.run(None, dict(feeds))
        names = [output.name for output in self._session.get_outputs()]
        return dict(zip(names, values, strict=True))

    def _run_bfloat16(self, feeds: Arrays) -> list[Array]:
        """NumPy has no bfloat16, so tensors of it go in and come out as their bits."""
        import numpy as np
        from onnx import TensorProto
        from onnxruntime import OrtValue

        values = {}
        for name, array in feeds.items():
            if array.dtype.name == "bfloat16":
                bits = np.ascontiguousarray(array).view(np.uint16)
                values[name] = OrtValue.ortvalue_from_numpy_with_onnx_type(
                    bits, TensorProto.BFLOAT16
                )
            else:
                values[name] = OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        outputs = self._session.run_with_ort_values(None, values)
        return [
            _read_bits(output) if "bfloat16" in output.data_type() else output.numpy()
            for output in outputs
        ]


def _read_bits(value: Any) -> Array:
    """Return a tensor of bfloat16 that lies in the CPU's memory; its `numpy()` refuses."""
    import ml_dtypes
    import numpy as np

    shape = tuple(value.shape())
    bits = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    return np.array(bits, np.uint16).reshape(shape).view(ml_dtypes.bfloat16)


def _with_ranges(declared: Signature, source: Signature) -> Signature:
    """Give the file's own axes the ranges that the source's axes of the same names have."""
    axes = {axis.name: axis for spec in source.inputs for axis in spec.axes}

    def ranged(spec: TensorSpec) -> TensorSpec:
        shape: tuple[Dim, ...] = tuple(
            axes.get(dim.name, dim) if isinstance(dim, Axis) else dim for dim in spec.shape
        )
        return msgspec.structs.replace(spec, shape=shape)

    return Signature(
        tuple(ranged(spec) for spec in declared.inputs),
        tuple(ranged(spec) for spec in declared.outputs),
    )


TARGET = _Onnx()
