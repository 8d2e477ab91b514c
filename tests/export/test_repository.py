from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tconv.artifact import Artifact, hash_file, list_files
from tconv.errors import TconvError, Unavailable, UsageProblem
from tconv.export.config import ConfigOptions, render_config
from tconv.export.repository import (
    export_version,
    live_version,
    next_version,
    read_config,
    read_manifest,
    versions_of,
)
from tconv.report import Batching
from tconv.spec import Signature, parse_tensor

SIGNATURE = Signature((parse_tensor("x:float32[batch,3]"),), (parse_tensor("y:float32[batch,4]"),))


def _built(folder: Path, content: bytes = b"one") -> Artifact:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.onnx").write_bytes(content)
    return Artifact("onnx", "dynamo", list_files(folder), SIGNATURE, versions={"onnx": "1"})


def _config(artifact: Artifact, **options: Any) -> Any:
    return render_config(
        "m", artifact, "onnxruntime_onnx", Batching(8), ConfigOptions(**options), 1
    )


class Bench:
    """A repository, and a build whose content changes."""

    def __init__(self, folder: Path) -> None:
        self.build, self.repository = folder / "build", folder / "models"
        self.model = self.repository / "m"

    def export(self, content: bytes = b"one", **options: Any) -> Path:
        artifact = _built(self.build, content)
        return export_version(
            self.repository, "m", artifact, self.build, _config(artifact, **options)
        )

    def tree(self) -> list[str]:
        below = self.repository.parent.rglob("*")
        return sorted(
            str(path.relative_to(self.repository.parent))
            for path in below
            if self.build not in (path, *path.parents)
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_first_version(bench: Bench) -> None:
    folder = bench.export()
    assert folder == bench.model / "1"
    assert bench.tree() == [
        "models",
        "models/m",
        "models/m/1",
        "models/m/1/model.onnx",
        "models/m/1/tconv.json",
        "models/m/config.pbtxt",
    ]
    config = read_config(bench.model / "config.pbtxt")
    manifest = read_manifest(folder)
    assert list(config.version_policy.specific.versions) == [1]
    assert config.parameters["tconv_digest"].string_value == manifest.digest
    assert (manifest.model, manifest.version) == ("m", 1)
    assert manifest.artifact.signature == SIGNATURE
    (file,) = manifest.artifact.files
    assert file.sha256 == hash_file(folder / file.name)


def test_the_same_content_makes_no_new_version(bench: Bench) -> None:
    first = bench.export()
    before = (bench.model / "config.pbtxt").stat()
    assert bench.export() == first
    after = (bench.model / "config.pbtxt").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert versions_of(bench.model) == (1,)


def test_other_content_is_the_next_version(bench: Bench) -> None:
    bench.export(b"one")
    assert bench.export(b"two") == bench.model / "2"
    assert versions_of(bench.model) == (1, 2)
    assert live_version(bench.model) == 2
    assert (bench.model / "1" / "model.onnx").read_bytes() == b"one"


def test_only_the_config_changes(bench: Bench) -> None:
    first = bench.export()
    assert bench.export(queue_delay=7) == first
    config = read_config(bench.model / "config.pbtxt")
    assert config.dynamic_batching.max_queue_delay_microseconds == 7
    assert list(config.version_policy.specific.versions) == [1]


@pytest.mark.parametrize("damage", ["changed", "removed", "no manifest", "folder gone"])
def test_a_damaged_version_is_not_taken_for_the_same(bench: Bench, damage: str) -> None:
    file = bench.export() / "model.onnx"
    if damage == "changed":
        file.write_bytes(b"eno")
    elif damage == "removed":
        file.unlink()
    elif damage == "no manifest":
        file.with_name("tconv.json").unlink()
    else:
        file.parent.rename(bench.repository.parent / "moved")
    again = bench.export()
    assert again == bench.model / "2"
    assert (again / "model.onnx").read_bytes() == b"one"
    assert live_version(bench.model) == 2


@pytest.mark.parametrize(
    ("entries", "number"),
    [
        pytest.param([], 1, id="empty"),
        pytest.param(["1", "2"], 3, id="counts on"),
        pytest.param(["7", "10"], 11, id="by number, not by text"),
        pytest.param(["1", "3.tmp"], 4, id="3.tmp is 3 for Triton"),
        pytest.param(["004"], 5, id="leading zeros"),
        pytest.param(["1", "12345678901234567890"], 2, id="20 digits"),
        pytest.param(["999999999999999999"], 10**18, id="18 digits"),
        pytest.param(["labels.txt", "v9", "²"], 1, id="no digits first"),
    ],
)
def test_the_number_is_above_every_entry(bench: Bench, entries: list[str], number: int) -> None:
    bench.model.mkdir(parents=True)
    for entry in entries:
        (bench.model / entry).mkdir()
    assert next_version(bench.model) == number
    assert bench.export() == bench.model / str(number)


def test_a_file_that_changed_since_it_was_validated_is_refused(bench: Bench) -> None:
    bench.export()
    before = bench.tree()
    artifact = _built(bench.build, b"two")
    (bench.build / "model.onnx").write_bytes(b"twO")
    with pytest.raises(TconvError, match="not the file that was validated") as caught:
        export_version(bench.repository, "m", artifact, bench.build, _config(artifact))
    assert caught.value.exit_code == 1
    assert bench.tree() == before
    assert live_version(bench.model) == 1


def test_a_missing_file_leaves_nothing(bench: Bench) -> None:
    artifact = _built(bench.build)
    (bench.build / "model.onnx").unlink()
    with pytest.raises(TconvError, match="cannot be read"):
        export_version(bench.repository, "m", artifact, bench.build, _config(artifact))
    assert bench.tree() == []


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_old_version(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "disk"):
        bench = Bench(tmp_path / "disk" / "below")
        bench.build = tmp_path / "build"
        bench.export()
        before = bench.tree()
        with pytest.raises(Unavailable, match="no space"):
            bench.export(os.urandom(1 << 20))
        assert bench.tree() == before
        assert live_version(bench.model) == 1


def test_a_repository_that_is_a_mount_point_is_staged_in_the_model(tmp_path: Path) -> None:
    with _small_disk(tmp_path / "models"):
        bench = Bench(tmp_path)
        assert bench.export() == bench.model / "1"
        assert bench.export(b"two") == bench.model / "2"
        assert bench.export(b"two", queue_delay=3) == bench.model / "2"
        assert [path.name for path in bench.repository.iterdir()] == ["m"]
        assert sorted(os.listdir(bench.model)) == ["1", "2", "config.pbtxt"]
        artifact = _built(bench.build, os.urandom(1 << 20))
        with pytest.raises(Unavailable):
            export_version(bench.repository, "n", artifact, bench.build, _config(artifact))
        assert [path.name for path in bench.repository.iterdir()] == ["m"]


@pytest.fixture
def _nobody() -> Iterator[None]:
    """Take away root's right to write everywhere."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    yield
    if root:
        os.seteuid(0)


@pytest.mark.usefixtures("_nobody")
def test_a_folder_without_permission_is_refused() -> None:
    artifact = Artifact("onnx", "r", (), SIGNATURE)
    with pytest.raises(UsageProblem, match="cannot be written"):
        export_version(Path("/models"), "m", artifact, Path("/"), _config(artifact))


@pytest.mark.parametrize("place", ["models", "models/m"])
def test_a_file_where_a_folder_must_be_is_refused(bench: Bench, place: str) -> None:
    path = bench.repository.parent / place
    path.parent.mkdir(exist_ok=True)
    path.write_text("")
    with pytest.raises(UsageProblem):
        bench.export()
    assert path.is_file()


def test_a_model_of_somebody_else_is_left_alone(bench: Bench) -> None:
    bench.model.mkdir(parents=True)
    config = bench.model / "config.pbtxt"
    config.write_text('backend: "python"\n')
    with pytest.raises(UsageProblem, match="did not export"):
        bench.export()
    assert config.read_text() == 'backend: "python"\n'
    artifact = _built(bench.build)
    export_version(bench.repository, "m", artifact, bench.build, _config(artifact), adopt=True)
    assert live_version(bench.model) == 1


def test_a_config_that_cannot_be_replaced_leaves_no_version(bench: Bench) -> None:
    bench.export()
    (bench.model / "config.pbtxt").unlink()
    (bench.model / "config.pbtxt").mkdir()
    (bench.model / "config.pbtxt" / "x").touch()
    artifact = _built(bench.build, b"two")
    with pytest.raises(TconvError):
        export_version(bench.repository, "m", artifact, bench.build, _config(artifact), adopt=True)
    assert versions_of(bench.model) == (1,)


def test_exports_at_the_same_time_get_numbers_of_their_own(tmp_path: Path) -> None:
    def export(number: int) -> Path:
        folder = tmp_path / f"build{number}"
        artifact = _built(folder, str(number).encode())
        return export_version(tmp_path / "models", "m", artifact, folder, _config(artifact))

    with ThreadPoolExecutor(4) as pool:
        folders = list(pool.map(export, range(8)))
    assert sorted(int(folder.name) for folder in folders) == list(range(1, 9))
    for number, folder in enumerate(folders):
        assert (folder / "model.onnx").read_bytes() == str(number).encode()
    assert not list(tmp_path.glob(".models*"))


@pytest.mark.parametrize("name", ["../x", "/etc/x", "tconv.json", ""])
def test_a_file_name_that_would_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    artifact = _built(tmp_path / "build")
    (file,) = artifact.files
    bad = Artifact("onnx", "r", (type(file)(name, file.size, file.sha256),), SIGNATURE)
    with pytest.raises(UsageProblem):
        export_version(tmp_path / "models", "m", bad, tmp_path / "build", _config(bad))


@pytest.mark.parametrize(
    "text", [pytest.param(None, id="missing"), pytest.param("nonsense: 1", id="malformed")]
)
def test_a_config_that_cannot_be_read_is_explained(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "config.pbtxt"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageProblem, match=r"config\.pbtxt"):
        read_config(path)
