"""From an ONNX file to the bytes of a TensorRT engine, with `tensorrt` or with `tensorrt_rtx`.

The two packages have one API and Polygraphy drives both, so a preflight on a machine without GPU
runs the code that builds an engine on a machine with one.
"""

from __future__ import annotations

import glob
import os
import re
import sys
from pathlib import Path
from typing import Any

from ..errors import ConversionError
from ..extras import needs
from ..spec import BATCH, Axis, Dim, Signature, TensorSpec
from .trt_messages import explain_build, explain_parse
from .trt_preflight import DTYPES, ShapeRange

CAPABILITY = (8, 9)
"""What a preflight builds for: the L4 and the RTX 40 series, in the middle of what RTX knows."""

_SWITCH = "POLYGRAPHY_USE_TENSORRT_RTX"


def load_tensorrt(*, rtx: bool) -> Any:
    """Import TensorRT, and Polygraphy so that it uses the same package.

    Raises:
        MissingExtra: one of them is not installed.
    """
    if "polygraphy.config" not in sys.modules:  # it reads the variable once, at import
        os.environ[_SWITCH] = str(int(rtx))
    with needs("trt" if rtx else "gpu"):
        import polygraphy.config

        if rtx:
            import tensorrt_rtx as trt
        else:
            import tensorrt as trt
    if polygraphy.config.USE_TENSORRT_RTX is not rtx:
        message = f"polygraphy was imported before {_SWITCH} was set to {int(rtx)}"
        raise RuntimeError(message)
    return trt


class Graph:
    """A parsed network, with the builder it belongs to and the parser that holds its weights."""

    def __init__(self, trt: Any, path: Path) -> None:
        """Parse the file; weights in files beside it are found.

        Raises:
            ConversionError: TensorRT cannot take an operator, or the file as a whole.
            Unavailable: TensorRT-RTX lacks an operator that TensorRT may have.
        """
        from polygraphy.backend.trt import create_network, get_trt_logger

        # Not `NetworkFromOnnxPath`: it drops the parser, and with it the name of the operator.
        self.trt = trt
        self.is_rtx = trt.__name__ == "tensorrt_rtx"
        self.builder, self.network = create_network(strongly_typed=True)
        trt.init_libnvinfer_plugins(get_trt_logger(), "")
        self.parser = trt.OnnxParser(self.network, get_trt_logger())
        understood = self.parser.parse_from_file(str(path))
        errors = [self.parser.get_error(index) for index in range(self.parser.num_errors)]
        # A file that holds no protobuf at all is parsed "successfully" into nothing.
        if errors or not understood or self.network.num_outputs == 0:
            raise explain_parse(path.name, errors, is_rtx=self.is_rtx)

    @property
    def layers(self) -> int:
        """How many layers the network has."""
        return int(self.network.num_layers)

    def signature(self) -> Signature:
        """Return the inputs and outputs as the network has them.

        Raises:
            ConversionError: the values of an input decide a shape.
        """
        network = self.network
        inputs = [network.get_input(index) for index in range(network.num_inputs)]
        for tensor in inputs:
            if tensor.is_shape_tensor:
                raise ConversionError(
                    f"The values of the input {tensor.name!r} decide the shape of a tensor, "
                    "and TensorRT would need to know their range.",
                    remedy="Make it a constant of the model, or leave out the trt targets.",
                )
        outputs = [network.get_output(index) for index in range(network.num_outputs)]
        return Signature(tuple(map(_describe, inputs)), tuple(map(_describe, outputs)))

    def build(self, ranges: dict[str, ShapeRange]) -> Any:
        """Return an engine as a buffer.

        Raises:
            ConversionError: the graph contradicts `ranges`, or has no implementation.
            Unavailable: this graph cannot be built without a GPU.
        """
        from polygraphy.backend.trt import CreateConfig, EngineBytesFromNetwork, Profile
        from polygraphy.exception import PolygraphyException

        profile = Profile()
        for name in self.signature().input_names:
            shapes = ranges[name]
            # Polygraphy takes the names for patterns.
            profile.add(glob.escape(name), shapes.min, shapes.opt, shapes.max)
        if self.is_rtx:
            from polygraphy.backend.tensorrt_rtx import CreateConfigRTX

            config = CreateConfigRTX(profiles=[profile], compute_capabilities=[CAPABILITY])
        else:
            # TF32 is on by default and keeps 10 bits of the mantissa: not float32.
            config = CreateConfig(profiles=[profile], tf32=False)
        messages: list[str] = []
        self.builder.error_recorder = _recorder(self.trt, messages)
        try:
            return EngineBytesFromNetwork((self.builder, self.network), config)()
        except PolygraphyException as error:
            raise explain_build(messages or [str(error)], is_rtx=self.is_rtx) from error
        finally:
            self.builder.error_recorder = None


def _describe(tensor: Any) -> TensorSpec:
    return describe(tensor.name, tensor.dtype, tensor.shape)


def describe(name: str, dtype: Any, shape: Any) -> TensorSpec:
    """Return TensorRT's description of a tensor in tconv's words; it names no axes."""
    return TensorSpec(name, DTYPES.get(dtype.name, dtype.name.lower()), _dims(name, tuple(shape)))


def _dims(name: str, shape: tuple[int, ...]) -> tuple[Dim, ...]:
    stem = re.sub(r"\W", "_", name)
    dims = [size if size >= 0 else Axis(f"{stem}_{index}") for index, size in enumerate(shape)]
    if dims and isinstance(dims[0], Axis):
        dims[0] = Axis(BATCH)
    return tuple(dims)


def _recorder(trt: Any, messages: list[str]) -> Any:
    from polygraphy.logger import G_LOGGER

    class Recorder(trt.IErrorRecorder):  # type: ignore[misc]
        """Keeps what the builder would only print, and prints it."""

        def report_error(self, _code: Any, message: str) -> bool:
            messages.append(message)
            G_LOGGER.error(message)
            return False

        def num_errors(self) -> int:
            return len(messages)

        def get_error_code(self, _index: int) -> Any:
            return trt.ErrorCodeTRT.UNSPECIFIED_ERROR

        def get_error_desc(self, index: int) -> str:
            return messages[index]

        def has_overflowed(self) -> bool:
            return False

        def clear(self) -> None:
            messages.clear()

    return Recorder()
