"""What follows from a number, in every combination of what is there and what is not."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tconv.gate.threshold import (
    Better,
    Finding,
    Known,
    Measure,
    Threshold,
    Verdict,
    judge_metric,
    overall,
)

NEW = {
    "present": Measure(0.95, Better.HIGHER, "rows"),
    "absent": None,
    "nan": Measure(math.nan, Better.HIGHER, "rows"),
}
OLD = {"present": Known(0.95, "rows"), "absent": None, "stale": Known(0.95, "other rows")}
LIMITS = {
    "change": Threshold(max_drop_abs=0.01),
    "bound": Threshold(min=0.9),
    "none": None,
    "empty": Threshold(),
}


def _expected(new: str, old: str, limit: str, *, in_ci: bool) -> Verdict:
    """Say the rule in other words than the code does."""
    if new == "absent":
        return Verdict.UNKNOWN
    if new == "nan":
        return Verdict.FAIL
    if limit in ("none", "empty"):
        return Verdict.UNKNOWN
    comparable = old == "present"
    alone_is_enough = limit == "bound" and not in_ci
    return Verdict.PASS if comparable or alone_is_enough else Verdict.UNKNOWN


@pytest.mark.parametrize("in_ci", [True, False], ids=["ci", "desk"])
@pytest.mark.parametrize(("new", "old", "limit"), [*itertools.product(NEW, OLD, LIMITS)])
def test_every_combination(new: str, old: str, limit: str, in_ci: bool) -> None:
    found = judge_metric("m", NEW[new], OLD[old], LIMITS[limit], in_ci=in_ci)
    assert found.verdict is _expected(new, old, limit, in_ci=in_ci), found.why
    assert found.why.endswith(".")


@pytest.mark.parametrize(
    ("verdict", "code"),
    [(Verdict.PASS, 0), (Verdict.FAIL, 1), (Verdict.UNKNOWN, 3)],
    ids=str,
)
def test_a_verdict_has_an_exit_code(verdict: Verdict, code: int) -> None:
    assert verdict.exit_code == code


@pytest.mark.parametrize(
    ("better", "old", "new", "threshold", "verdict"),
    [
        pytest.param(Better.HIGHER, 0.97, 0.96, Threshold(max_drop_abs=0.02), "pass", id="small"),
        pytest.param(Better.HIGHER, 0.97, 0.90, Threshold(max_drop_abs=0.02), "fail", id="drop"),
        pytest.param(Better.HIGHER, 0.50, 0.44, Threshold(max_drop_rel=0.1), "fail", id="share"),
        pytest.param(Better.HIGHER, 0.50, 0.99, Threshold(max_drop_rel=0.0), "pass", id="better"),
        pytest.param(Better.LOWER, 100, 104, Threshold(max_drop_rel=0.05), "pass", id="larger"),
        pytest.param(Better.LOWER, 100, 106, Threshold(max_drop_rel=0.05), "fail", id="too large"),
        pytest.param(Better.LOWER, -1.0, -0.8, Threshold(max_drop_rel=0.1), "fail", id="negative"),
        pytest.param(Better.LOWER, 0.0, 1e-9, Threshold(max_drop_rel=0.5), "fail", id="from zero"),
        pytest.param(Better.LOWER, 0.0, 0.0, Threshold(max_drop_rel=0.5), "pass", id="both zero"),
        pytest.param(Better.HIGHER, 1.0, math.inf, Threshold(max=2), "fail", id="infinite"),
        pytest.param(Better.SAME, "a", "a", None, "pass", id="same"),
        pytest.param(Better.SAME, "a", "b", None, "fail", id="changed"),
        pytest.param(
            Better.HIGHER, 0.9, 0.8, Threshold(min=0.7, max_drop_abs=0.05), "fail", id="all hold"
        ),
        pytest.param(
            Better.HIGHER, math.nan, 0.8, Threshold(max_drop_abs=0.05), "could not judge", id="nan"
        ),
    ],
)
def test_limits(
    better: Better, old: float | str, new: float | str, threshold: Threshold, verdict: str
) -> None:
    found = judge_metric("m", Measure(new, better), Known(old), threshold, in_ci=True)
    assert found.verdict.value == verdict, found.why


@given(st.lists(st.sampled_from(Verdict)))
def test_a_failure_fails_and_nothing_is_no_pass(verdicts: list[Verdict]) -> None:
    whole = overall([Finding("m", verdict, "") for verdict in verdicts])
    if Verdict.FAIL in verdicts:
        assert whole is Verdict.FAIL
    elif verdicts and set(verdicts) == {Verdict.PASS}:
        assert whole is Verdict.PASS
    else:
        assert whole is Verdict.UNKNOWN
