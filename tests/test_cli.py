"""The command line: help, results on stdout, talk on stderr, exit codes, and what it loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner, Result

from tconv import __version__
from tconv.cli import main
from tconv.convert.base import Availability
from tconv.convert.registry import TARGET_NAMES
from tconv.report import Failed, Passed, Report
from tconv.spec import Signature

from .conftest import MODELS

pytestmark = pytest.mark.timeout(180)

COMMANDS = sorted(main.commands)
FRAMEWORKS = ("torch", "tensorflow", "transformers", "onnx", "onnxruntime", "tritonclient", "grpc")


def _invoke(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def _run(
    *arguments: str, folder: Path | None = None, code: int = 0
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "tconv", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_help_lists_every_command() -> None:
    output = _invoke("--help").output

    assert all(f"\n  {name} " in output for name in COMMANDS)
    assert "\n  Example:\n      tconv build" in output  # a line of its own, and not wrapped


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, flag: str) -> None:
    output = _invoke(name, flag).output

    assert f"\n  Example:\n      tconv {name}" in output
    assert "\\b" not in output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    options = [p for p in main.commands[name].params if isinstance(p, click.Option)]

    assert [option.name for option in options if not option.help] == []


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"serve"}))
def test_every_command_that_ends_has_json(name: str) -> None:
    command = main.commands[name]
    parts = command.commands.values() if isinstance(command, click.Group) else (command,)
    for part in parts:
        assert any("--json" in parameter.opts for parameter in part.params), part.name


def test_the_version_is_the_packages() -> None:
    assert __version__ in _invoke("--version").output


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("bild", "x"), id="command"),
        pytest.param(("build",), id="no model"),
        pytest.param(("build", "x:y", "--nonsense"), id="option"),
        pytest.param(("build", "x:y", "--timeout", "0"), id="timeout"),
        pytest.param(("build", "x:y", "--timeout", "soon"), id="number"),
        pytest.param(("build", "x:y", "--memory-limit", "lots"), id="size"),
        pytest.param(("build", "x:y", "--max-batch-size", "-1"), id="batch"),
        pytest.param(("build", "x:y", "--exporter", "magic"), id="exporter"),
        pytest.param(("build", "x:y", "--preferred-batch-size", "4;8"), id="sizes"),
        pytest.param(("build", "x:y", "--template", "absent.pbtxt"), id="template"),
    ],
)
def test_a_wrong_command_line_ends_in_2(arguments: tuple[str, ...]) -> None:
    result = _invoke(*arguments, code=2)

    assert "Error: " in result.stderr
    assert not result.stdout


@pytest.mark.parametrize("command", ["convert", "validate", "export", "publish"])
def test_a_stage_without_a_workspace_ends_in_2(command: str, tmp_path: Path) -> None:
    result = _invoke(command, str(tmp_path / "absent"), code=2)

    assert "is no finished workspace" in result.stderr
    assert "tconv build" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_as_json_is_one_document(tmp_path: Path) -> None:
    done = _run("inspect", str(tmp_path / "absent"), "--json", code=2)

    error = json.loads(done.stdout)["error"]
    assert set(error) == {"kind", "problem", "remedy"}
    assert error["kind"] == "UsageProblem"
    assert done.stderr == f"error: {error['problem']}\n  try: {error['remedy']}\n"


def test_help_and_targets_load_no_framework() -> None:
    code = (
        "import sys\n"
        "from click.testing import CliRunner\n"
        "from tconv.cli import main\n"
        "for arguments in (['--help'], ['build', '--help'], ['targets']):\n"
        "    assert CliRunner().invoke(main, arguments).exit_code == 0\n"
        f"print(*[name for name in {FRAMEWORKS} if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


def test_targets_as_json() -> None:
    found = msgspec.json.decode(_invoke("targets", "--json").stdout, type=dict[str, Availability])

    assert tuple(found) == TARGET_NAMES
    assert found["onnx"] == Availability()
    plain = _invoke("targets").stdout
    assert all(name in plain for name in TARGET_NAMES)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Report, str]:
    """A build by the command, once: where, its record, and what it said on stderr."""
    folder = tmp_path_factory.mktemp("built")
    model = f"{MODELS / 'traps.py'}:plain_mlp"
    done = _run("build", model, "--targets", "torchscript", "--json", folder=folder)
    return folder, msgspec.json.decode(done.stdout, type=Report), done.stderr


def test_a_build_prints_its_record_and_nothing_else(built: tuple[Path, Report, str]) -> None:
    folder, report, stderr = built

    assert report.exit_code == 0
    assert isinstance(report.targets[0].verdict, Passed)
    path = folder / "build" / "plain_mlp" / "report.json"
    assert msgspec.json.decode(path.read_bytes(), type=Report) == report
    assert "torchscript: converting" in stderr
    assert "{" not in stderr


def test_a_build_for_people_keeps_talk_apart(built: tuple[Path, Report, str]) -> None:
    folder = built[0]

    done = _run("export", "build/plain_mlp", "--repository", "second", folder=folder)

    assert done.stdout.startswith("target")
    assert "second/plain_mlp_torchscript/1" in done.stdout
    assert "Next: tconv serve --repository second" in done.stdout
    assert "exporting" in done.stderr
    assert "exporting" not in done.stdout
    assert "\x1b" not in done.stdout + done.stderr  # no colours where no terminal is


def test_verbose_shows_the_logs(built: tuple[Path, Report, str]) -> None:
    done = _run("validate", "build/plain_mlp", "--verbose", "--json", folder=built[0])

    assert "torchscript-validate.log" in done.stderr
    assert msgspec.json.decode(done.stdout, type=Report).exit_code == 0


def test_a_stage_that_says_no_ends_in_1(built: tuple[Path, Report, str]) -> None:
    done = _run(
        *("validate", "build/plain_mlp", "--tolerance", "output=1e-30", "--json"),
        folder=built[0],
        code=1,
    )

    report = msgspec.json.decode(done.stdout, type=Report)
    assert report.exit_code == 1
    assert isinstance(report.targets[0].verdict, Failed)


@pytest.mark.parametrize(
    "path",
    [
        "build/plain_mlp",
        "models/plain_mlp_torchscript",
    ],
)
def test_inspect_tells_the_signature(built: tuple[Path, Report, str], path: str) -> None:
    folder = built[0]
    expected = ("input:float32[batch=1..8,8]", "output:float32[batch=1..8,4]")

    done = _run("inspect", path, "--json", folder=folder)

    signature: Any = msgspec.json.decode(done.stdout, type=Signature)
    assert tuple(map(str, (*signature.inputs, *signature.outputs))) == expected
    plain = _run("inspect", path, folder=folder).stdout
    assert plain == f"input  {expected[0]}\noutput {expected[1]}\n"


def test_a_reader_that_leaves_is_no_bug(built: tuple[Path, Report, str]) -> None:
    command = f"{sys.executable} -m tconv inspect {built[0]}/build/plain_mlp --json | true"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert "bug in tconv" not in done.stderr
    assert "Traceback" not in done.stderr
