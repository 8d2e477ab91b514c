from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tconv.errors import BUG, ConversionError, MissingExtra, TconvError
from tconv.process import Crash, Finished, Processes, read_tail

pytestmark = pytest.mark.timeout(60)

CHILD = '''
import ctypes, os, signal, subprocess, sys, threading, time
from tconv.errors import ConversionError, MissingExtra

def give(value=None): return value
def environment(name): return os.environ.get(name)
def pid(): return os.getpid()
def refuse(): raise ConversionError("Größe → 3.", remedy="Try 2.")
def lacks(): raise MissingExtra("No torch.", remedy="Install it.")
def bug(): return {}["missing"]
def leave(code): sys.exit(code)
def stop(): raise KeyboardInterrupt
def die(number): os.kill(os.getpid(), number); time.sleep(60)
def segfault(): ctypes.string_at(0)
def end(code): os._exit(code)
def sleep(seconds): time.sleep(seconds); return "slept"
def read(): return sys.stdin.read()
def unjson(): return {1, 2}
def recurse(): return recurse()

def allocate(size):
    block = bytearray(size)
    block[::4096] = b"x" * len(block[::4096])
    return len(block)

def talk(lines, text):
    for number in range(lines): print(number, text)
    print("to stderr", file=sys.stderr)
    os.write(1, b"\\xff raw\\n")

def family(folder, seconds=60, crash=False):
    """Start a child that starts a child, and write down all three."""
    code = "import subprocess, sys, time, os; " \\
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); " \\
        f"open('{folder}/pids', 'a').write(f' {{p.pid}} {{os.getpid()}} '); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", code])
    while not os.path.exists(f"{folder}/pids"): time.sleep(0.01)
    open(f"{folder}/job", "w").write(str(os.getpid()))
    open(f"{folder}/pids", "a").write(f" {os.getpid()} ")
    if crash: os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(seconds)

def thread_and_return():
    threading.Thread(target=time.sleep, args=(60,)).start()
    return "done"
'''

Run = Callable[..., Finished]


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    folder = tmp_path_factory.mktemp("importable")
    (folder / "child_calls.py").write_text(CHILD, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        with Processes(("child_calls", "no_such_module")) as running:
            yield running


@pytest.fixture
def run(processes: Processes, tmp_path: Path) -> Run:
    def call(name: str, log: Path = tmp_path / "logs" / "job.log", **arguments: Any) -> Finished:
        limits = {k: arguments.pop(k) for k in ("timeout", "memory_limit") if k in arguments}
        return processes.run(f"child_calls:{name}", arguments, log=log, **limits)

    return call


def _crash(finished: Finished) -> Crash:
    assert isinstance(finished.outcome, Crash), finished.outcome
    return finished.outcome


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits to be collected does not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _await(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize(
    "value", [None, 0, "größe", [1, {"a": None}], 1e300], ids=["none", "0", "text", "nested", "big"]
)
def test_a_value_comes_back(run: Run, value: Any) -> None:
    finished = run("give", value=value)
    assert finished.outcome == value
    assert finished.failure is None
    assert finished.cost.seconds > 0


@pytest.mark.parametrize(
    ("name", "kind", "problem"),
    [("refuse", ConversionError, "Größe → 3."), ("lacks", MissingExtra, "No torch.")],
)
def test_an_error_comes_back(run: Run, name: str, kind: type[TconvError], problem: str) -> None:
    failure = run(name).failure
    assert type(failure) is kind
    assert failure.problem == problem


def test_a_bug_keeps_its_traceback(run: Run) -> None:
    crash = _crash(run("bug"))
    assert crash.is_bug
    assert crash.reason == "KeyError: 'missing'"
    assert 'return {}["missing"]' in crash.tail
    assert not crash.timed_out


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        pytest.param("segfault", {}, "it crashed with SIGSEGV", id="segfault"),
        pytest.param("die", {"number": signal.SIGABRT}, "it crashed with SIGABRT", id="abort"),
        pytest.param("die", {"number": signal.SIGKILL}, "it was killed (SIGKILL)", id="killed"),
        pytest.param("end", {"code": 3}, "it ended by itself with exit code 3", id="exit"),
        pytest.param("end", {"code": 0}, "it ended by itself with exit code 0", id="exit 0"),
    ],
)
def test_an_end_without_a_result(
    run: Run, name: str, arguments: dict[str, Any], reason: str
) -> None:
    crash = _crash(run(name, **arguments))
    assert crash.reason.startswith(reason)
    assert not crash.is_bug
    assert run("give", value=1).outcome == 1  # the server lives on


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        pytest.param("leave", {"code": 0}, "SystemExit: 0", id="exit 0"),
        pytest.param("leave", {"code": "why"}, "SystemExit: why", id="exit with words"),
        pytest.param("stop", {}, "KeyboardInterrupt", id="interrupt"),
        pytest.param("unjson", {}, "TypeError: Object of type set", id="no JSON"),
        pytest.param("recurse", {}, "RecursionError: ", id="recursion"),
        pytest.param("no_such_name", {}, "AttributeError: ", id="no such function"),
    ],
)
def test_whatever_ends_a_call_is_told(
    run: Run, name: str, arguments: dict[str, Any], says: str
) -> None:
    crash = _crash(run(name, **arguments))
    assert crash.reason.startswith(says)
    assert "Traceback" in Path(crash.log).read_text(encoding="utf-8")


