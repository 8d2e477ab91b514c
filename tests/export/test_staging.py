from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tconv.artifact import File, list_files
from tconv.errors import TconvError
from tconv.export.staging import copy_file, flush_tree, staging_folder


def test_files_are_copied_not_linked(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "data").mkdir(parents=True)
    (source / "data" / "weights").write_bytes(b"\x01" * (9 << 20))
    (source / "data" / "link").symlink_to("weights")
    for file in list_files(source):
        copy_file(file, source, target)
    flush_tree(target)
    assert list_files(target) == list_files(source)
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert (target / "data" / "weights").stat().st_nlink == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"onE", "not the file", id="changed"),
        pytest.param(b"one more", "not the file", id="longer"),
        pytest.param(None, "cannot be read", id="missing"),
    ],
)
def test_a_file_that_is_not_what_it_was_is_refused(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / "model").write_bytes(content)
    file = File("model", 3, hashlib.sha256(b"one").hexdigest())
    with pytest.raises(TconvError, match=said):
        copy_file(file, tmp_path, tmp_path / "target")


def test_staging_lies_outside_the_repository_and_goes_away(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    repository.mkdir()
    with staging_folder(repository, "m") as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith(".models.staging-")
        (folder / "x").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["models"]
