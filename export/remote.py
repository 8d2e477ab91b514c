"""A running Triton server as publishing needs it: look, load, wait. Every call has a deadline."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

from ..errors import TconvError, Unavailable, UsageProblem
from ..validate.server import explain

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig

GRPC_PORT, HTTP_PORT = 8001, 8000
_POLL = 0.1
_QUICK = 10.0
"""Seconds for a call that does no work."""


def grpc_address(url: str) -> str:
    """Return host and port of `host`, `host:port` or `grpc://host:port`.

    Raises:
        UsageProblem: it is the address of something else.
    """
    scheme, separator, rest = url.rpartition("://")
    if separator and scheme != "grpc":
        raise UsageProblem(
            f"{url} is no gRPC address.",
            remedy=f"Give the server's gRPC port, as in --url localhost:{GRPC_PORT}.",
        )
    return _with_port(rest.rstrip("/"), GRPC_PORT)


def http_address(url: str | None, grpc: str) -> str:
    """Return host and port for HTTP; without `url`, of the usual port beside the gRPC address."""
    if url is None:
        return f"{grpc.rpartition(':')[0]}:{HTTP_PORT}"
    return _with_port(url.removeprefix("http://").rstrip("/"), HTTP_PORT)


def _with_port(address: str, port: int) -> str:
    host, separator, last = address.rpartition(":")
    if separator and last.isdecimal() and host:
        return address
    if not address or (separator and not address.endswith("]")):
        raise UsageProblem(
            f"{address!r} is no address of a server.",
            remedy=f"Give a host and a port, like localhost:{port}.",
        )
    return f"{address}:{port}"


class RemoteTriton:
    """The control side of a server, over gRPC. Use it as a context manager."""

    def __init__(self, address: str) -> None:
        import tritonclient.grpc as grpc_api

        self.address = address
        self._client = grpc_api.InferenceServerClient(address)

    def __enter__(self) -> RemoteTriton:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def require_control(self) -> None:
        """Check that the server is there and loads models when it is told to.

        Raises:
            Unavailable: it cannot be reached.
            UsageProblem: its model control mode is another.
        """
        self._call("is_server_live")
        try:
            # A name that no model has: without explicit control even this is refused.
            self._call("unload_model", f"tconv-probe-{secrets.token_hex(8)}")
        except Unavailable:
            raise
        except TconvError as error:
            if "not allowed" in error.problem:
                raise UsageProblem(
                    f"The server at {self.address} does not load models on request.",
                    remedy="Start it with --model-control-mode=explicit.",
                ) from error
            raise

    def versions(self) -> dict[tuple[str, int], str]:
        """Return the state of every model version that the server knows."""
        index = self._call("get_model_repository_index")
        return {(m.name, int(m.version)): m.state for m in index.models if m.version}

    def ready(self) -> dict[str, int]:
        """Return the models that answer, each with its highest such version."""
        ready = (key for key, state in self.versions().items() if state == "READY")
        return dict(sorted(ready))

    def load(self, model: str, timeout: float) -> None:
        """Load a model as the repository has it now. That this returns proves nothing."""
        self._call("load_model", model, timeout=timeout)

    def load_files(
        self, model: str, config: ModelConfig, files: dict[str, bytes], timeout: float
    ) -> None:
        """Load a model from memory. `files` maps `version/file` to content."""
        from google.protobuf import json_format

        text = json_format.MessageToJson(config, preserving_proto_field_name=True)
        named = {f"file:{path}": content for path, content in files.items()}
        self._call("load_model", model, None, text, named, timeout=timeout)

    def unload(self, model: str) -> None:
        """Unload a model."""
        self._call("unload_model", model)

    def wait(self, model: str, version: int, timeout: float) -> None:
        """Return once the version is ready.

        Raises:
            TconvError: it is not in time; says what the server gives as the reason.
        """
        deadline = time.monotonic() + timeout
        while not self._call("is_model_ready", model, str(version)):
            if time.monotonic() > deadline:
                reason = self._reason(model)
                raise TconvError(
                    f"The server does not have version {version} of {model}: {reason}.",
                    remedy="Check that --repository is the folder that the server serves.",
                )
            time.sleep(_POLL)

    def config(self, model: str) -> ModelConfig:
        """Return the config that the server works by."""
        return self._call("get_model_config", model).config

    def _reason(self, model: str) -> str:
        index = self._call("get_model_repository_index")
        found = [
            f"{m.version} is {m.state} {m.reason}".strip() for m in index.models if m.name == model
        ]
        return "; ".join(found) or "it knows no such model"

    def _call(self, method: str, *arguments: Any, timeout: float | None = None) -> Any:
        try:
            return getattr(self._client, method)(*arguments, client_timeout=timeout or _QUICK)
        except Exception as error:
            if (problem := explain(self.address, error)) is None:
                raise
            raise problem from error
