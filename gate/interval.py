"""What can be said of a ratio of latencies from pairs of measurements, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.99
RESAMPLES = 2000
PERCENTILES = {50: 1, 90: 64, 99: 662}
"""A percentile, and how many samples it takes for an interval of 95 % around it to be bounded on
both sides within the sample with a usable width (order statistics of a binomial)."""


class Ratio(msgspec.Struct, frozen=True):
    """A ratio, candidate to baseline, with its interval; above 1 the candidate is slower.

    `pairs` is the number of pairs of measurements that it rests on.
    """

    estimate: float
    low: float
    high: float
    pairs: int


def estimate_ratio(rounds: Sequence[NDArray[Any]], seed: int = 0) -> Ratio:
    """Return the ratio that paired measurements show.

    Loading a model lays out its memory anew, which makes one load of a model a little faster than
    another for as long as it lives. So the models are loaded anew every round, and the interval
    comes from drawing rounds first, and pairs inside them.

    Args:
        rounds: for every round its pairs, float64[pairs, 2]: seconds of the baseline and of the
            candidate, measured next to each other.
        seed: of the resampling.
    """
    logs = [np.log(pairs[:, 1]) - np.log(pairs[:, 0]) for pairs in rounds]
    centre = float(np.mean([np.median(log) for log in logs]))
    generator = np.random.default_rng(seed)
    drawn = np.stack([_medians(log, generator) for log in logs])
    chosen = generator.integers(0, len(logs), (len(logs), RESAMPLES))
    means = np.take_along_axis(drawn, chosen, axis=0).mean(axis=0)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    pairs = sum(len(log) for log in logs)
    return Ratio(math.exp(centre), math.exp(float(low)), math.exp(float(high)), pairs)


def _medians(log: NDArray[Any], generator: np.random.Generator) -> NDArray[Any]:
    """Return the medians of RESAMPLES resamples: by order statistics, which needs no resample.

    The median of a resample of n values is the k-th smallest of the values, where the uniform
    quantile behind it has the distribution Beta(m, n + 1 - m) of a median among n.
    """
    ordered = np.sort(log)
    middle = (len(ordered) + 1) / 2
    quantiles = generator.beta(middle, len(ordered) + 1 - middle, RESAMPLES)
    places = np.minimum((quantiles * len(ordered)).astype(int), len(ordered) - 1)
    medians: NDArray[Any] = ordered[places]
    return medians


def percentiles(seconds: NDArray[Any]) -> dict[str, float]:
    """Return those percentiles of measured seconds that there are enough measurements for."""
    return {
        f"p{q}": float(np.percentile(seconds, q))
        for q, enough in PERCENTILES.items()
        if len(seconds) >= enough
    }
