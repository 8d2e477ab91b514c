"""Runs a Triton server on this machine: starts it over a repository, and stops it for good."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from ..errors import TconvError, Unavailable, UsageProblem
from ..process import TAIL_LINES, read_tail
from . import supervisor
from .installation import Installation, assemble_backends, environment, find_server
from .ports import Ports, claim

GRACE = 20.0
"""Seconds a server gets to finish its requests and to unload its models."""

_POLL = 0.05
_STUB_TIMEOUT = 120
"""Seconds: the default of 30 is short for a model that imports a framework on a busy machine."""
_LOG_LINES = 10_000
_IN_USE = "already in use"
_UNREAD = re.compile(r"Poll failed for model directory '([^']+)': (.+?)\"?$", re.MULTILINE)


class ServedModel(msgspec.Struct, frozen=True):
    """A model version as the server's index has it. `reason` says why it is not ready."""

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""

    @property
    def is_ready(self) -> bool:
        """Whether it answers."""
        return self.state == "READY"


class LocalTriton:
    """A server on this machine. Use it as a context manager; leaving stops it."""

    def __init__(self, server: Installation | None = None) -> None:
        self.server = server or find_server()
        self.host = ""
        self.ports = Ports()
        self.log = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = Path()

    def __enter__(self) -> LocalTriton:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def http_url(self) -> str:
        """What tritonclient.http wants."""
        return f"{self.host}:{self.ports.http}"

    @property
    def grpc_url(self) -> str:
        """What tritonclient.grpc wants."""
        return f"{self.host}:{self.ports.grpc}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds the metrics."""
        return f"http://{self.host}:{self.ports.metrics}/metrics"

    @property
    def is_running(self) -> bool:
        """Whether the server's process is alive."""
        return self._process is not None and self._process.poll() is None

    def start(
        self,
        repository: Path,
        ports: Ports | None = None,
        *,
        model_control: Literal["explicit", "poll", "none"] = "explicit",
        load: Literal["all"] | Sequence[str] = "all",
        log: Path | None = None,
        host: str = "127.0.0.1",
        timeout: float = 300.0,
    ) -> LocalTriton:
        """Start the server and return once it listens, which is after it has loaded its models.

        A model that fails to load does not stop the server: see `models`, or `require`. `load` only
        matters with explicit model control; the server's own talk goes to `log`.

        Raises:
            UsageProblem: there is no such folder, or a port is taken.
            Unavailable: the server cannot run here, died, or was not ready in time.
        """
        if not repository.is_dir():
            raise UsageProblem(
                f"There is no model repository at {repository}.",
                remedy="Export a model first, or name another folder with --repository.",
            )
        self.host = host
        for may_try_again in (True, True, False):
            self.ports = claim(ports or Ports(), host)
            self._folder = Path(tempfile.mkdtemp(prefix="tconv-triton-"))
            self.log = log or self._folder / "server.log"
            try:
                self._launch(repository, model_control, load)
                self._wait(timeout)
                break
            except BaseException as error:
                self.stop()
                # Another program was faster than the server to a port that was free.
                if not (may_try_again and isinstance(error, Unavailable) and _IN_USE in str(error)):
                    raise
        return self

    def stop(self) -> None:
        """Stop the server and everything it started. Safe to call again."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()  # the supervisor does the rest
            self._process.wait()
            self._process = None
        if self._folder.name:
            shutil.rmtree(self._folder, ignore_errors=True)

    def version(self) -> str:
        """Return the server's version, such as 2.51.0."""
        return str(self._ask("GET", "/v2")["version"])

    def models(self) -> tuple[ServedModel, ...]:
        """Return every model version of the repository, by name, ready or not."""
        index = msgspec.convert(self._ask("POST", "/v2/repository/index"), tuple[ServedModel, ...])
        unread = self._unread_models()
        explained = [m if m.is_ready else _explain(m, unread.get(m.name, "")) for m in index]
        return tuple(sorted(explained, key=lambda model: (model.name, model.version)))

    def _unread_models(self) -> dict[str, str]:
        # The index lists a model whose config.pbtxt is no text proto, and does not say why.
        return dict(_UNREAD.findall(read_tail(self.log, _LOG_LINES) if self.log.is_file() else ""))

    def require(self, *names: str) -> None:
        """Check that the models, or all of them, are ready.

        Raises:
            TconvError: one is not; the reason is the server's own.
        """
        models = self.models()
        known = {model.name for model in models}
        bad = [m for m in models if not m.is_ready and m.name in (names or known)]
        bad += [ServedModel(name, reason="unknown model") for name in names if name not in known]
        if bad:
            listing = "; ".join(f"{m.name}: {m.reason or m.state or 'not loaded'}" for m in bad)
            raise TconvError(
                f"Triton could not load {listing}",
                remedy="Correct the model's config.pbtxt or its file.",
            )

    def _launch(
        self, repository: Path, model_control: str, load: Literal["all"] | Sequence[str]
    ) -> None:
        segments = self._folder.name
        command = [
            str(self.server.binary),
            f"--id={segments}",
            f"--model-repository={repository.resolve()}",
            *assemble_backends(self.server, self._folder / "backends"),
            *_listen(self.ports, self.host),
            f"--model-control-mode={model_control}",
            "--exit-on-error=false",  # one bad model must not take the others down
            f"--exit-timeout-secs={GRACE - 5:.0f}",
            f"--backend-config=python,shm-region-prefix-name={segments}-",
            f"--backend-config=python,stub-timeout-seconds={_STUB_TIMEOUT}",
        ]
        if model_control == "explicit":
            command += [f"--load-model={name}" for name in (["*"] if load == "all" else load)]
        keeper = [sys.executable, "-I", supervisor.__file__]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*keeper, str(GRACE), str(self._folder), segments, *command],
                env=environment(self.server),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal is for tconv alone
                # Python backends import their `model` from here before anywhere else.
                cwd=self._folder,
            )

    def _wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._ask("GET", "/v2")["name"] == self._folder.name:  # and not another server
                    return
            if not self.is_running:
                raise self.death()
            time.sleep(_POLL)
        raise Unavailable(
            f"Triton was not ready within {timeout:g} s; its log ends:\n{self.tail()}",
            remedy="Give it more time, or fewer models to load.",
        )

    def death(self) -> Unavailable:
        """Return the error that tells how the server ended."""
        code = self._process.returncode if self._process else None
        how = "Triton has ended" if code is None else f"Triton ended with exit code {code}"
        return Unavailable(
            f"{how}; its log ends:\n{self.tail()}",
            remedy="Correct what the log says, or name another server with --triton-server.",
        )

    def tail(self) -> str:
        """Return the end of the server's log, without its tables."""
        if not self.log.is_file():
            return "(its log was not kept)"
        lines = read_tail(self.log, _LOG_LINES).splitlines()
        said = [line for line in lines if line.strip() and not line.startswith(("|", "+"))]
        return "\n".join(said[-TAIL_LINES:])

    def _ask(self, method: str, path: str) -> Any:
        # Not urllib: that would send requests for 127.0.0.1 to a proxy from the environment.
        connection = http.client.HTTPConnection(self.host, self.ports.http, timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, body="{}" if method == "POST" else None)
            reply = connection.getresponse()
            body = reply.read()
        if reply.status != http.client.OK:
            raise http.client.HTTPException(f"{path}: {reply.status}")
        return json.loads(body) if body else None


def _listen(ports: Ports, host: str) -> list[str]:
    return [
        f"--http-address={host}",
        f"--grpc-address={host}",
        f"--metrics-address={host}",
        f"--http-port={ports.http}",
        f"--grpc-port={ports.grpc}",
        f"--metrics-port={ports.metrics}",
    ]


def _explain(model: ServedModel, unread: str) -> ServedModel:
    # A Python backend's reason starts with its exception's class and goes on with a traceback.
    reason = (model.reason or unread).partition("\n\nAt:")[0]
    return msgspec.structs.replace(
        model, reason=reason.replace("TritonModelException: ", "").strip()
    )
