"""Accepted artifacts: kept once, fetched whole, and refused where they are not what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from tconv.artifact import Artifact, list_files
from tconv.errors import Unavailable
from tconv.gate.store import ArtifactStore
from tconv.spec import Signature


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}"


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Artifact]:
    folder = tmp_path / "artifact"
    (folder / "model.savedmodel").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "model.savedmodel" / "weights").write_bytes(b"weights")
    return folder, Artifact("onnx", "dynamo", list_files(folder), Signature(()))


def test_what_is_put_comes_back(place: str, made: tuple[Path, Artifact], tmp_path: Path) -> None:
    folder, artifact = made
    store = ArtifactStore(place)
    store.put(folder, artifact)
    store.put(folder, artifact)
    fetched = ArtifactStore(place).fetch(artifact.digest, tmp_path / "out")
    assert fetched == artifact
    assert list_files(tmp_path / "out") == artifact.files


def test_what_was_never_put(place: str, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="holds no artifact"):
        ArtifactStore(place).fetch("0" * 64, tmp_path / "out")


@pytest.mark.parametrize("victim", ["files/model.onnx", "artifact.json"])
def test_what_was_changed(tmp_path: Path, made: tuple[Path, Artifact], victim: str) -> None:
    folder, artifact = made
    store = ArtifactStore(str(tmp_path / "store"))
    store.put(folder, artifact)
    path = tmp_path / "store" / artifact.digest / victim
    path.write_bytes(path.read_bytes().replace(b"graph", b"grape").replace(b"onnx", b"onny"))
    with pytest.raises(Unavailable):
        store.fetch(artifact.digest, tmp_path / "out")


def test_half_an_artifact_is_none(tmp_path: Path, made: tuple[Path, Artifact]) -> None:
    folder, artifact = made
    store = ArtifactStore(str(tmp_path / "store"))
    store.put(folder, artifact)
    (tmp_path / "store" / artifact.digest / "artifact.json").unlink()
    with pytest.raises(Unavailable, match="holds no artifact"):
        store.fetch(artifact.digest, tmp_path / "out")


@pytest.mark.parametrize("address", ["nosuch://bucket/x", "/dev/null/store"])
def test_a_store_that_is_none(address: str, made: tuple[Path, Artifact]) -> None:
    folder, artifact = made
    with pytest.raises(Unavailable, match="can't be used"):
        ArtifactStore(address).put(folder, artifact)
