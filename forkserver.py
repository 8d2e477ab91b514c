"""The child side of `process.py`: a server that has the frameworks imported and forks once per job.

Starting torch and transformers costs seconds; a fork of a process that has imported them, and has
computed nothing yet, costs milliseconds and is as isolated as a process of its own.

    python -m tconv.forkserver JOB.json        run one job in the foreground, to reproduce it
    python -m tconv.forkserver --serve MODULE… what process.py starts
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import resource
import selectors
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .errors import BUG, TconvError, to_json

OUT_OF_MEMORY = "MemoryError"
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl.h."""


def run_job(path: Path) -> int:
    """Call what the job file names, write its result beside it, and return the exit code."""
    job = json.loads(path.read_text())
    os.chdir(job["folder"])
    os.environ.update(job["environment"])
    if job["memory_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (job["memory_limit"], job["memory_limit"]))
    faulthandler.enable(2)  # a crash in native code leaves the Python lines that led to it
    code, result = _outcome(job["call"], job["arguments"])
    scratch = path.with_suffix(".part")
    scratch.write_text(result)
    scratch.replace(job["result"])
    return code


def _outcome(call: str, arguments: dict[str, Any]) -> tuple[int, str]:
    """Return the exit code, and as JSON what the call returned or raised."""
    module, _, name = call.partition(":")
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        return 0, json.dumps({"value": function(**arguments)})
    except BaseException as error:  # also SystemExit, which a model's own code may raise
        traceback.print_exc()
        code, result = _failure(error)
        return code, json.dumps(result)


def _failure(error: BaseException) -> tuple[int, dict[str, Any]]:
    if isinstance(error, TconvError):
        return error.exit_code, {"error": to_json(error)}
    if isinstance(error, MemoryError):
        return BUG, {"crash": OUT_OF_MEMORY}
    result = {"crash": f"{type(error).__name__}: {error}"}
    if isinstance(error, Exception):  # a bug crosses the process boundary as text
        result["trace"] = traceback.format_exc()
    return BUG, result


def _child(path: Path) -> None:
    """Become the job: own session, output into the log, first to go when memory runs out."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _die_with(os.getppid())
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    log = os.open(json.loads(path.read_text())["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    # Whatever the locale: a character that can't be logged is no reason to fail.
    sys.stdout, sys.stderr = (
        os.fdopen(n, "w", 1, "utf-8", errors="backslashreplace", closefd=False) for n in (1, 2)
    )


def _die_with(server: int) -> None:
    """Let Linux end this process when the server is killed, which then can't do it itself."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(BUG)


class _Server:
    """Reads job paths from its standard input and tells on its standard output how each ended."""

    def __init__(self) -> None:
        self.running: dict[int, str] = {}
        self.wake_read, self.wake_write = os.pipe()
        os.set_blocking(self.wake_write, False)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(self, **message: Any) -> None:
        os.write(1, (json.dumps(message) + "\n").encode())

    def fork(self, path: str) -> None:
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            code = BUG
            try:
                _child(Path(path))
                code = run_job(Path(path))
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        self.running[pid] = path
        self.tell(job=path, pid=pid)

    def reap(self) -> None:
        os.read(self.wake_read, 4096)
        while self.running:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if pid == 0:
                return
            if path := self.running.pop(pid, None):
                _kill_group(pid)  # what the job started and left running
                code = os.waitstatus_to_exitcode(status)
                self.tell(job=path, code=code, peak_memory=usage.ru_maxrss * 1024)

    def serve(self) -> None:
        """Run until standard input closes; then leave no child behind."""
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        selector.register(self.wake_read, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if self.wake_read in ready:
                self.reap()
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    break
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    self.fork(os.fsdecode(line))
        for pid in self.running:
            _kill_group(pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _preload(modules: list[str]) -> None:
    """Import what is installed; a job that needs what isn't says so itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(module)


def main(arguments: list[str]) -> int:
    """Serve, or run one job."""
    if arguments[:1] == ["--serve"]:
        _preload(arguments[1:])
        _Server().serve()
        return 0
    return run_job(Path(arguments[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
