"""Serves `model.pt` as Triton's PyTorch backend does, from within its Python backend."""

from __future__ import annotations

import os
import sys

# The interpreter that Triton embeds may leave PYTHONPATH out.
sys.path.extend(os.environ.get("PYTHONPATH", "").split(os.pathsep))

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from tconv_backend import STRING, Array, Arrays, Failure, Setup, Tensor, answer

DTYPES = {
    "TYPE_BOOL": "bool",
    "TYPE_UINT8": "uint8",
    "TYPE_INT8": "int8",
    "TYPE_INT16": "int16",
    "TYPE_INT32": "int32",
    "TYPE_INT64": "int64",
    "TYPE_FP16": "float16",
    "TYPE_FP32": "float32",
    "TYPE_FP64": "float64",
}
"""What Triton's backend knows; no bfloat16, and no unsigned integers but uint8."""


class TritonPythonModel:
    """One instance of a model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model and hold it against its configuration."""
        self.setup = Setup(args)
        _check_dtypes(self.setup, self.setup.inputs, "input")
        _check_dtypes(self.setup, self.setup.outputs, "output")
        import torch

        torch.set_num_threads(self.setup.threads("INTRA_OP_THREAD_COUNT"))
        self.device = _find_device(self.setup, torch)
        self.module = _load(self.setup, torch, self.device)
        arguments, self.takes_dict = _read_arguments(self.setup, self.module)
        self.input_index = _index_inputs(self.setup, arguments)
        self.output_index = _index_by_name(self.setup.outputs) or _in_order(self.setup.outputs)
        self.strings = {tensor.name for tensor in self.setup.inputs if tensor.dtype == STRING}

    def execute(self, requests: Sequence[Any]) -> Any:
        """Return a response for each request."""
        return answer(
            requests, self.setup.max_batch_size > 0, self._read, self._run, pb_utils.Tensor
        )

    def _read(self, tensor: Any) -> Array:
        array: Array = tensor.as_numpy()
        if tensor.name() not in self.strings:
            return array
        try:
            return np.array([item.decode() for item in array], object)
        except UnicodeDecodeError as error:
            raise Failure(f"input '{tensor.name()}' is not UTF-8: {error}") from error

    def _run(self, feeds: Arrays) -> Arrays:
        import torch

        values = {name: self._to_torch(torch, array) for name, array in feeds.items()}
        with torch.inference_mode(self.setup.parameter("INFERENCE_MODE", "true") == "true"):
            try:
                with torch.no_grad():
                    result = self.module(*self._arrange(values))
            except Exception as error:  # TorchScript raises what the model raises
                raise Failure(f"PyTorch execute failure: {error}") from error
        return self._read_outputs(_list_outputs(torch, result))

    def _to_torch(self, torch: Any, array: Array) -> Any:
        if array.dtype == object:
            return list(array)
        writeable = array if array.flags.writeable else array.copy()
        return torch.from_numpy(writeable).to(self.device)

    def _arrange(self, values: dict[str, Any]) -> list[Any]:
        if self.takes_dict:
            return [values]
        return [values[name] for name in sorted(values, key=self.input_index.__getitem__)]

    def _read_outputs(self, results: list[Any]) -> Arrays:
        for name, index in self.output_index.items():
            if index >= len(results):
                raise Failure(
                    f"The output {name} in the model configuration refers to an output index which "
                    f"doesn't exist. This model has {len(results)} outputs"
                )
        return {
            tensor.name: _to_array(tensor, results[self.output_index[tensor.name]])
            for tensor in self.setup.outputs
        }


def _find_device(setup: Setup, torch: Any) -> Any:
    if setup.kind != "GPU":
        return torch.device("cpu")
    if setup.device >= torch.cuda.device_count():
        raise setup.refusal(f"KIND_GPU: torch {torch.__version__} sees no GPU {setup.device}")
    return torch.device("cuda", setup.device)


def _load(setup: Setup, torch: Any, device: Any) -> Any:
    path = setup.find_file("model.pt")
    try:
        # Neither eval() nor freeze(): Triton's backend takes the file as it is.
        return torch.jit.load(path, map_location=None if setup.kind == "MODEL" else device)
    except Exception as error:
        raise pb_utils.TritonModelException(
            f"failed to load model '{setup.model}': {error}"
        ) from None


