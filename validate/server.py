"""Runs a model on a Triton server, so that it can be judged like an artifact."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..artifact import Artifact
from ..convert.base import Array, Arrays
from ..errors import TconvError, Unavailable
from ..spec import TensorSpec
from .samples import numpy_dtype

Protocol = Literal["grpc", "http"]


class TritonRunner:
    """One version of a model on a server; a `convert.base.Runner`. Use it as a context manager.

    Args:
        url: the server's address for the protocol, as tritonclient wants it: host and port.
        model: the model's name on the server.
        version: its version.
        artifact: what is served: the tensors, and what they are called on the wire.
        batched: whether the server forms batches of the model, which hides the batch from `dims`.
        protocol: how the server is asked.
        timeout: seconds that an answer may take.
    """

    def __init__(
        self,
        url: str,
        model: str,
        version: int,
        artifact: Artifact,
        *,
        batched: bool,
        protocol: Protocol = "grpc",
        timeout: float = 60.0,
    ) -> None:
        self.device = f"{url} ({'gRPC' if protocol == 'grpc' else 'HTTP'})"
        self._model, self._version = model, str(version)
        self._artifact, self._batched, self._timeout = artifact, batched, timeout
        self._protocol = protocol
        self._api, self._client = _connect(url, protocol, timeout)

    def __enter__(self) -> TritonRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        """Return the server's outputs, both under the signature's own names.

        What the server refuses is its answer, and is raised as the client has it.

        Raises:
            Unavailable: it cannot be reached, or does not answer in time.
        """
        signature = self._artifact.signature
        inputs = [self._input(spec, feeds[spec.name]) for spec in signature.inputs]
        outputs = [
            self._api.InferRequestedOutput(self._artifact.wire(name))
            for name in signature.output_names
        ]
        try:
            answer = self._infer(inputs, outputs)
        except Exception as error:
            if isinstance(problem := explain(self.device, error), Unavailable):
                raise problem from error
            raise
        found = {spec.name: self._output(spec, answer) for spec in signature.outputs}
        return {name: array for name, array in found.items() if array is not None}

    def _infer(self, inputs: list[Any], outputs: list[Any]) -> Any:
        options = {"client_timeout": self._timeout} if self._protocol == "grpc" else {}
        return self._client.infer(
            self._model, inputs, model_version=self._version, outputs=outputs, **options
        )

    def _input(self, spec: TensorSpec, array: Array) -> Any:
        from tritonclient.utils import np_to_triton_dtype

        if self._needs_dimension(spec):
            array = array[..., np.newaxis]
        wire = self._artifact.wire(spec.name)
        tensor = self._api.InferInput(wire, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(np.ascontiguousarray(array).reshape(array.shape))
        return tensor

    def _output(self, spec: TensorSpec, answer: Any) -> Array | None:
        array: Array | None = answer.as_numpy(self._artifact.wire(spec.name))
        if array is None:
            return None
        if spec.dtype == "bfloat16":  # older clients give the same values as float32
            array = array.astype(numpy_dtype(spec.dtype))
        if self._needs_dimension(spec) and array.ndim > len(spec.shape) and array.shape[-1] == 1:
            array = array[..., 0]
        return array

    def _needs_dimension(self, spec: TensorSpec) -> bool:
        """Whether the tensor has a last dimension of 1 on the wire alone: see `export.tensors`."""
        return len(spec.shape) == (1 if self._batched else 0)


def _connect(url: str, protocol: Protocol, timeout: float) -> tuple[Any, Any]:
    if protocol == "grpc":
        import tritonclient.grpc as grpc_api

        return grpc_api, grpc_api.InferenceServerClient(url)
    import tritonclient.http as http_api

    client = http_api.InferenceServerClient(
        url, connection_timeout=timeout, network_timeout=timeout
    )
    return http_api, client


def explain(address: str, error: Exception) -> TconvError | None:
    """Return what a client's exception means; None for one that is none of the client's.

    Unavailable where the server cannot be reached or is too slow, otherwise what it answered.
    """
    from tritonclient.utils import InferenceServerException

    if isinstance(error, InferenceServerException):
        status, message = error.status() or "", error.message() or str(error)
    elif isinstance(error, OSError):
        status = "DEADLINE_EXCEEDED" if isinstance(error, TimeoutError) else "UNAVAILABLE"
        message = "failed to connect"
    else:
        return None
    if "DEADLINE_EXCEEDED" in status:
        return Unavailable(
            f"The server at {address} did not answer in time.",
            remedy="Look at the server's log, or give it more time.",
        )
    # A server that is there uses the same status, for what its control mode does not allow.
    if "UNAVAILABLE" in status and "connect" in message:
        return Unavailable(
            f"The server at {address} cannot be reached.",
            remedy="Start it, or name another with --url and --http-url.",
        )
    return TconvError(
        f"The server at {address} answers: {message.strip()}",
        remedy="Look at the server's log.",
    )
