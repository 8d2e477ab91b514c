"""What a publish promises, on a real server: no client notices, and the way back is proven."""

from __future__ import annotations

import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from tconv.artifact import Artifact, list_files
from tconv.cli import main
from tconv.errors import TconvError, Unavailable, UsageProblem
from tconv.export.history import check_whole, list_versions, roll_back, verify_files
from tconv.export.ledger import State
from tconv.export.publish import publish
from tconv.export.remote import RemoteTriton
from tconv.export.repository import pins_of, versions_of
from tconv.validate.server import TritonRunner

pytestmark = [pytest.mark.serve, pytest.mark.timeout(300)]


class Clients:
    """Four clients that ask without pause, and note each answer."""

    def __init__(self, desk: Any) -> None:
        self.desk, self.answers = desk, Counter[str]()
        self._end, self._lock = threading.Event(), threading.Lock()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def _ask(self) -> None:
        signature = self.desk.signature
        artifact = Artifact("onnx", "r", (), signature)
        feeds = {"x": np.ones((1, 3), np.float32)}
        found = Counter[str]()
        with TritonRunner(self.desk.server.grpc_url, "m", "", artifact, batched=True) as runner:  # type: ignore[arg-type]
            while not self._end.is_set():
                try:
                    found[str(float(runner(feeds)["y"][0, 0]))] += 1
                except Exception as error:
                    found[f"failed: {error}"] += 1
        with self._lock:
            self.answers += found


def _switch_under_load(desk: Any, times: int) -> Counter[str]:
    publish(desk.build(2.0))
    with Clients(desk) as clients:
        for turn in range(times):
            publish(desk.build(3.0 + turn))
            with desk.site() as site:
                roll_back(site, "m", 1)
    return clients.answers


def test_no_client_notices(desk: Any) -> None:
    answers = _switch_under_load(desk, 2)
    assert set(answers) <= {"2.0", "3.0", "4.0"}
    assert answers.total() > 100


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_client_notices_twenty_publishes_and_rollbacks(desk: Any) -> None:
    answers = _switch_under_load(desk, 20)
    print(answers.total(), answers)
    assert set(answers) <= {"2.0", *(str(3.0 + turn) for turn in range(20))}
    assert answers.total() >= 30_000


@pytest.mark.slow
def test_back_and_forth_by_number(desk: Any) -> None:
    for factor in (2.0, 3.0, 4.0):
        publish(desk.build(factor))
    with desk.site() as site:
        assert roll_back(site, "m").version == 2
        assert desk.answers() == 3.0
        assert roll_back(site, "m", 1).previous == 2
        assert desk.answers() == 2.0
        with pytest.raises(UsageProblem):
            roll_back(site, "m", 9)
    found = list_versions(str(desk.served), "m", desk.server.grpc_url)
    assert [(v.version, v.pinned, v.on_disk) for v in found] == [
        (1, True, True),
        (2, False, True),
        (3, False, True),
    ]
    assert [v.served == "READY" for v in found] == [True, False, False]
    assert all(v.digest and v.when and v.by and v.build for v in found)


@pytest.mark.slow
def test_versions_that_stay_served_and_versions_that_go(desk: Any) -> None:
    publish(desk.build(2.0))
    both = publish(msgspec.structs.replace(desk.build(3.0), also_serve=(1,)))
    assert both.serves == (1, 2) == pins_of(desk.served / "m")
    with RemoteTriton(desk.server.grpc_url) as server:
        ready = {v for (name, v), s in server.versions().items() if (name, s) == ("m", "READY")}
    assert ready == {1, 2}
    publish(desk.build(4.0))
    kept = publish(msgspec.structs.replace(desk.build(5.0), keep=1))
    assert kept.removed == (1, 2)
    assert versions_of(desk.served / "m") == (3, 4)
    with pytest.raises(UsageProblem, match="has no version 1"):
        publish(msgspec.structs.replace(desk.build(6.0), also_serve=(1,)))


def test_a_changed_file_is_noticed(desk: Any) -> None:
    publish(desk.build(2.0))
    check_whole(verify_files(str(desk.served), "m"))
    (desk.served / "m" / "1" / "model.onnx").write_bytes(b"other")
    with pytest.raises(TconvError, match="is not the file") as caught:
        check_whole(verify_files(str(desk.served), "m"))
    assert caught.value.exit_code == 1


