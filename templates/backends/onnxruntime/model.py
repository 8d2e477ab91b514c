"""Serves `model.onnx` as Triton's ONNX Runtime backend does, from within its Python backend."""

from __future__ import annotations

import os
import sys

# The interpreter that Triton embeds may leave PYTHONPATH out.
sys.path.extend(os.environ.get("PYTHONPATH", "").split(os.pathsep))

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tconv_backend import STRING, Array, Arrays, Failure, Setup, Tensor, answer

ELEMENTS = {
    "TYPE_BOOL": "bool",
    "TYPE_UINT8": "uint8",
    "TYPE_UINT16": "uint16",
    "TYPE_UINT32": "uint32",
    "TYPE_UINT64": "uint64",
    "TYPE_INT8": "int8",
    "TYPE_INT16": "int16",
    "TYPE_INT32": "int32",
    "TYPE_INT64": "int64",
    "TYPE_BF16": "bfloat16",
    "TYPE_FP16": "float16",
    "TYPE_FP32": "float",
    "TYPE_FP64": "double",
    STRING: "string",
}
BFLOAT16 = "TYPE_BF16"
BFLOAT16_IN_ONNX = 16
"""TensorProto.BFLOAT16 of onnx.proto."""


class TritonPythonModel:
    """One instance of a model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model and hold it against its configuration."""
        self.setup = Setup(args)
        self.session = _open_session(self.setup)
        _check_inputs(self.setup, self.session)
        _check_outputs(self.setup, self.session)
        self.dtypes = {tensor.name: tensor.dtype for tensor in self.setup.inputs}
        self.output_dims = {tensor.name: tensor.dims for tensor in self.setup.outputs}
        self.scalars = {name for name, node in _inputs_of(self.session).items() if not node.shape}
        used = (*self.setup.inputs, *self.setup.outputs)
        self.in_bits = {tensor.name for tensor in used if tensor.dtype == BFLOAT16}
        self.kept: list[Any] = []
        _check_bfloat16(self.setup, bool(self.in_bits))

    def execute(self, requests: Sequence[Any]) -> Any:
        """Return a response for each request."""
        self.kept.clear()
        return answer(requests, self.setup.max_batch_size > 0, self._read, self._run, self._write)

    def _read(self, tensor: Any) -> Array:
        name = tensor.name()
        if name in self.in_bits:
            return _read_bits(tensor)
        array: Array = tensor.as_numpy()
        return _decode(name, array) if self.dtypes[name] == STRING else array

    def _run(self, feeds: Arrays) -> Arrays:
        feeds = {
            name: array.reshape(()) if name in self.scalars else array
            for name, array in feeds.items()
        }
        names = list(self.output_dims)
        if self.in_bits:
            results = _run_in_bits(self.session, names, feeds, self.in_bits)
        else:
            results = self.session.run(names, feeds)
        # A scalar has the shape that the configuration gives it.
        return {
            name: array if array.shape else array.reshape(self.output_dims[name])
            for name, array in zip(names, results, strict=True)
        }

    def _write(self, name: str, array: Array) -> Any:
        if name in self.in_bits:
            value = _to_value(array)
            self.kept += [value, array]  # neither owns the memory, and Triton reads it later
            return pb_utils.Tensor.from_dlpack(name, value)
        return pb_utils.Tensor(name, array)


