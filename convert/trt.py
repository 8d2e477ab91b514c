"""TensorRT: an engine where there is a GPU, a preflight where there is none.

An engine is made from the finished ONNX artifact, strongly typed: its precision is the graph's.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..artifact import Artifact, list_files
from ..errors import TconvError, Unavailable
from ..extras import version_of
from ..report import Prepared
from ..spec import Axis, Signature, TensorSpec
from .base import Array, Arrays, Availability, ConvertOptions, Preflight, SourceModel
from .gpu import count_gpus, describe_gpu
from .trt_engine import CAPABILITY, Graph, describe, load_tensorrt
from .trt_preflight import (
    ShapeRange,
    check_dtypes,
    check_inputs,
    check_outputs,
    declared,
    shape_ranges,
)

ENGINE, PREFLIGHT = "engine", "preflight"

_NO_GPU = "There is no NVIDIA GPU here"
_NO_PACKAGE = "The package 'tensorrt' is not installed"
_ELSEWHERE = "Run the same command on a machine with a GPU and tconv[gpu]."


class TensorRT:
    """The target `trt`."""

    name = "trt"
    extra = "trt"
    filename = "model.plan"
    platform = "tensorrt_plan"
    base = "onnx"
    preload: tuple[str, ...] = ()

    def recipes(self, options: ConvertOptions, framework: str | None = None) -> tuple[str, ...]:
        """Return how to convert on this machine."""
        return (PREFLIGHT,) if _obstacle() else (ENGINE,)

    def availability(self) -> Availability:
        """Say what stands between this machine and an engine."""
        obstacle = _obstacle()
        if not obstacle:
            return Availability()
        if find_spec("tensorrt_rtx") is None or find_spec("polygraphy") is None:
            install = "Run: pip install 'tconv[gpu]' or, without a GPU, 'tconv[trt]'"
            return Availability(f"{obstacle}.", f"{obstacle}.", install)
        build = f"{obstacle}: the graph is checked, and no engine is kept."
        return Availability(build, f"{obstacle}.", _remedy())

    def convert(
        self,
        model: SourceModel | Path,
        prepared: Prepared,
        recipe: str,
        folder: Path,
        options: ConvertOptions,
    ) -> Artifact | Preflight:
        """Build an engine from the ONNX artifact in the folder `model`; keep it if it can run.

        Raises:
            ConversionError: TensorRT refuses a dtype, an operator, or the ranges of the axes.
            Unavailable: a preflight cannot judge this graph.
            MissingExtra: TensorRT or Polygraphy is not installed.
        """
        assert isinstance(model, Path)
        rtx = recipe == PREFLIGHT
        check_dtypes(prepared.signature)
        ranges = shape_ranges(prepared)
        graph = Graph(load_tensorrt(rtx=rtx), model / "model.onnx")
        network = graph.signature()
        notes = check_inputs(network, prepared.signature)
        start = time.monotonic()
        engine = graph.build(ranges)
        seconds = time.monotonic() - start
        # Only now: where a batch is baked in, the builder names the layer.
        check_outputs(network, prepared.signature)
        if rtx:
            checked = (*_checked(graph, network, ranges, engine, seconds), *notes)
            return Preflight(
                checked, f"{_obstacle() or _NO_GPU}, so no engine was kept.", _remedy()
            )
        _write(engine, folder / self.filename)
        return Artifact(
            target=self.name,
            recipe=recipe,
            files=list_files(folder),
            signature=declared(network, prepared.signature),
            versions={
                "tensorrt": graph.trt.__version__,
                **version_of("polygraphy"),
                **describe_gpu(),
            },
            notes=notes,
        )

    def open(self, folder: Path, artifact: Artifact, device: str, threads: int = 0) -> EngineRunner:
        """Read the engine back from disk, ready to run.

        Raises:
            Unavailable: there is no GPU, or another TensorRT or GPU than the engine was built for.
            MissingExtra: TensorRT is not installed.
        """
        if device == "cpu":
            raise Unavailable("A TensorRT engine does not run on a CPU.", remedy=_ELSEWHERE)
        return EngineRunner(_read(folder / self.filename, artifact.versions), artifact.signature)

    def inspect(self, path: Path) -> Signature:
        """Return what an engine declares; TensorRT keeps the ranges of axes, not their names.

        Raises:
            Unavailable: an engine can be read only where it can run.
            MissingExtra: TensorRT is not installed.
        """
        engine = _read(path, {})
        tensors = [engine.get_tensor_name(index) for index in range(engine.num_io_tensors)]
        inputs = [name for name in tensors if engine.get_tensor_mode(name).name == "INPUT"]
        return Signature(
            tuple(_inspect(engine, name, is_input=True) for name in inputs),
            tuple(_inspect(engine, name, is_input=False) for name in tensors if name not in inputs),
        )


class EngineRunner:
    """An engine on the GPU. It is let go when the process ends."""

    device = "cuda"

    def __init__(self, engine: Any, signature: Signature) -> None:
        from polygraphy.backend.trt import TrtRunner

        self._signature = signature
        self._runner = TrtRunner(engine)
        self._runner.activate()

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        """Return the outputs.

        Raises:
            TconvError: the engine refuses the inputs, as it does outside its ranges.
        """
        from polygraphy.exception import PolygraphyException

        ready = {name: np.ascontiguousarray(feeds[name]) for name in self._signature.input_names}
        try:
            outputs = self._runner.infer(ready)  # checks dtypes and ranks too
        except PolygraphyException as error:
            raise TconvError(
                f"The engine refuses its inputs: {error}",
                remedy="Keep to the ranges it was built for, or build it with wider ones.",
            ) from error
        # The runner writes its next outputs into the same memory.
        return {name: np.array(outputs[name]) for name in self._signature.output_names}


def _obstacle() -> str:
    """Say why no engine can be built here; empty if one can."""
    if not count_gpus():
        return _NO_GPU
    return "" if find_spec("tensorrt") is not None else _NO_PACKAGE


def _remedy() -> str:
    return "Run: pip install 'tconv[gpu]'" if _obstacle() == _NO_PACKAGE else _ELSEWHERE


def _checked(
    graph: Graph, network: Signature, ranges: dict[str, ShapeRange], engine: Any, seconds: float
) -> tuple[str, ...]:
    shapes = (f"{spec.name} {ranges[spec.name]}" for spec in network.inputs)
    major, minor = CAPABILITY
    return (
        f"Parsed {graph.layers} layers with TensorRT-RTX {graph.trt.__version__}.",
        f"The graph accepts the ranges {'; '.join(shapes)}.",
        f"Built an engine of {engine.nbytes / 1e6:.1f} MB for compute capability "
        f"{major}.{minor} in {seconds:.1f} s, and threw it away.",
    )


def _write(engine: Any, path: Path) -> None:
    scratch = path.with_name(f"{path.name}.part")
    with scratch.open("wb") as stream:
        stream.write(engine)
    scratch.replace(path)


def _read(path: Path, versions: dict[str, str]) -> Any:
    if obstacle := _obstacle():
        raise Unavailable(f"{obstacle}, so the engine cannot be read.", remedy=_remedy())
    trt = load_tensorrt(rtx=False)
    from polygraphy.backend.trt import EngineFromPath
    from polygraphy.exception import PolygraphyException

    try:
        return EngineFromPath(str(path))()
    except PolygraphyException as error:
        here = {"tensorrt": trt.__version__, **describe_gpu()}
        differences = [
            f"{key} {versions[key]} there, {here.get(key, 'none')} here"
            for key in ("tensorrt", "gpu", "compute_capability")
            if key in versions and versions[key] != here.get(key)
        ]
        raise Unavailable(
            f"TensorRT cannot read {path.name} here: {'; '.join(differences) or error}.",
            remedy="Build the engine on the machine, and with the TensorRT, that will run it.",
        ) from error


def _inspect(engine: Any, name: str, *, is_input: bool) -> TensorSpec:
    spec = describe(name, engine.get_tensor_dtype(name), engine.get_tensor_shape(name))
    if not is_input:
        return spec
    low, _, high = engine.get_tensor_profile_shape(name, 0)
    shape = tuple(
        Axis(dim.name, low[index], high[index]) if isinstance(dim, Axis) else dim
        for index, dim in enumerate(spec.shape)
    )
    return msgspec.structs.replace(spec, shape=shape)


TARGET = TensorRT()