def _family_pids(folder: Path) -> list[int]:
    return [int(pid) for pid in (folder / "pids").read_text().split()]


def test_a_time_limit_ends_the_whole_family(run: Run, tmp_path: Path) -> None:
    finished = run("family", folder=str(tmp_path), timeout=3)
    crash = _crash(finished)
    assert crash.timed_out
    assert crash.reason == "it was still running after 3 s and was stopped"
    assert 3 <= finished.cost.seconds < 10
    pids = _family_pids(tmp_path)
    assert len(pids) == 3
    assert _await(lambda: not any(map(_is_alive, pids)))


@pytest.mark.parametrize("crash", [True, False], ids=["crash", "return"])
def test_no_job_leaves_children_behind(run: Run, tmp_path: Path, crash: bool) -> None:
    run("family", folder=str(tmp_path), seconds=0, crash=crash)
    pids = _family_pids(tmp_path)
    assert _await(lambda: not any(map(_is_alive, pids)))


def test_a_job_in_time_is_not_stopped(run: Run) -> None:
    assert run("sleep", seconds=0.3, timeout=20).outcome == "slept"


def test_a_result_counts_although_a_thread_still_runs(run: Run) -> None:
    assert run("thread_and_return", timeout=20).outcome == "done"


def test_the_memory_limit_is_explained(run: Run) -> None:
    crash = _crash(run("allocate", size=1 << 30, memory_limit=600 << 20))
    assert crash.reason == "it ran out of memory"
    assert run("allocate", size=1 << 20, memory_limit=600 << 20).outcome == 1 << 20


def test_the_peak_memory_is_the_childs(run: Run) -> None:
    small = run("give").cost.peak_memory
    large = run("allocate", size=300 << 20).cost.peak_memory
    assert 299 << 20 <= large - small < 320 << 20
    assert run("give").cost.peak_memory < small + (20 << 20)


def test_the_log_holds_everything_the_tail_its_end(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "größe" / "my job.log"
    assert run("talk", log=log, lines=100_000, text="→ " + "x" * 50).outcome is None
    lines = log.read_bytes().decode(errors="replace").splitlines()
    assert len(lines) == 100_002
    assert lines[99_999] == "99999 → " + "x" * 50
    assert lines[-2:] == ["to stderr", "� raw"]
    assert read_tail(log).splitlines() == lines[-15:]


def test_the_tail_of_no_log_and_of_one_long_line(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "none") == ""
    (tmp_path / "log").write_bytes(b"x" * (1 << 22) + b"\nend")
    tail = read_tail(tmp_path / "log")
    assert tail.endswith("x\nend")
    assert len(tail) < 1 << 20


@pytest.mark.usefixtures("processes")
def test_text_of_any_script_is_logged_in_any_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tconv.process import Processes\n"
        "with Processes() as p:\n"
        "    done = p.run('child_calls:talk', {'lines': 1, 'text': '→ \\udcff'}, "
        "log=Path(sys.argv[1]))\n"
        "    assert done.outcome is None, done.outcome\n"
    )
    monkeypatch.setenv("LC_ALL", "en_US.ISO-8859-1")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "log")], check=True)
    assert "0 →" in (tmp_path / "log").read_text(encoding="utf-8", errors="replace")


def test_standard_input_is_empty(run: Run) -> None:
    assert run("read", timeout=20).outcome == ""


