from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tconv.artifact import Artifact, File, hash_file, list_files
from tconv.spec import Signature, parse_tensor

SIGNATURE = Signature((parse_tensor("x:float32[batch,3]"),), (parse_tensor("y:int64[batch]"),))
DIGESTS = st.binary(max_size=8).map(lambda content: hashlib.sha256(content).hexdigest())
FILES = st.lists(st.builds(File, st.text(max_size=9), st.integers(0), DIGESTS), max_size=4)


def _artifact(files: tuple[File, ...] = (), **more: object) -> Artifact:
    return Artifact("onnx", "dynamo", files, SIGNATURE, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, (1 << 20) + 3], ids=["empty", "a byte", "over a block"])
def test_the_hash_is_sha256(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "f").write_bytes(content[:size])
    assert hash_file(tmp_path / "f") == hashlib.sha256(content[:size]).hexdigest()


def test_the_hash_before_python_3_11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(hashlib, "file_digest", raising=False)
    (tmp_path / "f").write_bytes(b"abc" * (1 << 20))
    assert hash_file(tmp_path / "f") == hashlib.sha256(b"abc" * (1 << 20)).hexdigest()


def test_files_are_listed_by_name_with_their_folders(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("z", "sub/ä b", "a"):
        (tmp_path / name).write_bytes(name.encode())
    files = list_files(tmp_path)
    assert [file.name for file in files] == ["a", "sub/ä b", "z"]
    assert [file.size for file in files] == [1, len("sub/ä b".encode()), 1]
    assert _artifact(files).size == sum(file.size for file in files)


def test_the_digest_does_not_depend_on_where_and_when(tmp_path: Path) -> None:
    for folder, order in (("one", "abc"), ("two", "cab")):
        (tmp_path / folder).mkdir()
        for name in order:
            (tmp_path / folder / name).write_text(name)
    one, two = (_artifact(list_files(tmp_path / folder)) for folder in ("one", "two"))
    assert one.digest == two.digest


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda f: (f / "a").write_bytes(b"\x00b"), id="a byte"),
        pytest.param(lambda f: (f / "a").rename(f / "b"), id="a name"),
        pytest.param(lambda f: (f / "new").touch(), id="an empty file more"),
        pytest.param(lambda f: (f / "a").unlink(), id="a file less"),
    ],
)
def test_the_digest_tells_files_apart(tmp_path: Path, change: object) -> None:
    (tmp_path / "a").write_bytes(b"ab")
    (tmp_path / "z").write_bytes(b"ab")
    before = _artifact(list_files(tmp_path)).digest
    change(tmp_path)  # type: ignore[operator]
    assert _artifact(list_files(tmp_path)).digest != before


@given(FILES, FILES)
def test_equal_digests_are_equal_files(one: list[File], two: list[File]) -> None:
    def content(files: list[File]) -> list[tuple[str, str]]:
        return [(file.name, file.sha256) for file in files]

    same = content(one) == content(two)
    assert (_artifact(tuple(one)).digest == _artifact(tuple(two)).digest) is same


def test_a_wire_name_where_there_is_one() -> None:
    artifact = _artifact(wire_names={"y": "OUTPUT__0"})
    assert (artifact.wire("x"), artifact.wire("y")) == ("x", "OUTPUT__0")


def test_json_comes_back() -> None:
    artifact = _artifact(
        (File("model.onnx", 3, "00"),), wire_names={"a": "b"}, versions={"t": "1"}, notes=("n",)
    )
    assert msgspec.json.decode(msgspec.json.encode(artifact), type=Artifact) == artifact
