"""Which limit holds for which metric."""

from __future__ import annotations

import pytest

from tconv.errors import UsageProblem
from tconv.gate.limits import DEFAULTS, check_limits, find_limit, parse_limits
from tconv.gate.threshold import Threshold

LIMITS = {
    "error": Threshold(max=0.1),
    "error.logits": Threshold(max=0.2),
    "onnx:error": Threshold(max=0.3),
    "onnx:error.logits": Threshold(max=0.4),
}


@pytest.mark.parametrize(
    ("target", "metric", "expected"),
    [
        ("torchscript", "error.boxes", 0.1),
        ("torchscript", "error.logits", 0.2),
        ("onnx", "error.boxes", 0.3),
        ("onnx", "error.logits", 0.4),
    ],
)
def test_the_narrowest_limit_holds(target: str, metric: str, expected: float) -> None:
    found = find_limit(LIMITS, target, metric)
    assert found is not None
    assert found.max == expected


@pytest.mark.parametrize("family", DEFAULTS)
def test_every_family_has_a_default(family: str) -> None:
    assert find_limit({}, "onnx", f"{family}.x") == DEFAULTS[family]


def test_an_unknown_metric_has_none() -> None:
    assert find_limit({}, "onnx", "beauty") is None


def test_limits_are_read() -> None:
    texts = ("size.max_drop_rel=0.1", "onnx:latency.b8.max_drop_rel=0.05", "size.max=1e6")
    assert parse_limits(texts) == {
        "size": Threshold(max_drop_rel=0.1, max=1e6),
        "onnx:latency.b8": Threshold(max_drop_rel=0.05),
    }


@pytest.mark.parametrize(
    "texts",
    [
        ("size",),
        ("size=3",),
        ("size.big=3",),
        ("size.max=many",),
        ("size.max=nan",),
        ("size.max=inf",),
        (".max=3",),
        ("",),
        ("size.max=3", "size.max=4"),
    ],
    ids=str,
)
def test_what_is_no_limit(texts: tuple[str, ...]) -> None:
    with pytest.raises(UsageProblem):
        parse_limits(texts)


@pytest.mark.parametrize(
    ("name", "threshold", "message"),
    [
        pytest.param("siez", Threshold(max=1), "for no metric", id="unknown"),
        pytest.param("tflite:size", Threshold(max=1), "for no metric", id="unknown target"),
        pytest.param("size", Threshold(), "limits nothing", id="empty"),
        pytest.param("latency", Threshold(max=0.1), "two machines", id="milliseconds"),
        pytest.param("latency.b8", Threshold(max_drop_abs=1), "two machines", id="difference"),
    ],
)
def test_limits_that_are_refused(name: str, threshold: Threshold, message: str) -> None:
    with pytest.raises(UsageProblem, match=message) as caught:
        check_limits({name: threshold}, ["latency.b8"])
    if name == "siez":
        assert "size" in caught.value.remedy
