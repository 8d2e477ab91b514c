"""What each of Triton's platforms can serve: dtypes, scalars, and the devices it runs on.

Sources: the backends' own tables, `ModelConfigDataTypeToTorchType` in pytorch_backend's
libtorch_utils.cc and `ModelConfigDataTypeToOnnxDataType` in onnxruntime_backend's
onnxruntime_utils.cc, and for TensorRT the table "Datatypes" in Triton's model_configuration.md.
"""

from __future__ import annotations

import msgspec

from ..errors import ConversionError
from ..spec import DTYPES

TRITON_TYPES = {
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "uint16": "TYPE_UINT16",
    "uint32": "TYPE_UINT32",
    "uint64": "TYPE_UINT64",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
    "string": "TYPE_STRING",
}
"""A name of `spec.DTYPES` as `config.pbtxt` writes it."""


class Platform(msgspec.Struct, frozen=True):
    """One platform. `scalars` says whether a tensor without dimensions can be served unbatched."""

    name: str
    dtypes: frozenset[str]
    devices: tuple[str, ...] = ("cpu", "gpu")
    scalars: bool = False


_PLATFORMS = {
    platform.name: platform
    for platform in (
        # Its ValidateInputs and ValidateOutputs accept dims [1] for what the graph calls a scalar.
        Platform("onnxruntime_onnx", frozenset(DTYPES), scalars=True),
        Platform(
            "pytorch_libtorch",
            frozenset(DTYPES) - {"uint16", "uint32", "uint64", "bfloat16", "string"},
        ),
        Platform(
            "tensorrt_plan",
            frozenset(
                {"bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float32"}
            ),
            devices=("gpu",),
        ),
    )
}


def find_platform(name: str) -> Platform:
    """Return the platform that a target names."""
    return _PLATFORMS[name]


def triton_type(platform: Platform, tensor: str, dtype: str) -> str:
    """Return how `config.pbtxt` writes `dtype`.

    Raises:
        ConversionError: the platform has no such dtype.
    """
    if dtype not in platform.dtypes:
        raise ConversionError(
            f"The tensor {tensor!r} is {dtype}, which Triton's {platform.name} cannot serve.",
            remedy="Cast it inside the model, or choose another target.",
        )
    return TRITON_TYPES[dtype]
