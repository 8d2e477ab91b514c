"""What a verdict says of an output: how far, where, how much, and by which measure."""

from __future__ import annotations

import numpy as np
import pytest

from tconv.report import Failed
from tconv.spec import TensorSpec
from tconv.validate.compare import compare
from tconv.validate.judge import TF32, judge
from tconv.validate.samples import Check, Pool, SampleIndex, SampleStore
from tconv.validate.tally import Given, OutputTally
from tconv.validate.tolerance import Tolerances

from .test_judge import PREPARED, Answering

R = np.random.default_rng(0)
SPEC = TensorSpec("logits", "float32", (4, 10))
EXPECTED = R.standard_normal((4, 10)).astype("float32")


def _tally(actual: object, spec: TensorSpec = SPEC, noise: float | None = None) -> OutputTally:
    tally = OutputTally(spec, Tolerances(), noise)
    given = Given(
        Pool("ordinary-seq3", "ordinary", {"batch": 4, "seq": 3}),
        Check("ordinary-seq3"),
        np.asarray(actual),
        EXPECTED,
    )
    tally.add(given, compare(given.actual, EXPECTED, tally.tolerance))
    return tally


def test_the_measures_are_what_their_names_say() -> None:
    actual = EXPECTED.copy()
    actual[2, 5] += 0.5
    actual[1, 7] += 0.25
    found = _tally(actual).summary()
    a, e = actual.ravel().astype(float), EXPECTED.ravel().astype(float)
    assert found.cosine == pytest.approx(a @ e / np.sqrt((a @ a) * (e @ e)), rel=1e-6)
    assert found.relative_l2 == pytest.approx(np.linalg.norm(a - e) / np.linalg.norm(e), rel=1e-6)
    assert found.mismatched == 2 / 40
    assert found.agreement == (actual.argmax(1) == EXPECTED.argmax(1)).mean()
    assert found.worst is not None
    assert (found.worst.sample, found.worst.index) in {
        ("ordinary-seq3", (2, 5)), ("ordinary-seq3", (1, 7))
    }  # fmt: skip
    place = found.worst.index
    assert found.worst.actual == pytest.approx(float(actual[place]))
    assert found.worst.expected == pytest.approx(float(EXPECTED[place]))
    (point,) = found.points
    assert (point.kind, point.rows, point.sizes) == ("ordinary", 4, {"seq": 3})
    assert point.error == found.error
    assert not point.passed


def test_what_is_equal_is_equal_by_every_measure() -> None:
    found = _tally(EXPECTED.copy()).summary()
    assert (found.error, found.mismatched, found.agreement) == (0.0, 0.0, 1.0)
    assert found.cosine == pytest.approx(1.0)
    assert found.relative_l2 == 0.0
    assert found.worst is None


def test_only_what_looks_like_scores_has_a_first_choice() -> None:
    other = TensorSpec("hidden", "float32", (4, 10))
    assert _tally(EXPECTED.copy(), other).summary().agreement is None


def test_what_is_not_finite_spoils_no_measure() -> None:
    actual = EXPECTED.copy()
    actual[0, 0] = np.nan
    found = _tally(actual).summary()
    assert found.error is None
    assert found.cosine == pytest.approx(1.0)
    assert found.worst is None


def test_floor_and_noise_are_both_stated() -> None:
    said = Tolerances().explain(SPEC, 3e-6)
    assert said == (
        "Allowed is the larger of the floor for float32, 2e-05, and 10 times the source's own "
        "noise, 10 × 3e-06."
    )
    unknown = Tolerances().explain(SPEC, None)
    assert unknown == (
        "Allowed is the floor for float32, 2e-05; the source's own noise is unknown."
    )
    assert Tolerances(1e-3).explain(SPEC, 3e-6) == "Allowed is the 0.001 that was asked for."
    assert not Tolerances().explain(TensorSpec("i", "int64", ()), None)
    found = _tally(EXPECTED.copy(), noise=3e-6).summary()
    assert (found.floor, found.noise) == (2e-5, 3e-6)
    assert found.tolerance == pytest.approx(3e-5)


@pytest.mark.parametrize(
    ("device", "error", "named"),
    [("cuda", 4e-4, True), ("cuda", 10 * TF32, False), ("cpu", 4e-4, False)],
)
def test_tf32_is_named_where_it_explains_the_difference(
    device: str, error: float, named: bool, tmp_path: object
) -> None:
    store = SampleStore(tmp_path)  # type: ignore[arg-type]
    store.write("ordinary", "in", {0: EXPECTED})
    store.write("ordinary", "out", {0: EXPECTED})
    pool, check = Pool("ordinary", "ordinary", {"batch": 4}), Check("ordinary")
    store.write_index(SampleIndex((SPEC,), (SPEC,), (pool,), (check,)))
    runner = Answering(lambda feeds: {"logits": feeds["logits"] * np.float32(1 + error)})
    runner.device = device
    verdict = judge(runner, store, PREPARED, Tolerances())
    assert isinstance(verdict, Failed)
    assert ("TF32 would explain as much" in verdict.problem) == named
