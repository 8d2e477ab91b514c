"""The metrics that a gate takes from a build's record."""

from __future__ import annotations

import math

import pytest

from tconv.gate.limits import DEFAULTS
from tconv.gate.record import _scored
from tconv.gate.threshold import Better, Known, Verdict, judge_metric
from tconv.report import Score


def _score(source: float | None, artifact: float | None, *, higher: bool = True) -> Score:
    return Score("top1", "logits", 100, "sha256:1", source, artifact, higher_is_better=higher)


def test_accuracy_is_a_metric_and_so_is_its_share_of_the_source() -> None:
    measures = _scored(_score(0.8, 0.6))
    assert measures["accuracy.top1"].value == 0.6
    assert measures["accuracy.top1"].better is Better.HIGHER
    assert measures["of_source.top1"].value == pytest.approx(0.75)
    assert {measure.basis for measure in measures.values()} == {"sha256:1"}


def test_an_error_gets_better_downwards() -> None:
    measures = _scored(_score(1.0, 2.0, higher=False))
    assert measures["accuracy.top1"].better is Better.LOWER
    assert measures["of_source.top1"].value == 0.5


@pytest.mark.parametrize(
    ("score", "share"),
    [
        (_score(0.0, 0.0), 1.0),
        (_score(0.0, 0.0, higher=False), 1.0),
        (_score(0.0, 0.3, higher=False), 0.0),
        (_score(0.5, 0.0), 0.0),
    ],
)
def test_a_score_of_zero_has_a_share(score: Score, share: float) -> None:
    assert _scored(score)["of_source.top1"].value == share


def test_a_share_of_a_negative_score_means_nothing() -> None:
    assert set(_scored(_score(-2.0, -1.0))) == {"accuracy.top1"}


@pytest.mark.parametrize("score", [_score(0.8, None), _score(None, 0.8)])
def test_a_score_that_is_no_number_does_not_pass(score: Score) -> None:
    measure = _scored(score)["of_source.top1"]
    assert isinstance(measure.value, float)
    assert math.isnan(measure.value)
    assert judge_metric("of_source", measure, None, DEFAULTS["of_source"], in_ci=False).verdict is (
        Verdict.FAIL
    )


def test_a_metric_of_ones_own_is_called_after_its_function() -> None:
    score = Score("my/metrics.py:recall", "logits", 9, "d", 0.5, 0.5)
    assert set(_scored(score)) == {"accuracy.recall", "of_source.recall"}


@pytest.mark.parametrize(
    ("artifact", "basis", "verdict"),
    [
        (0.895, "sha256:1", Verdict.PASS),
        (0.85, "sha256:1", Verdict.FAIL),
        (0.9, "sha256:2", Verdict.UNKNOWN),
    ],
)
def test_accuracy_is_judged_against_the_same_rows_only(
    artifact: float, basis: str, verdict: Verdict
) -> None:
    measure = _scored(_score(0.9, artifact))["accuracy.top1"]
    known = Known(0.9, basis)
    assert (
        judge_metric("accuracy.top1", measure, known, DEFAULTS["accuracy"], in_ci=True).verdict
        is verdict
    )
