"""A publish that is killed, or meets a failing disk, at any call that changes the repository."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tconv.export.history import roll_back
from tconv.export.publish import publish, recover_all
from tconv.export.repository import pins_of
from tconv.export.triton import LocalTriton

STRACE = shutil.which("strace")
PUBLISHER = Path(__file__).with_name("publisher.py")
pytestmark = [
    pytest.mark.serve,
    pytest.mark.skipif(STRACE is None, reason="strace is not installed"),
]
EVERY = ("rename", "fsync", "write", "unlink", "unlinkat", "mkdir", "rmdir")
MOST = 60


class Faults:
    """Runs a publish in which the Nth call of a kind ends badly."""

    def __init__(self, desk: Any, write_request: Callable[..., Path]) -> None:
        self.desk, self.write_request = desk, write_request

    def run(self, call: str, number: int, what: str, factor: float) -> int:
        """Return the exit code; -9 where the publish was killed."""
        request = self.write_request(self.desk.build(factor))
        paths = self._paths() if call == "write" else []
        command = [str(STRACE), "-f", "-qq", "-o", str(request.with_suffix(".trace")), *paths]
        command += ["-e", f"trace={call}", "-e", f"inject={call}:{what}:when={number}"]
        run = subprocess.run(
            [*command, sys.executable, str(PUBLISHER), str(request)],
            capture_output=True,
            check=False,
            timeout=120,
        )
        self.said = run.stderr.decode()
        self.met = "INJECTED" in request.with_suffix(".trace").read_text()
        return run.returncode

    def _paths(self) -> list[str]:
        """The files that are written: a process writes to much else."""
        staging = self.desk.state / "staging"
        names = ["config.pbtxt.part", "m.json.part", "new/m/config.pbtxt"]
        names += [f"new/m/{v}/{f}" for v in range(1, 200) for f in ("model.onnx", "tconv.json")]
        return [part for name in names for part in ("-P", str(staging / name))]


@pytest.fixture
def faults(desk: Any, write_request: Callable[..., Path]) -> Faults:
    publish(desk.build(2.0))
    return Faults(desk, write_request)


def _check_after_kill(faults: Faults, triton: Callable[..., LocalTriton], where: str) -> None:
    desk = faults.desk
    with triton(desk.served, model_control="none") as fresh:
        assert desk.answers(fresh) in {2.0, 3.0}, where
    url = desk.server.grpc_url
    recover_all(str(desk.served), url, 30, 10)
    before = desk.tree()
    assert recover_all(str(desk.served), url, 30, 10) == (), where
    assert desk.tree() == before, where
    assert desk.answers() in {2.0, 3.0}, where


def _kill_at_each(faults: Faults, triton: Callable[..., LocalTriton], call: str) -> int:
    for number in range(1, MOST):
        code = faults.run(call, number, "signal=SIGKILL", 3.0)
        if code == 0:
            return number - 1
        assert code in {-9, 137}, f"{call} {number}: {code} {faults.said}"
        _check_after_kill(faults, triton, f"killed at {call} {number}")
        if faults.desk.answers() == 3.0:  # it had been published already
            return number
    raise AssertionError(f"more than {MOST} calls of {call}")


@pytest.mark.timeout(300)
def test_a_kill_at_each_rename_leaves_the_old_or_the_new(
    faults: Faults, triton: Callable[..., LocalTriton]
) -> None:
    points = _kill_at_each(faults, triton, "rename")
    assert points >= 4
    print(f"{points} points")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("call", EVERY)
def test_a_kill_at_each_call_leaves_the_old_or_the_new(
    faults: Faults, triton: Callable[..., LocalTriton], call: str
) -> None:
    print(f"{call}: {_kill_at_each(faults, triton, call)} points")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("call", ["rename", "fsync", "write", "mkdir"])
def test_a_failing_disk_leaves_the_old(faults: Faults, call: str, error: str) -> None:
    desk = faults.desk
    harmless = []
    for number in range(1, MOST):
        code = faults.run(call, number, f"error={error}", 3.0)
        if not faults.met:
            break
        if code == 0:  # what failed was clearing up, or a folder that was there
            harmless.append(number)
            assert desk.answers() == 3.0
            with desk.site() as site:
                roll_back(site, "m", 1)
            continue
        assert code == 5, f"{call} {number}: {code} {faults.said}"
        assert desk.answers() == 2.0
        assert pins_of(desk.served / "m") == (1,)
    assert desk.answers() == 3.0
    print(f"{call} {error}: {number - 1} points, harmless: {harmless}")
    assert number > 1
