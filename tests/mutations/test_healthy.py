"""No false alarm: what is right passes."""

from __future__ import annotations

import pytest

from tconv.report import Passed

from .conftest import INPUTS, Study

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

BY_ONNX = (
    "deep_mlp", "conv2d", "layer_norm", "patches", "text_encoder", "pooling", "softmaxes",
    "indices", "sorted_by_score", "several_dtypes", "fill_values", "pictures_out", "float16",
)  # fmt: skip
BY_DYNAMO = ("mlp", "rotary")


@pytest.mark.parametrize("name", INPUTS)
def test_the_source_is_as_itself(name: str, study: Study) -> None:
    studied = study(name)
    verdict = studied.judge(studied.load().run)
    assert isinstance(verdict, Passed), verdict


@pytest.mark.parametrize("name", INPUTS)
def test_torchscript(name: str, study: Study) -> None:
    studied = study(name)
    studied.convert("torchscript", "trace")
    verdict = studied.validate("torchscript")
    assert isinstance(verdict, Passed), verdict


@pytest.mark.parametrize(
    ("name", "recipe"),
    [*((name, "torchscript") for name in BY_ONNX), *((name, "dynamo") for name in BY_DYNAMO)],
)
def test_onnx(name: str, recipe: str, study: Study) -> None:
    studied = study(name)
    studied.convert("onnx", recipe)
    verdict = studied.validate("onnx")
    assert isinstance(verdict, Passed), verdict