def _read_arguments(setup: Setup, module: Any) -> tuple[list[str], bool]:
    """Return the names of forward's arguments, and whether it takes one dictionary."""
    arguments = module.forward.schema.arguments
    if arguments and arguments[0].type.kind() == "ClassType":
        arguments = arguments[1:]
    kinds = [argument.type.kind() for argument in arguments]
    if kinds == ["DictType"]:
        return [], True
    for argument, kind in zip(arguments, kinds, strict=True):
        if kind not in ("TensorType", "ListType"):
            raise setup.refusal(
                f"an input of type '{argument.type}' was detected in the model: '{argument.name}'. "
                "Only a single input of type Dict(str, Tensor) or input(s) of type Tensor are "
                "supported"
            )
    if len(arguments) != len(setup.inputs):
        given = ", ".join(argument.name for argument in arguments)
        raise setup.refusal(
            f"configuration expects {len(setup.inputs)} inputs, "
            f"model provides {len(arguments)}: {given}"
        )
    return [argument.name for argument in arguments], False


def _check_dtypes(setup: Setup, tensors: list[Tensor], kind: str) -> None:
    if not tensors:
        raise setup.refusal(f"model configuration must contain at least one {kind}")
    for tensor in tensors:
        if tensor.dtype not in DTYPES and tensor.dtype != STRING:
            raise setup.refusal(f"unsupported datatype {tensor.dtype} for {kind} '{tensor.name}'")
        if tensor.dtype == STRING and len(tensor.dims) + (setup.max_batch_size > 0) > 1:
            raise setup.refusal(
                f"Triton only supports 1 dimensional List of String as {kind} for '{tensor.name}'"
            )


def _index_inputs(setup: Setup, arguments: list[str]) -> dict[str, int]:
    """Return each input's place among forward's arguments, by the backend's three rules."""
    names = [tensor.name for tensor in setup.inputs]
    if all(name in arguments for name in names):
        return {name: arguments.index(name) for name in names}
    index = _index_by_name(setup.inputs) or _in_order(setup.inputs)
    # Triton's backend does not check this, and reads whatever lies there.
    if arguments and sorted(index.values()) != list(range(len(arguments))):
        raise setup.refusal(
            f"the inputs {', '.join(names)} do not stand for one each of the model's "
            f"{len(arguments)} arguments"
        )
    return index


def _index_by_name(tensors: list[Tensor]) -> dict[str, int] | None:
    """Return the numbers after `__`, or None where a name has none."""
    index = {}
    for tensor in tensors:
        _, mark, number = tensor.name.partition("__")
        if not mark or not (number.isdigit() or not number):
            return None
        index[tensor.name] = int(number or 0)
    return index


def _in_order(tensors: list[Tensor]) -> dict[str, int]:
    return {tensor.name: place for place, tensor in enumerate(tensors)}


def _list_outputs(torch: Any, result: Any) -> list[Any]:
    results = list(result) if isinstance(result, tuple) else [result]
    for place, value in enumerate(results):
        is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not (torch.is_tensor(value) or is_texts):
            raise Failure(
                f"output at index {place} must be of type Tensor or List[str], not "
                f"{type(value).__name__}. The model may return one of these or a tuple of them, "
                "but no List / Dictionary of Tensors and no Scalar"
            )
    return results


def _to_array(tensor: Tensor, value: Any) -> Array:
    if isinstance(value, list):
        if tensor.dtype != STRING:
            raise _wrong_dtype(tensor, STRING)
        return np.array(value, object)
    dtype = str(value.dtype).removeprefix("torch.")
    if DTYPES.get(tensor.dtype) != dtype:
        known = {own: name for name, own in DTYPES.items()}
        raise _wrong_dtype(tensor, known.get(dtype, "TYPE_INVALID"))
    if not value.shape:
        raise Failure(f"output '{tensor.name}' is a scalar which is not supported.")
    array: Array = value.cpu().numpy()
    return array


def _wrong_dtype(tensor: Tensor, provided: str) -> Failure:
    return Failure(
        f"configuration expects datatype {tensor.dtype} for output '{tensor.name}', "
        f"model provides {provided}"
    )
