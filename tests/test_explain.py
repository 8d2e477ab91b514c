"""`tconv explain` names the node, module and line at which an artifact leaves its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tconv.commands.explain import describe
from tconv.errors import UsageProblem
from tconv.report import Report
from tconv.stages import explain_target

Build = Callable[..., Report]
MODEL = "build/blocks/artifacts/onnx/model.onnx"


def _spoil(path: Path, weight: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    model = onnx.load(path)
    tensor = next(t for t in model.graph.initializer if t.name.endswith(weight))
    changed = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(changed.astype("float32"), tensor.name))
    onnx.save(model, path)


@pytest.fixture
def built(build_model: Build, tmp_path: Path) -> Path:
    report = build_model("branches:blocks", targets="onnx")
    assert report.exit_code == 0
    return tmp_path / "build/blocks"


def test_what_agrees_has_nothing_to_explain(built: Path) -> None:
    found = explain_target(built, "onnx")
    assert found.finding.startswith("Nothing differs")
    assert describe(found) == [found.finding]


@pytest.mark.parametrize(
    ("weight", "operator", "module", "source"),
    [
        ("1.fc.weight", "Gemm", "1.fc", "linear"),
        ("2.fc.bias", "Gemm", "2.fc", "linear"),
        ("0.norm.weight", "LayerNormalization", "0.norm", "layer_norm"),
        ("3.weight", "Gemm", "3", "linear"),
    ],
)
def test_the_first_wrong_node_is_named(
    weight: str, operator: str, module: str, source: str, built: Path
) -> None:
    _spoil(built / "artifacts/onnx/model.onnx", weight, lambda w: w * 1.5)
    found = explain_target(built, "onnx")
    assert (found.operator, found.module, found.source) == (operator, module, source)
    assert found.inputs
    assert found.inputs[0].low is not None
    said = "\n".join(describe(found))
    assert f"({operator})" in said
    assert "try: " in said


def test_a_frozen_branch_is_named_with_its_line(build_model: Build, tmp_path: Path) -> None:
    report = build_model("traps:value_branch", targets="onnx")
    assert report.exit_code == 1
    found = explain_target(tmp_path / "build/value_branch", "onnx")
    assert "is in no node" in found.finding or "another value" in found.finding
    assert "traps.py:" in found.finding
    assert "Python boolean" in found.tracer[0]


@pytest.mark.parametrize("target", ["torchscript"])
def test_what_cannot_be_looked_into_is_said(
    target: str, build_model: Build, tmp_path: Path
) -> None:
    build_model("traps:value_branch", targets=target)
    with pytest.raises(UsageProblem, match=r"Nothing is known of the operations inside model.pt"):
        explain_target(tmp_path / "build/value_branch", target)
