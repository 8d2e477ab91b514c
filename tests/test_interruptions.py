"""A build that is stopped, or that runs out of room, leaves no process and nothing half-written."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tconv.errors import Unavailable, UsageProblem
from tconv.report import Report
from tconv.workspace import Workspace

from .conftest import MODELS, Build

pytestmark = pytest.mark.timeout(180)

FAULTS = MODELS / "faults.py"
SESSION = "TCONV_TEST_RUN"
"""A variable by which a build's processes are known, whoever their parent is by then."""


@contextlib.contextmanager
def _started(folder: Path, factory: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tconv", "build", f"{FAULTS}:{factory}"]
    with subprocess.Popen(
        [*command, "--targets", "torchscript"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, SESSION: str(folder)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _alive(folder: Path) -> list[int]:
    """Return the processes of a build that still run."""
    mark = f"{SESSION}={folder}".encode()
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if mark in (process / "environ").read_bytes().split(b"\0"):
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(process.name)] if state != "Z" else []
    return found


def _wait_for(folder: Path, *, alive: int) -> None:
    """Wait until so many of a build's processes run: the command, the fork server, a job."""
    deadline = time.monotonic() + 20
    while len(found := _alive(folder)) != alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert len(found) == alive


def _read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    pytest.fail(f"It never said {text!r}")


MOMENTS = [
    pytest.param("right", "running the source", 2, id="at the start"),
    pytest.param("hangs", "running the source", 3, id="while the source runs"),
    pytest.param("hangs_in_trace", "torchscript: converting", 3, id="while a target is made"),
]


@pytest.mark.parametrize(("factory", "moment", "alive"), MOMENTS)
def test_ctrl_c_ends_everything(tmp_path: Path, factory: str, moment: str, alive: int) -> None:
    with _started(tmp_path, factory) as process:
        _read_until(process, moment)
        _wait_for(tmp_path, alive=alive)

        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)

    assert process.returncode == 130
    assert "Interrupted" in stderr
    assert "Traceback" not in stderr
    assert not stdout
    _wait_for(tmp_path, alive=0)
    assert not (tmp_path / "models").exists()
    assert not list(tmp_path.glob("build/*/report.json"))


def test_ctrl_c_while_exporting_leaves_whole_versions(tmp_path: Path) -> None:
    with _started(tmp_path, "large") as process:
        _read_until(process, "torchscript: exporting")

        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)

    assert process.returncode in (130, 0)  # it may have been done already
    _wait_for(tmp_path, alive=0)
    for model in tmp_path.glob("models/*"):
        assert (model / "config.pbtxt").is_file()
        assert (model / "1" / "model.pt").is_file()


@pytest.mark.parametrize(("factory", "moment", "alive"), MOMENTS)
def test_a_killed_build_takes_its_children_along(
    tmp_path: Path, factory: str, moment: str, alive: int
) -> None:
    with _started(tmp_path, factory) as process:
        _read_until(process, moment)
        _wait_for(tmp_path, alive=alive)

        process.kill()

    _wait_for(tmp_path, alive=0)
    with Workspace(tmp_path / "build" / factory).locked():
        pass  # nobody holds it any more


def test_a_killed_fork_server_is_said(tmp_path: Path) -> None:
    with _started(tmp_path, "hangs") as process:
        _read_until(process, "running the source")
        _wait_for(tmp_path, alive=3)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()

        os.kill(int(children), signal.SIGKILL)
        _, stderr = process.communicate(timeout=30)

    assert process.returncode == 3
    assert "Traceback" not in stderr
    _wait_for(tmp_path, alive=0)


def test_two_builds_of_one_workspace_do_not_meet(build_model: Build, tmp_path: Path) -> None:
    with (
        Workspace(tmp_path / "build" / "right").locked(),
        pytest.raises(Unavailable, match="Another tconv is at work") as refused,
    ):
        build_model("faults:right")

    assert "--name" in refused.value.remedy
    assert build_model("faults:right", targets="torchscript").exit_code == 0


@contextlib.contextmanager
def _small_disk(folder: Path, size: str, *options: str) -> Iterator[Path]:
    """Mount a disk of `size` at `folder`."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "tmpfs"]
    if subprocess.run([*mount, str(folder)], capture_output=True, check=False).returncode:
        pytest.skip("mounting needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize(
    ("factory", "size"),
    [
        pytest.param("right", "4k", id="at once"),
        pytest.param("wide_rows", "2m", id="while samples are written"),
        pytest.param("large", "4m", id="while a target is written"),
    ],
)
def test_a_full_disk_is_said(build_model: Build, tmp_path: Path, factory: str, size: str) -> None:
    with (
        _small_disk(tmp_path / "build", size),
        pytest.raises(Unavailable, match=r"disk is full|no space left"),
    ):
        build_model(f"faults:{factory}", targets="torchscript")

    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("target", ["torchscript", "onnx"])
def test_a_full_repository_holds_no_part_of_a_version(
    build_model: Build, tmp_path: Path, target: str
) -> None:
    with _small_disk(tmp_path / "models", "2m") as repository:
        with pytest.raises(Unavailable, match=r"disk is full|no space left"):
            build_model("faults:large", targets=target)

        assert not list(repository.iterdir())


def test_a_repository_that_can_not_be_written(build_model: Build, tmp_path: Path) -> None:
    with (
        _small_disk(tmp_path / "models", "4m", "ro") as repository,
        pytest.raises(UsageProblem, match=r"[Rr]ead-only") as refused,
    ):
        build_model("faults:right", targets="torchscript")

    assert "--repository" in refused.value.remedy
    assert not list(repository.iterdir())


def test_a_workspace_that_can_not_be_written(build_model: Build, tmp_path: Path) -> None:
    with (
        _small_disk(tmp_path / "build", "4m", "ro"),
        pytest.raises(UsageProblem, match=r"[Rr]ead-only") as refused,
    ):
        build_model("faults:right", targets="torchscript")

    assert "--output" in refused.value.remedy


@pytest.mark.slow
def test_a_limit_on_a_file_s_size_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tconv", "build", f"{FAULTS}:large", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )

    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    said = found["error"] if "error" in found else found["targets"][0]["verdict"]
    assert done.returncode in (2, 4)
    assert "too large" in said["problem"]
    assert not (tmp_path / "models").exists()


def test_an_older_report_does_not_outlive_a_failed_build(
    build_model: Build, tmp_path: Path
) -> None:
    report: Report = build_model("faults:right", targets="torchscript")
    assert report.exit_code == 0
    path = tmp_path / "build" / "right" / "report.json"
    assert path.is_file()

    with pytest.raises(UsageProblem):
        build_model("faults:right", "y:float32[batch,4]", targets="torchscript")

    assert not path.exists()
