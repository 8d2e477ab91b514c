from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from tconv.errors import MissingExtra, Unavailable, UsageProblem
from tconv.export import installation
from tconv.export.installation import Installation, find_server
from tconv.export.triton import LocalTriton


def test_a_given_server_goes_first(program: Callable[[str], Path]) -> None:
    given = program("exit 0")
    assert find_server(given) == Installation("given", given)


def test_the_server_on_path_goes_before_the_wheel(
    program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_path = program("exit 0")
    monkeypatch.setenv("PATH", str(on_path.parent))
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


def test_a_python_without_a_stub_is_named(identity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_PYTHON", "3.99")
    with LocalTriton() as triton, pytest.raises(Unavailable, match=r"Python 3\.99"):
        triton.start(identity)
