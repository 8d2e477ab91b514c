"""Serves a model repository in the foreground, until asked to stop."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Literal

from .installation import Installation
from .ports import Ports
from .triton import LocalTriton

_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY = 0.5


class _StopRequested(BaseException):
    """Ctrl-C, or a supervisor that wants us gone."""


def serve(
    repository: Path,
    ports: Ports,
    *,
    say: Callable[[str], None],
    server: Installation | None = None,
    host: str = "127.0.0.1",
    model_control: Literal["explicit", "poll", "none"] = "explicit",
    load: Literal["all"] | Sequence[str] = "all",
    log: Path | None = None,
) -> int:
    """Run a server until SIGINT or SIGTERM, and return 0. `say` gets what a person wants to know.

    Raises:
        UsageProblem: there is no such folder, or a port is taken.
        Unavailable: the server cannot run here, or died.
    """
    with LocalTriton(server) as triton, contextlib.suppress(_StopRequested), _stop_on_signal():
        say(f"Starting {triton.server} …")
        triton.start(repository, ports, host=host, model_control=model_control, load=load, log=log)
        _announce(triton, repository, say)
        nothing = threading.Event()
        while triton.is_running:
            nothing.wait(_LOOK_EVERY)
        raise triton.death()
    say("Triton has stopped.")
    return 0


@contextlib.contextmanager
def _stop_on_signal() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in _STOPS:  # the second Ctrl-C of an impatient user must not cut the stop short
            signal.signal(number, signal.SIG_IGN)
        raise _StopRequested

    before = {number: signal.signal(number, stop) for number in _STOPS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _announce(triton: LocalTriton, repository: Path, say: Callable[[str], None]) -> None:
    say(f"Triton {triton.version()} is ready over {repository}:")
    say(f"  HTTP     http://{triton.http_url}")
    say(f"  gRPC     {triton.grpc_url}")
    say(f"  metrics  {triton.metrics_url}")
    models = triton.models()
    if not models:
        say("There are no models in the repository yet.")
    for model in models:
        name = f"{model.name} {model.version}".strip()
        if model.is_ready:
            say(f"  ready       {name}")
        else:
            say(f"  NOT LOADED  {name}: {model.reason or 'no reason given'}")
