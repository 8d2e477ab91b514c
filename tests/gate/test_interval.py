"""What is said of a ratio, and how surely: on times that are drawn, whose ratio is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tconv.gate.interval import PERCENTILES, estimate_ratio, percentiles


def _rounds(ratio: float, seed: int, rounds: int = 8, pairs: int = 100) -> list[NDArray[Any]]:
    """Draw times as a busy machine gives them: each round has a bias, some calls are held up."""
    generator = np.random.default_rng(seed)
    drawn = []
    for _ in range(rounds):
        bias = 1 + 0.005 * generator.standard_normal()
        times = generator.lognormal(-6, 0.05, (pairs, 2))
        times += (generator.random((pairs, 2)) < 0.1) * 0.01
        times[:, 1] *= ratio * bias
        drawn.append(times)
    return drawn


@pytest.mark.parametrize("ratio", [0.5, 0.95, 1.0, 1.05, 1.1, 2.0])
def test_the_interval_holds_the_ratio(ratio: float) -> None:
    found = [estimate_ratio(_rounds(ratio, seed), seed) for seed in range(50)]
    inside = sum(r.low <= ratio <= r.high for r in found)
    assert inside >= 48
    assert all(r.low <= r.estimate <= r.high for r in found)
    assert {r.pairs for r in found} == {800}
    assert np.mean([r.estimate for r in found]) == pytest.approx(ratio, rel=0.005)


def test_more_pairs_say_more() -> None:
    few = estimate_ratio(_rounds(1.0, 0, pairs=10))
    many = estimate_ratio(_rounds(1.0, 0, pairs=1000))
    assert many.high - many.low < few.high - few.low


def test_one_seed_gives_one_answer() -> None:
    assert estimate_ratio(_rounds(1.0, 0), 3) == estimate_ratio(_rounds(1.0, 0), 3)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, {"p50"}), (63, {"p50"}), (64, {"p50", "p90"}), (662, {"p50", "p90", "p99"})],
)
def test_percentiles_need_their_samples(count: int, expected: set[str]) -> None:
    assert set(percentiles(np.linspace(1, 2, count))) == expected
    assert set(PERCENTILES) == {50, 90, 99}