def test_a_dry_run_changes_nothing(desk: Any) -> None:
    publish(desk.build(2.0))
    before = desk.tree()
    planned = publish(msgspec.structs.replace(desk.build(3.0), dry_run=True))
    assert (planned.version, planned.previous) == (2, 1)
    assert "m/config.pbtxt" in " ".join(planned.plan)
    assert desk.tree() == before
    assert desk.answers() == 2.0


@pytest.mark.slow
def test_two_publishers(desk: Any) -> None:
    publish(desk.build(2.0))
    with State(desk.served).locked(), pytest.raises(Unavailable, match="Another tconv"):
        publish(desk.build(3.0))
    assert publish(desk.build(3.0)).version == 2


@pytest.mark.slow
def test_strange_neighbours_are_named_and_left_alone(desk: Any) -> None:
    home = desk.served / "m"
    publish(desk.build(2.0))
    strange = [home / "09", home / "2.old", home / "3.tmp", desk.served / ".hidden"]
    for folder in strange:
        folder.mkdir()
    broken = desk.served / "broken"
    broken.mkdir()
    done = publish(desk.build(3.0))
    assert done.version == 10
    said = " ".join(done.warnings)
    assert all(name in said for name in ("m/09", "m/2.old", "m/3.tmp", ".hidden", "broken"))
    assert all(folder.is_dir() for folder in (*strange, broken))
    assert desk.answers() == 3.0


def test_no_link_is_followed_out_of_the_repository(desk: Any, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, desk.served / "m")
    with pytest.raises(UsageProblem, match="is a link"):
        publish(desk.build(2.0))
    assert list(outside.iterdir()) == []


def _corrupt(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"no model")


def _relist(folder: Path) -> None:
    """Make the manifest agree with what the folder holds, as a build of it would."""
    path = folder / "tconv.json"
    manifest = msgspec.json.decode(path.read_bytes())
    path.unlink()
    files = list_files(folder)
    digest = Artifact("onnx", "r", files, None).digest  # type: ignore[arg-type]
    manifest["artifact"]["files"] = msgspec.to_builtins(files)
    manifest["digest"] = digest
    path.write_bytes(msgspec.json.encode(manifest))


@pytest.mark.slow
@pytest.mark.parametrize("listed", [True, False], ids=["built-so", "changed-later"])
def test_a_corrupt_file(desk: Any, listed: bool) -> None:
    publish(desk.build(2.0))
    request = desk.build(3.0)
    _corrupt(Path(request.source))
    if listed:
        _relist(Path(request.source))
    with pytest.raises(TconvError) as caught:
        publish(request)
    assert caught.value.exit_code == 5
    assert desk.answers() == 2.0


@pytest.mark.parametrize(
    "change",
    [{"truth": 9.0}, {"max_batch_size": 1}],
    ids=["lies", "smaller-batch"],
)
def test_a_bad_version_never_serves(desk: Any, change: dict[str, Any]) -> None:
    publish(desk.build(2.0))
    with pytest.raises(TconvError) as caught:
        publish(desk.build(3.0, **change))
    assert caught.value.exit_code in {1, 5}
    assert desk.answers() == 2.0


def test_a_missing_version(desk: Any) -> None:
    request = desk.build(2.0)
    shutil.rmtree(request.source)
    with pytest.raises(UsageProblem):
        publish(request)


@pytest.mark.slow
def test_the_commands(desk: Any) -> None:
    publish(desk.build(2.0))
    publish(desk.build(3.0))
    place = ("--repository", str(desk.served))
    url = ("--url", desk.server.grpc_url)
    calls: dict[str, Callable[[], tuple[str, ...]]] = {
        "recovered": lambda: ("publish", "--recover", *place, *url, "--json"),
        '"previous": 2': lambda: ("rollback", "m", *place, *url, "--json"),
        '"pinned": true': lambda: ("versions", "m", *place, *url, "--json"),
        '"problems": []': lambda: ("verify", "m", *place, "--json"),
    }
    for expected, call in calls.items():
        run = CliRunner().invoke(main, call())
        assert run.exit_code == 0, run.output
        assert expected in run.output