def test_the_environment_is_the_childs_alone(processes: Processes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    call, arguments = "child_calls:environment", {"name": "TCONV_TEST"}
    ours = processes.run(call, arguments, log=log, environment={"TCONV_TEST": "1"})
    assert ours.outcome == "1"
    assert processes.run(call, arguments, log=log).outcome is None
    assert "TCONV_TEST" not in os.environ


def test_a_stale_result_is_not_taken_for_new(run: Run) -> None:
    assert run("give", value="old").outcome == "old"
    assert _crash(run("end", code=0)).tail == ""


def test_the_same_call_runs_again_from_the_command(run: Run, tmp_path: Path) -> None:
    crash = _crash(run("bug", log=tmp_path / "it's a log.log"))
    again = subprocess.run(
        crash.reproduce, shell=True, capture_output=True, text=True, check=False, cwd="/"
    )
    assert again.returncode == BUG
    assert "KeyError: 'missing'" in again.stderr


def test_jobs_run_side_by_side(run: Run, tmp_path: Path) -> None:
    found: dict[int, Any] = {}

    def job(number: int) -> None:
        log = tmp_path / f"{number}.log"
        found[number] = (
            run("sleep", log=log, seconds=60, timeout=0.5 + number / 10)
            if number % 3 == 0
            else run("give", log=log, value=[number] * 1000)
        ).outcome

    threads = [threading.Thread(target=job, args=(number,)) for number in range(24)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.monotonic() - start < 20
    for number, outcome in found.items():
        if number % 3 == 0:
            assert outcome.timed_out
        else:
            assert outcome == [number] * 1000
    assert len(found) == 24


@pytest.mark.usefixtures("processes")
def test_leaving_ends_what_still_runs(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    with Processes(("child_calls",)) as mine:

        def job() -> None:
            arguments = {"folder": str(tmp_path)}
            done = mine.run("child_calls:family", arguments, log=tmp_path / "log")
            outcomes.append(done.outcome)

        thread = threading.Thread(target=job)
        thread.start()
        assert _await(lambda: (tmp_path / "pids").exists() and len(_family_pids(tmp_path)) == 3)
    thread.join(timeout=10)
    assert isinstance(outcomes[0], Crash)
    assert _await(lambda: not any(map(_is_alive, _family_pids(tmp_path))))


@pytest.mark.usefixtures("processes")
def test_the_death_of_the_server_is_told(tmp_path: Path) -> None:
    outcomes: list[Any] = []
    with Processes(("child_calls",)) as mine:
        server = mine.run("child_calls:give", {}, log=tmp_path / "a.log")
        assert server.outcome is None

        def job() -> None:
            arguments = {"folder": str(tmp_path)}
            outcomes.append(mine.run("child_calls:family", arguments, log=tmp_path / "log").outcome)

        thread = threading.Thread(target=job)
        thread.start()
        assert _await(lambda: (tmp_path / "pids").exists() and len(_family_pids(tmp_path)) == 3)
        job_pid = int((tmp_path / "job").read_text())
        parent = int(Path(f"/proc/{job_pid}/stat").read_text().split()[3])
        os.kill(parent, signal.SIGKILL)
        thread.join(timeout=10)
        assert isinstance(outcomes[0], Crash)
        with pytest.raises(TconvError, match="server") as caught:
            mine.run("child_calls:give", {}, log=tmp_path / "b.log")
        assert caught.value.remedy
        # The job itself is no orphan; what it started in turn is beyond reach.
        assert _await(lambda: not _is_alive(job_pid))
        for pid in _family_pids(tmp_path):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def test_no_zombie_is_left(run: Run) -> None:
    pids = [run("pid").outcome for _ in range(3)]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.usefixtures("processes")
def test_the_killed_parent_takes_its_jobs_along(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom tconv.process import Processes\n"
        "folder = sys.argv[1]\n"
        "with Processes() as p:\n"
        "    p.run('child_calls:family', {'folder': folder}, log=Path(folder) / 'log')\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    assert _await(lambda: (tmp_path / "pids").exists() and len(_family_pids(tmp_path)) == 3)
    parent.kill()
    parent.wait()
    assert _await(lambda: not any(map(_is_alive, _family_pids(tmp_path))))


def test_what_is_beside_the_log(run: Run, tmp_path: Path) -> None:
    run("give", value=3)
    names = {path.name for path in (tmp_path / "logs").iterdir()}
    assert names == {"job.log", "job.job.json", "job.result.json"}
    assert json.loads((tmp_path / "logs" / "job.result.json").read_text()) == {"value": 3}
