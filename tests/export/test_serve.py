from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tconv.errors import Unavailable

pytestmark = [pytest.mark.serve, pytest.mark.timeout(60)]


@pytest.fixture
def served(identity: Path, watch: Any) -> Iterator[subprocess.Popen[str]]:
    code = f"""
        import sys
        from pathlib import Path
        from tconv.errors import TconvError
        from tconv.export.ports import Ports
        from tconv.export.serve import serve
        try:
            sys.exit(serve(Path({str(identity)!r}), Ports(), say=lambda t: print(t, flush=True)))
        except TconvError as error:
            print(error, flush=True)
            sys.exit(error.exit_code)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        yield process
    process.kill()
    process.wait()
    watch.until(lambda: not watch.processes())


def _read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        if text in line:
            return said
    pytest.fail(f"it ended without {text!r}: {said}")


def test_serving_says_when_ready_and_ends_well(served: subprocess.Popen[str]) -> None:
    said = _read_until(served, "identity 1")
    assert "is ready over" in said
    assert "nvidia-pytriton" in said
    assert "http://127.0.0.1:" in said
    served.send_signal(signal.SIGTERM)
    assert served.wait(30) == 0


def test_serving_can_be_stopped_while_it_starts(served: subprocess.Popen[str]) -> None:
    _read_until(served, "Starting")
    served.send_signal(signal.SIGINT)
    assert served.wait(30) == 0


def test_serving_ends_with_unavailable_when_the_server_dies(
    served: subprocess.Popen[str], watch: Any
) -> None:
    _read_until(served, "identity 1")
    os.kill(watch.find("tritonserver"), signal.SIGKILL)
    assert "exit code 137" in _read_until(served, "exit code")
    assert served.wait(30) == Unavailable.exit_code
