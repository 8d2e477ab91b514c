"""What the stand-in backends share: a model's configuration, and running requests as batches.

They answer for Triton's own backends where a server has none of them, and refuse what those refuse.
Their rules are restated from https://github.com/triton-inference-server, `onnxruntime_backend` and
`pytorch_backend`; the texts of the errors are kept close to theirs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]

STRING = "TYPE_STRING"


class Tensor:
    """One input or output of the configuration; `dims` without the batch, after `reshape`."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.name = config["name"]
        self.dtype = config["data_type"]
        self.optional = config.get("optional", False)
        # The core reshapes requests before a backend sees them, and responses after.
        shape = config["reshape"]["shape"] if "reshape" in config else config["dims"]
        self.dims = [int(dim) for dim in shape]


class Setup:
    """What a backend is told when one instance of a model is loaded."""

    def __init__(self, args: dict[str, str]) -> None:
        config = json.loads(args["model_config"])
        self.model = args["model_name"]
        self.kind = args["model_instance_kind"]
        self.device = int(args["model_instance_device_id"])
        self.folder = os.path.join(args["model_repository"], args["model_version"])
        self.filename = config.get("default_model_filename")
        self.max_batch_size = config["max_batch_size"]
        self.inputs = [Tensor(entry) for entry in config["input"]]
        self.outputs = [Tensor(entry) for entry in config["output"]]
        self._parameters = config.get("parameters", {})
        self._groups = config["instance_group"]
        self._refuse_what_is_not_built(config)

    def _refuse_what_is_not_built(self, config: dict[str, Any]) -> None:
        decoupled = config.get("model_transaction_policy", {}).get("decoupled")
        for feature, used in {
            "sequence_batching": "sequence_batching" in config,
            "batch_input": config.get("batch_input"),
            "batch_output": config.get("batch_output"),
            "allow_ragged_batch": any(e.get("allow_ragged_batch") for e in config["input"]),
            "a decoupled model_transaction_policy": decoupled,
        }.items():
            if used:
                raise self.refusal(f"{feature} is not supported by this stand-in backend")

    def refusal(self, problem: str) -> Any:
        """Return an error that stops the load, in the words of Triton's backends."""
        return pb_utils.TritonModelException(f"unable to load model '{self.model}', {problem}")

    def parameter(self, name: str, default: str) -> str:
        """Return a parameter of the configuration as text."""
        return str(self._parameters.get(name, {}).get("string_value", default))

    def find_file(self, default: str) -> str:
        """Return the path of the model's file, which is called `default` unless configured."""
        name = self.filename or default
        path = os.path.join(self.folder, name)
        if os.path.isdir(path):
            path = os.path.join(path, default)
        if not os.path.isfile(path):
            raise pb_utils.TritonModelException(
                f"unable to find '{path}' for model instance '{self.model}'"
            )
        return path

    def threads(self, parameter: str) -> int:
        """Return how many threads this instance may use: its share of the cores by default."""
        asked = int(self.parameter(parameter, "0"))
        instances = sum(
            group["count"] * max(1, len(group.get("gpus", ()))) for group in self._groups
        )
        return asked or max(1, len(os.sched_getaffinity(0)) // instances)


class Failure(Exception):
    """An error that a request is answered with."""


def answer(
    requests: Sequence[Any],
    is_batched: bool,
    read: Callable[[Any], Array],
    run: Callable[[Arrays], Arrays],
    write: Callable[[str, Array], Any],
) -> list[Any]:
    """Return a response for each request.

    `read` turns a request's tensor into an array, `run` maps arrays of inputs to arrays of outputs,
    and `write` turns an output's name and array into a tensor. Requests become one batch along the
    first axis, as in Triton's backends: one that makes it fail fails all that are in it.
    """
    responses: list[Any] = [None] * len(requests)
    batches: dict[Any, list[tuple[int, Arrays]]] = {}
    for index, request in enumerate(requests):
        try:
            arrays = {tensor.name(): read(tensor) for tensor in request.inputs()}
        except Exception as error:  # whatever a runtime raises: the server must go on
            responses[index] = _failed(error)
            continue
        # The core only batches requests of one shape; others would not fit together anyway.
        key = _describe_rows(arrays) if is_batched else index
        batches.setdefault(key, []).append((index, arrays))
    for batch in batches.values():
        indices = [index for index, _ in batch]
        feeds = [arrays for _, arrays in batch]
        try:
            outputs = _run_batch(feeds, run) if is_batched else [run(feeds[0])]
            for index, results in zip(indices, outputs, strict=True):
                responses[index] = _respond(requests[index], results, write)
        except Exception as error:
            for index in indices:
                responses[index] = _failed(error)
    return responses


def _describe_rows(feeds: Arrays) -> tuple[Any, ...]:
    return tuple((name, feeds[name].dtype.str, feeds[name].shape[1:]) for name in sorted(feeds))


def _run_batch(feeds: list[Arrays], run: Callable[[Arrays], Arrays]) -> list[Arrays]:
    sizes = [len(next(iter(one.values()))) for one in feeds]
    if len(feeds) == 1:
        outputs = run(feeds[0])
    else:
        outputs = run({name: np.concatenate([one[name] for one in feeds]) for name in feeds[0]})
    for name, array in outputs.items():
        if len(array) != sum(sizes):
            raise Failure(f"output '{name}' has {len(array)} rows for a batch of {sum(sizes)}")
    edges = np.cumsum(sizes)[:-1]
    parts = {name: np.split(array, edges) for name, array in outputs.items()}
    return [
        {name: rows[position] for name, rows in parts.items()} for position in range(len(feeds))
    ]


def _respond(request: Any, arrays: Arrays, write: Callable[[str, Array], Any]) -> Any:
    wanted = request.requested_output_names()
    return pb_utils.InferenceResponse(
        [write(name, np.ascontiguousarray(arrays[name])) for name in arrays if name in wanted]
    )


def _failed(error: Exception) -> Any:
    return pb_utils.InferenceResponse([], error=pb_utils.TritonError(str(error)))
