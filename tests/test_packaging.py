"""What is shipped: the wheel holds the package and its templates, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in a wheel built from a copy of what git tracks."""
    copy, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    subprocess.run(
        [sys.executable, "-c", BUILD, str(made)], cwd=copy, check=True, capture_output=True
    )
    return zipfile.ZipFile(next(made.glob("*.whl"))).namelist()


BUILD = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"


def test_every_module_is_in_the_wheel(wheel: list[str]) -> None:
    folders = (ROOT, ROOT / "convert", ROOT / "validate", ROOT / "export")
    modules = {
        f"tconv/{path.relative_to(ROOT).as_posix()}" for f in folders for path in f.glob("*.py")
    }
    assert modules <= set(wheel)


def test_every_template_is_in_the_wheel(wheel: list[str]) -> None:
    templates = {
        f"tconv/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "templates").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert templates
    assert templates <= set(wheel)


def test_nothing_else_is_in_the_wheel(wheel: list[str]) -> None:
    inside = ("commands", "convert", "validate", "export", "gate", "templates")
    allowed = (*(f"tconv/{folder}/" for folder in inside), "tconv-")
    strange = [name for name in wheel if not name.startswith(allowed) and name.count("/") > 1]
    assert not strange
    assert "tconv/py.typed" in wheel
    assert not [name for name in wheel if "/tests/" in name or "/benchmarks/" in name]
