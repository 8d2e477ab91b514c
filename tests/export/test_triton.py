from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tconv.errors import TconvError, Unavailable, UsageProblem
from tconv.export import triton as triton_module
from tconv.export.installation import Installation
from tconv.export.ports import Ports
from tconv.export.triton import LocalTriton

pytestmark = [pytest.mark.serve, pytest.mark.timeout(60)]


def test_nothing_is_left_after_a_stop(identity: Path, watch: Any) -> None:
    with LocalTriton() as triton:
        triton.start(identity)
        triton.require("identity")
        folder = triton.log.parent
        processes = watch.processes()
        segments = [*Path("/dev/shm").glob(f"{folder.name}*")]
        assert len(processes) >= 3, "keeper, server and stub"
        assert segments, "the stub's shared memory"
        assert folder.is_dir()
    assert not watch.processes()
    assert not [segment for segment in segments if segment.exists()]
    assert not folder.exists()


def test_two_servers_run_side_by_side(identity: Path, triton: Callable[..., LocalTriton]) -> None:
    first, second = triton(identity, load=[]), triton(identity, load=[])
    assert {*_numbers(first.ports)}.isdisjoint(_numbers(second.ports))
    assert first.version() == second.version()
    first.stop()
    assert second.is_running
    second.stop()


def _numbers(ports: Ports) -> tuple[int, int, int]:
    return ports.http, ports.grpc, ports.metrics


@pytest.mark.parametrize("kind", ["http", "grpc", "metrics"])
def test_a_taken_port_is_named_with_its_option(identity: Path, kind: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with LocalTriton() as triton, pytest.raises(UsageProblem) as caught:
            triton.start(identity, Ports(**{kind: port}))
    assert str(port) in caught.value.problem
    assert f"--{kind}-port" in caught.value.remedy


def test_one_port_cannot_serve_twice(identity: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with LocalTriton() as triton, pytest.raises(UsageProblem, match=str(port)):
        triton.start(identity, Ports(http=port, grpc=port))


def test_a_repository_must_exist(tmp_path: Path) -> None:
    with LocalTriton() as triton, pytest.raises(UsageProblem, match="no model repository"):
        triton.start(tmp_path / "missing")


def test_a_server_that_ends_at_once_shows_its_log(
    identity: Path, program: Callable[[str], Path]
) -> None:
    binary = program("echo I cannot find my library >&2; exit 7")
    with LocalTriton(Installation("given", binary)) as triton, pytest.raises(Unavailable) as error:
        triton.start(identity)
    assert "exit code 7" in error.value.problem
    assert "I cannot find my library" in error.value.problem


def test_a_program_that_does_not_run_is_explained(
    identity: Path, program: Callable[[str], Path]
) -> None:
    binary = program("")
    binary.write_bytes(b"\x7fELF, but not really")
    with LocalTriton(Installation("given", binary)) as triton, pytest.raises(Unavailable) as error:
        triton.start(identity)
    assert "Exec format error" in error.value.problem


def test_a_server_that_never_gets_ready_is_stopped(
    identity: Path, watch: Any, program: Callable[[str], Path]
) -> None:
    binary = program("sleep 1000 & sleep 1000")
    with (
        LocalTriton(Installation("given", binary)) as triton,
        pytest.raises(Unavailable, match=r"not ready within 0\.5 s"),
    ):
        triton.start(identity, timeout=0.5)
    assert not watch.processes()


def test_the_death_of_a_server_is_noticed_and_leaves_nothing(identity: Path, watch: Any) -> None:
    with LocalTriton() as triton:
        triton.start(identity)
        os.kill(watch.find("tritonserver"), signal.SIGKILL)
        watch.until(lambda: not triton.is_running)
        assert "exit code 137" in triton.death().problem
        assert not watch.processes()


def test_the_server_goes_when_its_keeper_is_killed(identity: Path, watch: Any) -> None:
    with LocalTriton() as triton:
        triton.start(identity)
        os.kill(watch.find(Path(sys.executable).name), signal.SIGKILL)
        watch.until(lambda: not triton.is_running)
        watch.until(lambda: not watch.processes())


def test_the_server_goes_when_its_parent_is_killed(identity: Path, watch: Any) -> None:
    code = f"""
        import time
        from pathlib import Path
        from tconv.export.triton import LocalTriton
        triton = LocalTriton()
        triton.start(Path({str(identity)!r}))
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
    watch.until(lambda: not watch.processes())
    watch.until(lambda: not folder.exists())
    assert not [*Path("/dev/shm").glob(f"{folder.name}*")]


def test_a_bad_model_is_reported_and_does_not_stop_the_others(
    identity: Path, triton: Callable[..., LocalTriton], add_identity: Callable[..., None]
) -> None:
    for name, text in {"unread": 'platform: "', "unbuilt": 'backend: "nothing"'}.items():
        add_identity(identity, name, text)
    running = triton(identity)
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


def test_a_port_that_is_lost_at_the_last_moment_is_chosen_again(
    identity: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        lost = [rival.getsockname()[1]]

        def claim(ports: Ports, host: str) -> Ports:
            chosen = real_claim(ports, host)
            return msgspec.structs.replace(chosen, grpc=lost.pop()) if lost else chosen

        real_claim = triton_module.claim
        monkeypatch.setattr(triton_module, "claim", claim)
        with LocalTriton() as triton:
            triton.start(identity, load=[])
            assert not lost
            assert triton.ports.grpc != rival.getsockname()[1]
