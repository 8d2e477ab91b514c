"""Imports point down: a module may use its own layer's folder and the layers below it."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# From the bottom up. ARCHITECTURE.md shows the same list.
LAYERS = (
    {"errors"},
    {"spec", "units"},
    {"extras", "artifact", "forkserver"},
    {"process"},
    {"report"},
    {"workspace"},
    {"convert"},
    {"validate"},
    {"export"},
    {"gate"},
    {"jobs", "request", "outcome", "page"},
    {"pipeline"},
    {"stages"},
    {"options", "show"},
    {"commands"},
    {"__init__", "cli"},
    {"__main__"},
)
HEAVY = (
    "onnx",
    "onnxruntime",
    "polygraphy",
    "tensorflow",
    "tensorrt",
    "tensorrt_rtx",
    "torch",
    "transformers",
    "tritonclient",
)


def _layer(part: str) -> int:
    return next(i for i, names in enumerate(LAYERS) if part in names)


def _sources() -> list[Path]:
    folders = (
        ROOT,
        ROOT / "convert",
        ROOT / "validate",
        ROOT / "export",
        ROOT / "gate",
        ROOT / "commands",
    )
    return [path for folder in folders for path in sorted(folder.glob("*.py"))]


def _imported(path: Path) -> list[str]:
    depth = len(path.relative_to(ROOT).parts)
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            found += (
                [node.module.partition(".")[0]] if node.module else [a.name for a in node.names]
            )
    return [name for name in found if name != "__version__"]


@pytest.mark.parametrize("path", _sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = _layer(path.relative_to(ROOT).parts[0].removesuffix(".py"))
    upward = [name for name in _imported(path) if _layer(name) >= own]
    assert not upward, f"{path.name} imports {upward} from its own layer or a higher one"


def test_listing_every_target_imports_no_framework() -> None:
    code = f"""
import sys
from tconv.cli import main
main(["targets"], standalone_mode=False)
sys.exit(", ".join(set({HEAVY}) & set(sys.modules)) or 0)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"imported too early: {run.stderr}"


def test_every_folder_of_modules_is_packaged() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    packaged = set(config["options"]["packages"].split())
    folders = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert packaged == {"tconv", *(f"tconv.{name}" for name in folders)}
