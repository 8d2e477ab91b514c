"""Keeps one server: started here, stopped when standard input closes, nothing of it left behind.

Run as a script by `triton.LocalTriton`, apart from tconv: the kernel closes the pipe also where
tconv is killed, and a thread that ends early (as with PR_SET_PDEATHSIG) takes no server with it.

    python supervisor.py GRACE FOLDER SEGMENTS COMMAND...

Every file of /dev/shm whose name starts with SEGMENTS is removed at the end, and FOLDER as well
where the stop was asked for: it holds the log of a server that ended by itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
CANNOT_EXECUTE = 126
"""A shell's exit code for a file that is there and does not run."""
PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""


def supervise(grace: float, folder: Path, segments: str, command: list[str]) -> int:
    """Run `command` until it ends or standard input closes; return its exit code."""
    asked = threading.Event()
    try:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a group: helper processes are found once the server is gone
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - there is no other thread yet
        )
        threading.Thread(target=_stop_on_close, args=(server, grace, asked), daemon=True).start()
        code = server.wait()
        _kill_group(server.pid)
    except OSError as error:
        print(error, file=sys.stderr)
        code = CANNOT_EXECUTE
    for segment in SHARED_MEMORY.glob(f"{segments}*"):
        segment.unlink(missing_ok=True)
    if asked.is_set():
        shutil.rmtree(folder, ignore_errors=True)
    return code


def _die_with_parent() -> None:
    # In case this process is killed itself, such as by the kernel when memory runs out.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop_on_close(server: subprocess.Popen[bytes], grace: float, asked: threading.Event) -> None:
    # Not sys.stdin: at exit the interpreter would wait for the lock that this read holds.
    while os.read(0, 1):
        pass
    asked.set()
    with contextlib.suppress(OSError):
        server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(grace)
    _kill_group(server.pid)


def _kill_group(group: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    # Only the pipe stops it: a Ctrl-C meant for tconv, or a `kill` of the whole group, must not
    # leave the server without its keeper. A handler: the server would inherit SIG_IGN.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    code = supervise(float(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    sys.exit(code if code >= 0 else 128 - code)
