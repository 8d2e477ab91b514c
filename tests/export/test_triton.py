from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tconv.errors import MissingExtra, TconvError, Unavailable, UsageProblem
from tconv.export import installation
from tconv.export.installation import Installation, find_server
from tconv.export.ports import Ports
from tconv.export.triton import LocalTriton

pytestmark = [pytest.mark.serve, pytest.mark.timeout(60)]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    _write_model(folder, "identity")
    return folder


def _write_model(repository: Path, name: str) -> None:
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.onnx").write_bytes(model.SerializeToString())
    (repository / name / "config.pbtxt").write_text("""
        platform: "onnxruntime_onnx"
        max_batch_size: 8
        input { name: "x" data_type: TYPE_FP32 dims: [3] }
        output { name: "y" data_type: TYPE_FP32 dims: [3] }
        instance_group { kind: KIND_CPU count: 1 }
    """)


def _program(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tritonserver"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def _processes_of(repository: Path) -> dict[int, str]:
    """The server, its keeper and its stubs all have the repository in their command."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(repository) in command and int(entry.parent.name) != os.getpid():
            found[int(entry.parent.name)] = command
    return found


def _server_of(repository: Path) -> int:
    return _find_process(repository, lambda first: first.endswith("tritonserver"))


def _find_process(repository: Path, matches: Callable[[str], bool]) -> int:
    commands = _processes_of(repository).items()
    return next(pid for pid, command in commands if matches(command.split()[0]))


def _wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


# Finding a server


def test_a_given_server_goes_first(tmp_path: Path) -> None:
    given = _program(tmp_path, "exit 0")
    assert find_server(given) == Installation("given", given)


def test_the_server_on_path_goes_before_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = _program(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server() == Installation("path", on_path)


def test_the_server_in_the_wheel_is_known_as_such_when_given() -> None:
    in_wheel = find_server()
    assert in_wheel.kind == "wheel"
    assert find_server(in_wheel.binary) == in_wheel


def test_a_given_server_must_be_a_program(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="--triton-server"):
        find_server(tmp_path / "missing")


def test_no_server_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(MissingExtra, match=r"tconv\[serve\]"):
        find_server()


def test_a_python_without_a_stub_is_named(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "_PYTHON", "3.99")
    with LocalTriton() as triton, pytest.raises(Unavailable, match=r"Python 3\.99"):
        triton.start(repository)


# Starting and stopping


def test_nothing_is_left_after_a_stop(repository: Path) -> None:
    with LocalTriton() as triton:
        triton.start(repository)
        triton.require("identity")
        folder = triton.log.parent
        processes = _processes_of(repository)
        segments = [*Path("/dev/shm").glob(f"{folder.name}*")]
        assert len(processes) >= 3, "keeper, server and stub"
        assert segments, "the stub's shared memory"
        assert folder.is_dir()
    assert not _processes_of(repository)
    assert not [segment for segment in segments if segment.exists()]
    assert not folder.exists()


def test_two_servers_run_side_by_side(repository: Path, triton: Callable[..., LocalTriton]) -> None:
    first, second = triton(repository, load=[]), triton(repository, load=[])
    assert {*_numbers(first.ports)}.isdisjoint(_numbers(second.ports))
    assert first.version() == second.version()
    first.stop()
    assert second.is_running
    second.stop()


def _numbers(ports: Ports) -> tuple[int, int, int]:
    return ports.http, ports.grpc, ports.metrics


@pytest.mark.parametrize("kind", ["http", "grpc", "metrics"])
def test_a_taken_port_is_named_with_its_option(repository: Path, kind: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with LocalTriton() as triton, pytest.raises(UsageProblem) as caught:
            triton.start(repository, Ports(**{kind: port}))
    assert str(port) in caught.value.problem
    assert f"--{kind}-port" in caught.value.remedy


def test_one_port_cannot_serve_twice(repository: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with LocalTriton() as triton, pytest.raises(UsageProblem, match=str(port)):
        triton.start(repository, Ports(http=port, grpc=port))


def test_a_repository_must_exist(tmp_path: Path) -> None:
    with LocalTriton() as triton, pytest.raises(UsageProblem, match="no model repository"):
        triton.start(tmp_path / "missing")


def test_a_server_that_ends_at_once_shows_its_log(repository: Path, tmp_path: Path) -> None:
    program = _program(tmp_path / "bin", "echo I cannot find my library >&2; exit 7")
    with LocalTriton(Installation("given", program)) as triton, pytest.raises(Unavailable) as error:
        triton.start(repository)
    assert "exit code 7" in error.value.problem
    assert "I cannot find my library" in error.value.problem


def test_a_program_that_does_not_run_is_explained(repository: Path, tmp_path: Path) -> None:
    program = _program(tmp_path / "bin", "")
    program.write_bytes(b"\x7fELF, but not really")
    with LocalTriton(Installation("given", program)) as triton, pytest.raises(Unavailable) as error:
        triton.start(repository)
    assert "Exec format error" in error.value.problem


def test_a_server_that_never_gets_ready_is_stopped(repository: Path, tmp_path: Path) -> None:
    program = _program(tmp_path / "bin", "sleep 1000 & sleep 1000")
    with (
        LocalTriton(Installation("given", program)) as triton,
        pytest.raises(Unavailable, match=r"not ready within 0\.5 s"),
    ):
        triton.start(repository, timeout=0.5)
    assert not _processes_of(repository)


def test_the_death_of_a_server_is_noticed_and_leaves_nothing(repository: Path) -> None:
    with LocalTriton() as triton:
        triton.start(repository)
        os.kill(_server_of(repository), signal.SIGKILL)
        _wait_until(lambda: not triton.is_running)
        assert "exit code 137" in triton.death().problem
        assert not _processes_of(repository)


def test_the_server_goes_when_its_keeper_is_killed(repository: Path) -> None:
    with LocalTriton() as triton:
        triton.start(repository)
        os.kill(_find_process(repository, lambda first: "python3" in first), signal.SIGKILL)
        _wait_until(lambda: not triton.is_running)
        _wait_until(lambda: not _processes_of(repository))


def test_the_server_goes_when_its_parent_is_killed(repository: Path) -> None:
    code = f"""
        import time
        from pathlib import Path
        from tconv.export.triton import LocalTriton
        triton = LocalTriton()
        triton.start(Path({str(repository)!r}))
        print(triton.log.parent, flush=True)
        time.sleep(1000)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent.stdout:
        folder = Path(parent.stdout.readline().strip())
    assert folder.is_dir()
    parent.kill()
    parent.wait()
    _wait_until(lambda: not _processes_of(repository))
    _wait_until(lambda: not folder.exists())
    assert not [*Path("/dev/shm").glob(f"{folder.name}*")]


def test_a_bad_model_is_reported_and_does_not_stop_the_others(
    repository: Path, triton: Callable[..., LocalTriton]
) -> None:
    for name, text in {"unread": 'platform: "', "unbuilt": 'backend: "nothing"'}.items():
        _write_model(repository, name)
        (repository / name / "config.pbtxt").write_text(text)
    running = triton(repository)
    models = {model.name: model for model in running.models()}
    assert models["identity"].is_ready
    assert "failed to read text proto" in models["unread"].reason
    assert "nothing" in models["unbuilt"].reason
    running.require("identity")
    with pytest.raises(TconvError, match="unread: failed to read"):
        running.require()
    with pytest.raises(TconvError, match="absent: unknown model"):
        running.require("absent")
    running.stop()


# In the foreground


@pytest.fixture
def served(repository: Path) -> Iterator[subprocess.Popen[str]]:
    code = f"""
        import sys
        from pathlib import Path
        from tconv.errors import TconvError
        from tconv.export.ports import Ports
        from tconv.export.serve import serve
        try:
            sys.exit(serve(Path({str(repository)!r}), Ports(), say=lambda t: print(t, flush=True)))
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
    _wait_until(lambda: not _processes_of(repository))


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
    served: subprocess.Popen[str], repository: Path
) -> None:
    _read_until(served, "identity 1")
    os.kill(_server_of(repository), signal.SIGKILL)
    assert "exit code 137" in _read_until(served, "exit code")
    assert served.wait(30) == Unavailable.exit_code
