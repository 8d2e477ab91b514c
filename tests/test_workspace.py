from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tconv.artifact import Artifact
from tconv.errors import TconvError, Unavailable, UsageProblem
from tconv.report import Batching, NotJudged, Prepared, TargetReport
from tconv.spec import Signature, parse_tensor
from tconv.workspace import Workspace, writing

SIGNATURE = Signature((parse_tensor("größe:float32[batch=1..8]"),))
PREPARED = Prepared("m.py:f", "python", "torch", SIGNATURE, Batching(8), noise={"y": 1e-7})
REPORT = TargetReport("onnx", NotJudged("p", "r"), (), Artifact("onnx", "dynamo", (), SIGNATURE))


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "build" / "m")


def test_records_come_back(workspace: Workspace) -> None:
    workspace.write("source.json", PREPARED)
    workspace.write("artifacts/onnx.json", REPORT)
    assert workspace.prepared() == PREPARED
    assert workspace.target("onnx") == REPORT


def test_a_record_is_readable_text_and_nothing_lies_beside_it(workspace: Workspace) -> None:
    workspace.write("source.json", PREPARED)
    assert '\n  "model": "m.py:f",' in (workspace.folder / "source.json").read_text()
    assert [path.name for path in workspace.folder.iterdir()] == ["source.json"]


def test_the_folder_does_not_follow_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = Workspace(Path("build"))
    monkeypatch.chdir("/")
    assert workspace.folder == tmp_path / "build"


def test_a_failed_write_keeps_the_old_record(workspace: Workspace) -> None:
    workspace.write("source.json", PREPARED)
    with pytest.raises(TypeError):
        workspace.write("source.json", {"no JSON": object()})
    (workspace.folder / "source.json.part").mkdir()  # in the way of the next write
    with pytest.raises(UsageProblem):
        workspace.write("source.json", REPORT)
    assert workspace.prepared() == PREPARED


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"[]", id="another form"),
        pytest.param(b'{"model": 1}', id="another type"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
def test_a_spoilt_record_is_explained(workspace: Workspace, content: bytes) -> None:
    workspace.folder.mkdir(parents=True)
    (workspace.folder / "source.json").write_bytes(content)
    with pytest.raises(UsageProblem, match=r"source\.json can't be read") as caught:
        workspace.prepared()
    assert "tconv build" in caught.value.remedy


@pytest.mark.parametrize("there", [True, False], ids=["empty folder", "no folder"])
def test_a_missing_record_is_explained(workspace: Workspace, there: bool) -> None:
    if there:
        workspace.folder.mkdir(parents=True)
    with pytest.raises(UsageProblem, match=r"no finished workspace: it has no report\.json"):
        workspace.report()


def test_clearing_keeps_what_the_source_needs(workspace: Workspace) -> None:
    workspace.write("source.json", PREPARED)
    workspace.write("request.json", {})
    workspace.write("artifacts/onnx.json", REPORT)
    for folder in ("samples/pool", "logs", "source"):
        (workspace.folder / folder).mkdir(parents=True)
        (workspace.folder / folder / "file").touch()
    workspace.clear()
    assert {path.name for path in workspace.folder.iterdir()} == {"request.json", "source"}
    assert (workspace.folder / "source" / "file").exists()
    workspace.clear()


@pytest.mark.parametrize("method", ["clear", "write"])
def test_a_file_in_the_way_is_explained(tmp_path: Path, method: str) -> None:
    (tmp_path / "build").touch()
    workspace = Workspace(tmp_path / "build" / "m")
    with pytest.raises(UsageProblem, match="can't be written") as caught:
        workspace.clear() if method == "clear" else workspace.write("source.json", PREPARED)
    assert "--output" in caught.value.remedy


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        pytest.param(errno.ENOSPC, Unavailable, id="full"),
        pytest.param(errno.EDQUOT, Unavailable, id="quota"),
        pytest.param(errno.EACCES, UsageProblem, id="not allowed"),
        pytest.param(errno.EROFS, UsageProblem, id="read-only"),
        pytest.param(errno.ENAMETOOLONG, UsageProblem, id="name too long"),
    ],
)
def test_what_keeps_a_file_from_being_written(
    tmp_path: Path, number: int, kind: type[TconvError]
) -> None:
    with pytest.raises(kind) as caught, writing(tmp_path):
        raise OSError(number, os.strerror(number))
    assert type(caught.value) is kind
    assert str(tmp_path) in caught.value.problem


def test_a_full_disk_is_explained() -> None:
    with pytest.raises(Unavailable, match="disk is full"), writing(Path("/dev/full")):
        Path("/dev/full").write_text("x")


def test_names_of_places(workspace: Workspace) -> None:
    folder = workspace.folder
    assert workspace.samples == folder / "samples"
    assert workspace.artifact("onnx") == folder / "artifacts" / "onnx"
    assert workspace.log("onnx-dynamo") == folder / "logs" / "onnx-dynamo.log"
