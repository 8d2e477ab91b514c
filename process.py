"""Run a function in a child process: with a time limit, a log, and its peak memory measured."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from .errors import TconvError, Unavailable, from_json
from .forkserver import OUT_OF_MEMORY

TAIL_LINES = 15
TAIL_BYTES = 1 << 16
FATAL = "Fatal Python error"
"""How Python's faulthandler begins; the stack follows, innermost line first."""
PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait for each other sleep: on a busy machine spinning cost a third of the time."""


class Cost(msgspec.Struct, frozen=True):
    """What a child process used: wall seconds, and its largest resident set in bytes."""

    seconds: float
    peak_memory: int


class Crash(msgspec.Struct, frozen=True):
    """A child that ended without a result: killed, out of memory, out of time, or a bug.

    `tail` is the end of its log and `reproduce` a shell command that runs the same job again.
    """

    reason: str
    tail: str
    reproduce: str
    log: str
    is_bug: bool = False
    timed_out: bool = False


class Finished(msgspec.Struct, frozen=True):
    """How a job ended. `outcome` is its value, the error it raised on purpose, or a crash."""

    outcome: Any
    cost: Cost

    @property
    def failure(self) -> TconvError | Crash | None:
        """The error or crash, if it was one."""
        return self.outcome if isinstance(self.outcome, TconvError | Crash) else None


class Processes:
    """A fork server and the jobs it runs. Use it as a context manager; leaving kills what runs."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        command = [sys.executable, "-m", "tconv.forkserver", "--serve", *preload]
        # Its own session: ctrl-C reaches this process alone, and this one ends the children.
        self._server = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={**PATIENT, **os.environ},
        )
        self._waiting: dict[str, queue.Queue[dict[str, Any]]] = {}
        self._is_dead = False
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and every job that still runs."""
        stdin = self._server.stdin
        assert stdin is not None
        with contextlib.suppress(OSError):
            stdin.close()
        try:
            self._server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._server.kill()
            self._server.wait()
        self._listener.join()
        assert self._server.stdout is not None
        self._server.stdout.close()

    def run(
        self,
        call: str,
        arguments: dict[str, Any],
        *,
        log: Path,
        timeout: float | None = None,
        memory_limit: int | None = None,
        environment: dict[str, str] | None = None,
    ) -> Finished:
        """Call `package.module:function` with JSON `arguments` in a child and wait for it.

        Args:
            call: what to call; its return value must be JSON too.
            arguments: keyword arguments.
            log: where the child's output goes; the job and its result lie beside it.
            timeout: seconds until the child is killed.
            memory_limit: bytes of private memory the child may have.
            environment: variables set in the child only.

        Raises:
            Unavailable: the fork server has died.
        """
        job, result = log.with_suffix(".job.json"), log.with_suffix(".result.json")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(b"")
        result.unlink(missing_ok=True)
        content = {
            "call": call,
            "arguments": arguments,
            "log": str(log),
            "result": str(result),
            "memory_limit": memory_limit,
            "environment": environment or {},
            "folder": os.getcwd(),
        }
        job.write_text(json.dumps(content, indent=2))
        start = time.monotonic()
        code, peak = self._wait(str(job), timeout)
        cost = Cost(time.monotonic() - start, peak)
        return Finished(_read_outcome(code, timeout, job, log, result), cost)

    def _wait(self, job: str, timeout: float | None) -> tuple[int | None, int]:
        """Return the exit code (None: out of time) and the peak memory."""
        messages: queue.Queue[dict[str, Any]] = queue.Queue()
        self._waiting[job] = messages
        try:
            self._send(job)
            started = messages.get()  # the clock starts once the job itself does
            try:
                ended = messages.get(timeout=timeout) if "pid" in started else started
            except queue.Empty:
                _kill(started["pid"])
                return None, messages.get()["peak_memory"]
            return ended["code"], ended["peak_memory"]
        finally:
            del self._waiting[job]

    def _send(self, job: str) -> None:
        stdin = self._server.stdin
        assert stdin is not None
        try:
            # A pipe whose reader is about to end still takes the line: only the listener knows.
            if self._is_dead:
                raise BrokenPipeError
            stdin.write(os.fsencode(f"{job}\n"))
            stdin.flush()
        except OSError as error:
            raise Unavailable(
                "The fork server, which starts every job, has died.",
                remedy="Most likely the machine ran out of memory: make room and run it again.",
            ) from error

    def _listen(self) -> None:
        stdout = self._server.stdout
        assert stdout is not None
        for line in stdout:
            message = json.loads(line)
            if waiting := self._waiting.get(message["job"]):
                waiting.put(message)
        self._is_dead = True
        for waiting in list(self._waiting.values()):
            waiting.put({"code": -signal.SIGKILL, "peak_memory": 0})


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _read_outcome(
    code: int | None, timeout: float | None, job: Path, log: Path, result: Path
) -> Any:
    written = json.loads(result.read_text()) if result.exists() and code is not None else {}
    if "value" in written:
        return written["value"]
    if "error" in written:
        return from_json(written["error"])
    return Crash(
        reason=_describe_end(code, timeout, written.get("crash")),
        tail=read_tail(log),
        reproduce=f"{shlex.quote(sys.executable)} -m tconv.forkserver {shlex.quote(str(job))}",
        log=str(log),
        is_bug="trace" in written,
        timed_out=code is None,
    )


def _describe_end(code: int | None, timeout: float | None, crash: str | None) -> str:
    if code is None:
        return f"it was still running after {timeout:g} s and was stopped"
    if crash == OUT_OF_MEMORY:
        return "it ran out of memory"
    if crash is not None:
        return crash
    if code == -signal.SIGKILL:
        return "it was killed (SIGKILL), most likely because the machine ran out of memory"
    if code < 0:
        return f"it crashed with {signal.Signals(-code).name}"
    return f"it ended by itself with exit code {code}"


def read_tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, or what fits of them; of a crash, the innermost ones."""
    with contextlib.suppress(OSError), log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - TAIL_BYTES))
        found = stream.read().decode(errors="replace").splitlines()
        crashes = [place for place, line in enumerate(found) if line.startswith(FATAL)]
        start = crashes[-1] if crashes else max(0, len(found) - lines)
        return "\n".join(found[start : start + lines])
    return ""
