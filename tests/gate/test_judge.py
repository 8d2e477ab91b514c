"""The verdict on one target: what was measured, what was accepted, and the latency."""

from __future__ import annotations

import pytest

from tconv.gate.baseline import Entries, Entry
from tconv.gate.interval import Ratio
from tconv.gate.judge import Judged, Obstacle, judge_record, judge_timing
from tconv.gate.latency import Timing
from tconv.gate.record import Record
from tconv.gate.threshold import Better, Finding, Measure, Threshold, Verdict

PASSED = Finding("validation", Verdict.PASS, "All agreed.")
SAME = Obstacle("The artifact is the baseline's own.", Verdict.PASS)
MEASURES = {
    "contract": Measure("x -> y", Better.SAME),
    "size": Measure(100, Better.LOWER),
    "error.y": Measure(0.1, Better.LOWER),
}
ENTRIES = {name: Entry(m.value, m.better) for name, m in MEASURES.items()}


def _record(validation: Finding = PASSED, **measures: Measure) -> Record:
    return Record("m/onnx", "onnx", "build/m", validation, None, {**MEASURES, **measures})


def _judge(record: Record, entries: Entries = ENTRIES, latency: Obstacle = SAME) -> Judged:
    return judge_record(record, entries, {}, latency, in_ci=True)


def _timing(ratio: tuple[float, float, float], noise: float = 0.01) -> Timing:
    return Timing(8, Ratio(*ratio, 100), Ratio(1, 1 - noise, 1 + noise, 100), {}, {})


def test_the_same_passes() -> None:
    judged = _judge(_record())
    assert judged.verdict is Verdict.PASS
    assert [f.metric for f in judged.findings] == [
        "validation", "contract", "error.y", "size", "latency",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("measure", "metric"),
    [
        (Measure("x -> z", Better.SAME), "contract"),
        (Measure(106, Better.LOWER), "size"),
        (Measure(0.4, Better.LOWER), "error.y"),
        (Measure(float("nan"), Better.LOWER), "error.y"),
    ],
    ids=["another contract", "too large", "less exact", "nan"],
)
def test_what_got_worse_fails(measure: Measure, metric: str) -> None:
    judged = _judge(_record(**{metric: measure}))
    assert judged.verdict is Verdict.FAIL
    assert [f.metric for f in judged.findings if f.verdict is Verdict.FAIL] == [metric]


def test_a_metric_that_vanished_is_no_pass() -> None:
    judged = _judge(_record(), {**ENTRIES, "accuracy.top1": Entry(0.9, Better.HIGHER)})
    assert judged.verdict is Verdict.UNKNOWN


def test_a_metric_that_is_new_is_no_pass() -> None:
    judged = _judge(_record(**{"accuracy.top1": Measure(0.9, Better.HIGHER)}))
    assert judged.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN], ids=str)
def test_a_build_that_did_not_pass(verdict: Verdict) -> None:
    judged = _judge(_record(Finding("validation", verdict, "It says why.")))
    assert judged.verdict is verdict
    assert [f.metric for f in judged.findings] == ["validation", "latency"]


def test_what_was_not_timed_is_no_pass() -> None:
    judged = _judge(_record(), latency=Obstacle("The store is gone."))
    assert judged.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("timing", "verdict"),
    [
        pytest.param(_timing((1.0, 0.99, 1.01)), Verdict.PASS, id="the same"),
        pytest.param(_timing((0.5, 0.4, 0.6)), Verdict.PASS, id="faster"),
        pytest.param(_timing((1.02, 1.01, 1.03)), Verdict.PASS, id="within the limit"),
        pytest.param(_timing((1.06, 0.98, 1.2)), Verdict.PASS, id="may be chance"),
        pytest.param(_timing((1.05, 1.01, 1.09)), Verdict.FAIL, id="slower"),
        pytest.param(_timing((1.05, 1.01, 1.09), 0.04), Verdict.UNKNOWN, id="too noisy to say"),
        pytest.param(_timing((1.5, 1.4, 1.6), 0.04), Verdict.FAIL, id="beyond any noise"),
        pytest.param(_timing((1.0, 0.99, 1.01), 0.04), Verdict.UNKNOWN, id="noisy and the same"),
    ],
)
def test_latency(timing: Timing, verdict: Verdict) -> None:
    found = judge_timing(timing, "onnx", {})
    assert found.verdict is verdict, found.why
    assert found.metric == "latency.b8"


def test_a_limit_of_ones_own() -> None:
    limits = {"onnx:latency": Threshold(max_drop_rel=0.2)}
    assert judge_timing(_timing((1.1, 1.05, 1.15)), "onnx", limits).verdict is Verdict.PASS
    assert judge_timing(_timing((1.1, 1.05, 1.15)), "torchscript", limits).verdict is Verdict.FAIL


def test_times_without_a_limit_are_not_judged() -> None:
    limits = {"latency": Threshold(min=0.1)}
    assert judge_timing(_timing((1.0, 1.0, 1.0)), "onnx", limits).verdict is Verdict.UNKNOWN
