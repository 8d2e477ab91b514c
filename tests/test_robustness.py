"""Whatever a model or a request does wrong ends in a message, a code, and nothing exported."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tconv.errors import TconvError
from tconv.report import NotConverted, NotJudged, Passed, Report, TargetReport

from .conftest import MODELS, Build

pytestmark = pytest.mark.timeout(180)

FAULTS = MODELS / "faults.py"
BOTH = "torchscript,onnx"


def _run(
    folder: Path, *arguments: str, code: int, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in `folder`; it must end with `code`, and no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "tconv", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


def _target(report: Report, name: str) -> TargetReport:
    return next(target for target in report.targets if target.target == name)


@pytest.mark.parametrize(
    ("model", "code", "problem"),
    [
        pytest.param("missing:create", 2, r"There is no file .*missing\.py", id="no file"),
        pytest.param("faults:absent", 2, "no function called 'absent'", id="no such function"),
        pytest.param("faults:constant", 2, "no function called 'constant'", id="no function"),
        pytest.param(
            "broken:create", 2, "No module named 'missing_dep.*broken\\.py:3", id="imports"
        ),
        pytest.param("faults:raises", 2, r"ValueError: no weights .*faults\.py:\d+", id="raises"),
        pytest.param("faults:wants", 2, "missing 1 required positional", id="wants arguments"),
        pytest.param("faults:number", 2, "returned a int", id="returns junk"),
        pytest.param("faults:leaves", 2, "raised SystemExit: 5", id="calls exit()"),
        pytest.param("faults:ends", 3, "exit code 7", id="ends the process"),
        pytest.param("faults:changes", 2, "gives other weights", id="is not repeatable"),
    ],
)
def test_a_model_that_can_not_be_had(
    build_model: Build, tmp_path: Path, model: str, code: int, problem: str
) -> None:
    with pytest.raises(TconvError, match=problem) as refused:
        build_model(model, targets="torchscript")

    assert refused.value.exit_code == code
    assert refused.value.remedy
    assert not list(tmp_path.glob("build/*/report.json"))
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("inputs", "problem"),
    [
        pytest.param("y:float32[batch,4]", "no input called 'y'", id="another name"),
        pytest.param("x:float32[batch", "does not describe a tensor", id="no tensor"),
        pytest.param("x:float[batch,4]", "unknown dtype", id="no dtype"),
        pytest.param("x:int64[batch,4]", "can't run at inputs as they are stated", id="dtype"),
        pytest.param("x:float32[batch,5]", "can't run at inputs as they are stated", id="shape"),
    ],
)
def test_inputs_that_the_model_does_not_take(
    build_model: Build, tmp_path: Path, inputs: str, problem: str
) -> None:
    with pytest.raises(TconvError, match=problem) as refused:
        build_model("faults:right", inputs)

    assert refused.value.exit_code == 2
    assert not (tmp_path / "models").exists()


def test_an_input_that_is_not_stated_is_asked_for(build_model: Build) -> None:
    with pytest.raises(TconvError, match="needs the input 'scale' too") as refused:
        build_model("inputs:missing_example", "x:float32[batch,4]")

    assert "scale" in refused.value.remedy


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param(("",), "'' names no model", id="no model"),
        pytest.param((f"{FAULTS}:right", "--targets", "onyx"), "'onyx'", id="unknown target"),
        pytest.param((f"{FAULTS}:right", "--targets", ","), "no target", id="no target"),
        pytest.param((f"{FAULTS}:right", "--name", "../up"), "no name", id="no name"),
        pytest.param((f"{FAULTS}:right", "--tolerance", "7"), "no tolerance", id="tolerance"),
        pytest.param((f"{FAULTS}:right", "--input", "x"), "no tensor|not describe", id="input"),
        pytest.param((f"{FAULTS}:right", "--output", "taken"), "taken is a file", id="output"),
        pytest.param(
            (f"{FAULTS}:right", "--repository", "taken"), "taken is a file", id="repository"
        ),
        pytest.param((f"{FAULTS}:right", "--device", "tpu"), "tpu", id="device"),
    ],
)
def test_what_is_refused_before_anything_is_written(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "taken").touch()

    done = _run(tmp_path, "build", *arguments, code=2)

    assert any(part in done.stderr for part in problem.split("|"))
    assert not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_crash_is_one_failed_target_that_can_be_repeated(
    build_model: Build, tmp_path: Path
) -> None:
    report = build_model("faults:crashes_in_trace")

    assert report.exit_code == 4
    crashed = _target(report, "torchscript").verdict
    assert isinstance(crashed, NotConverted)
    assert "SIGSEGV" in crashed.problem
    assert f'"{FAULTS}"' in crashed.tail  # the line that crashed
    assert crashed.reproduce in crashed.remedy
    assert not crashed.is_bug
    assert isinstance(_target(report, "onnx").verdict, Passed)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["crashes_in_trace_onnx"]
    again = subprocess.run(
        shlex.split(crashed.reproduce), cwd="/", capture_output=True, text=True, check=False
    )
    assert again.returncode == -signal.SIGSEGV
    assert "in string_at" in again.stderr


def test_every_recipe_that_crashes_is_told(build_model: Build) -> None:
    report = build_model("faults:crashes_in_export")

    assert report.exit_code == 4
    assert isinstance(_target(report, "torchscript").verdict, Passed)
    attempts = _target(report, "onnx").attempts
    assert [attempt.recipe for attempt in attempts] == ["dynamo", "torchscript"]
    for attempt in attempts:
        assert isinstance(attempt.verdict, NotConverted)
        assert "SIGSEGV" in attempt.verdict.problem


def test_memory_ends_at_the_limit(build_model: Build) -> None:
    report = build_model("faults:eats_memory", memory_limit=6 << 30)

    assert report.exit_code == 4
    stopped = _target(report, "torchscript").verdict
    assert isinstance(stopped, NotConverted)
    assert "ran out of memory" in stopped.problem
    assert isinstance(_target(report, "onnx").verdict, Passed)


def test_time_ends_at_the_limit(build_model: Build) -> None:
    report = build_model("faults:hangs_in_trace", timeout=12.0)

    assert report.exit_code == 3
    stopped = _target(report, "torchscript").verdict
    assert isinstance(stopped, NotJudged)
    assert "still running after 12 s" in stopped.problem
    assert isinstance(_target(report, "onnx").verdict, Passed)


def test_a_source_that_hangs_is_stopped(build_model: Build) -> None:
    with pytest.raises(TconvError, match="still running after 2 s") as stopped:
        build_model("faults:hangs", timeout=2.0)

    assert stopped.value.exit_code == 3


@pytest.mark.parametrize(
    ("blocked", "target"),
    [
        pytest.param("torch", "", id="the framework"),
        pytest.param("onnxscript", "onnx", id="an exporter"),
        pytest.param("onnxruntime", "onnx", id="a runtime", marks=pytest.mark.slow),
    ],
)
def test_a_missing_package_is_named(tmp_path: Path, blocked: str, target: str) -> None:
    # Python imports sitecustomize at its start, in children too.
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {blocked!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
    )
    done = _run(
        tmp_path,
        "build",
        f"{FAULTS}:right",
        *("--targets", BOTH, "--json"),
        code=3,
        PYTHONPATH=str(tmp_path),
    )

    found = json.loads(done.stdout)
    verdicts = {t["target"]: t["verdict"] for t in found.get("targets", ())}
    said = verdicts[target] if target else found["error"]
    assert blocked in said["problem"]
    assert "tconv[torch]" in said["remedy"]
    assert not target or verdicts["torchscript"]["verdict"] == "passed"