def _open_session(setup: Setup) -> Any:
    import onnxruntime

    path = setup.find_file("model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setup.threads("intra_op_thread_count")
    options.inter_op_num_threads = int(setup.parameter("inter_op_thread_count", "0"))
    providers: list[Any] = ["CPUExecutionProvider"]
    if setup.kind == "GPU":
        if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise setup.refusal("KIND_GPU needs onnxruntime-gpu, which is not installed")
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": setup.device}))
    try:
        session = onnxruntime.InferenceSession(path, options, providers)
    except Exception as error:  # its many classes share no base
        raise setup.refusal(f"onnx runtime error: {error}") from None
    if len(session.get_providers()) < len(providers):
        raise setup.refusal(f"KIND_GPU: onnxruntime cannot use GPU {setup.device}")
    return session


def _inputs_of(session: Any) -> dict[str, Any]:
    return {node.name: node for node in session.get_overridable_initializers()} | {
        node.name: node for node in session.get_inputs()
    }


def _check_inputs(setup: Setup, session: Any) -> None:
    graph = _inputs_of(session)
    required = [tensor for tensor in setup.inputs if not tensor.optional]
    if len(required) != len(session.get_inputs()):
        given = ", ".join(node.name for node in session.get_inputs())
        raise setup.refusal(
            f"configuration expects {len(required)} inputs, "
            f"model provides {len(session.get_inputs())}: {given}"
        )
    for tensor in setup.inputs:
        if tensor.optional and setup.max_batch_size:
            raise setup.refusal(
                f"optional input '{tensor.name}' is not supported for models that support batching"
            )
        _check(setup, tensor, graph, "input")


def _check_outputs(setup: Setup, session: Any) -> None:
    graph = {node.name: node for node in session.get_outputs()}
    for tensor in setup.outputs:
        _check(setup, tensor, graph, "output")


def _check(setup: Setup, tensor: Tensor, graph: dict[str, Any], kind: str) -> None:
    if tensor.name not in graph:
        raise setup.refusal(
            f"unexpected inference {kind} '{tensor.name}', "
            f"allowed {kind}s are: {', '.join(sorted(graph))}"
        )
    node = graph[tensor.name]
    if node.type != f"tensor({ELEMENTS.get(tensor.dtype)})":
        raise setup.refusal(
            f"configuration expects datatype {tensor.dtype} for {kind} '{tensor.name}', "
            f"model provides {_name_type(node.type)}"
        )
    # Triton gets -1 from ONNX Runtime for every axis that has no number.
    shape = [dim if isinstance(dim, int) else -1 for dim in node.shape]
    if shape or setup.max_batch_size:
        _check_dims(setup, tensor, shape, is_exact=kind == "output")
    elif any(dim != 1 for dim in tensor.dims):
        raise setup.refusal(
            f"scalar tensor '{tensor.name}', should only provide 1 in the model configuration; "
            f"it provides {_show(tensor.dims)}"
        )


def _check_dims(setup: Setup, tensor: Tensor, shape: list[int], is_exact: bool) -> None:
    where = f"model '{setup.model}', tensor '{tensor.name}'"
    if setup.max_batch_size and shape[:1] != [-1]:
        raise pb_utils.TritonModelException(
            f"{where}: for the model to support batching the shape should have at least 1 "
            "dimension and the first dimension must be -1; but shape expected by the model is "
            f"{_show(shape)}"
        )
    dims = [-1, *tensor.dims] if setup.max_batch_size else tensor.dims
    fits = len(shape) == len(dims) and all(
        own == asked or (own == -1 and not is_exact) for own, asked in zip(shape, dims, strict=True)
    )
    if not fits:
        batch = " with the batch dimension" if setup.max_batch_size else ""
        raise pb_utils.TritonModelException(
            f"{where}: the model expects {len(shape)} dimensions (shape {_show(shape)}) but the "
            f"model configuration specifies {len(dims)} dimensions{batch} (shape {_show(dims)})"
        )


def _check_bfloat16(setup: Setup, is_used: bool) -> None:
    import onnxruntime

    if is_used and not hasattr(onnxruntime.OrtValue, "from_dlpack"):
        raise setup.refusal(f"{BFLOAT16} needs a newer onnxruntime than {onnxruntime.__version__}")


def _show(shape: list[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _name_type(onnx_type: str) -> str:
    for name, element in ELEMENTS.items():
        if onnx_type == f"tensor({element})":
            return str(name)
    return onnx_type


def _decode(name: str, array: Array) -> Array:
    try:
        texts = [item.decode() for item in array.reshape(-1)]
    except UnicodeDecodeError as error:
        raise Failure(f"input '{name}' is not UTF-8: {error}") from error
    decoded = np.empty(array.shape, object)
    decoded.reshape(-1)[:] = texts
    return decoded


# NumPy has no bfloat16: such tensors travel as their bits, in uint16.


def _read_bits(tensor: Any) -> Array:
    from onnxruntime import OrtValue

    return _bits_of(OrtValue.from_dlpack(tensor))


def _bits_of(value: Any) -> Array:
    # A copy: what a view looks into ends with `value`.
    buffer = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(buffer, np.uint16).reshape(value.shape())


def _to_value(bits: Array) -> Any:
    from onnxruntime import OrtValue

    return OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16_IN_ONNX)


def _run_in_bits(session: Any, names: list[str], feeds: Arrays, in_bits: set[str]) -> list[Array]:
    from onnxruntime import OrtValue

    values = {
        name: _to_value(array) if name in in_bits else OrtValue.ortvalue_from_numpy(array)
        for name, array in feeds.items()
    }
    results = session.run_with_ort_values(names, values)
    return [
        _bits_of(value) if name in in_bits else value.numpy()
        for name, value in zip(names, results, strict=True)
    ]
