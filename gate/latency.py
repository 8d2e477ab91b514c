"""Measure two models side by side: in pairs, in random order, each round with a fresh load.

What another day or machine measured is never compared: a baseline is measured again, here, now.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..convert.base import Arrays, Runner
from ..spec import BATCH
from ..validate.samples import Check, SampleStore
from ..validate.sampling import KINDS
from .interval import Ratio, estimate_ratio, percentiles

Load = Callable[[], Runner]

ROUNDS = 8
"""How often both models are loaded anew."""
MIN_PAIRS = 40
"""Below this many pairs in all nothing is said."""
MAX_PAIRS = 250
"""In a round: more would only lengthen the record."""
WARM_UP = 3
"""Calls of each model before a round's first pair."""
SHORTEST = 2e-3
"""Seconds: what takes less is called several times for one measurement."""


class Plan(msgspec.Struct, frozen=True):
    """How long may be measured, in seconds, and where.

    `threads` is how many a CPU computes with: one is what a busy runner disturbs least.
    """

    budget: float = 60.0
    rounds: int = ROUNDS
    seed: int = 0
    device: str = "auto"
    threads: int = 1


class Timing(msgspec.Struct, frozen=True):
    """What was measured at one batch size. `noise` is the ratio of the baseline to itself.

    `baseline` and `candidate` map percentiles to seconds; `rows` per second follow from the median.
    """

    rows: int
    ratio: Ratio
    noise: Ratio
    baseline: dict[str, float]
    candidate: dict[str, float]


def time_side_by_side(
    baseline: Load, candidate: Load, feeds: Mapping[int, Arrays], plan: Plan
) -> list[Timing]:
    """Return how the candidate's latency relates to the baseline's, at every batch size.

    Args:
        baseline: loads the baseline; called afresh every round.
        candidate: loads the candidate.
        feeds: the inputs of each batch size.
        plan: how long.

    Half of the time goes to an A/A run, the baseline against a second load of itself, which shows
    what this machine can tell apart at all. Its rounds alternate with those of the comparison, so
    that both meet the same weather.
    """
    generator = np.random.default_rng(plan.seed)
    pairs: dict[tuple[int, str], list[NDArray[Any]]] = {}
    share = plan.budget / (plan.rounds * len(feeds) * 2)
    for _ in range(plan.rounds):
        for kind, other in _shuffled([("noise", baseline), ("ratio", candidate)], generator):
            runners = _load(baseline, other, generator)
            for rows, given in feeds.items():
                measured = _round(runners, given, share, generator)
                pairs.setdefault((rows, kind), []).append(measured)
    return [_timing(rows, pairs, plan.seed) for rows in feeds]


def choose_feeds(store: SampleStore) -> dict[int, Arrays]:
    """Return usual inputs of one row and of the largest batch; of a model without, by 0."""
    index = store.read_index()
    ordinary = [pool for pool in index.pools if pool.kind == KINDS[0]] or list(index.pools)
    ordinary.sort(key=lambda pool: math.prod(pool.sizes.values()))
    pool = ordinary[len(ordinary) // 2]
    largest = pool.sizes.get(BATCH, 0)
    batched = any(check.rows is not None for check in index.checks)
    sizes = dict.fromkeys((1, largest)) if batched and largest else {0: None}
    return {
        rows: store.read(Check(pool.name, tuple(range(rows)) if rows else None), "in", index.inputs)
        for rows in sizes
    }


def _timing(rows: int, pairs: dict[tuple[int, str], list[NDArray[Any]]], seed: int) -> Timing:
    compared = np.concatenate(pairs[rows, "ratio"])
    return Timing(
        rows,
        estimate_ratio(pairs[rows, "ratio"], seed),
        estimate_ratio(pairs[rows, "noise"], seed),
        percentiles(compared[:, 0]),
        percentiles(compared[:, 1]),
    )


def _shuffled(items: list[Any], generator: np.random.Generator) -> list[Any]:
    return [items[place] for place in generator.permutation(len(items))]


def _load(first: Load, second: Load, generator: np.random.Generator) -> tuple[Runner, Runner]:
    """Load two models in random order: the first takes the memory that is there."""
    gc.collect()
    if generator.random() < 1 / 2:
        early = first()
        return early, second()
    early = second()
    return first(), early


def _round(
    runners: tuple[Runner, Runner], feeds: Arrays, seconds: float, generator: np.random.Generator
) -> NDArray[Any]:
    """Return pairs of seconds a call, float64[pairs, 2], measured for about `seconds`."""
    calls = _calls(runners, feeds)
    measured: list[tuple[float, float]] = []
    end = time.perf_counter() + seconds
    while len(measured) < math.ceil(MIN_PAIRS / ROUNDS) or (
        time.perf_counter() < end and len(measured) < MAX_PAIRS
    ):
        if generator.random() < 1 / 2:
            first = _time(runners[0], feeds, calls)
            measured.append((first, _time(runners[1], feeds, calls)))
        else:
            second = _time(runners[1], feeds, calls)
            measured.append((_time(runners[0], feeds, calls), second))
    return np.array(measured)


def _calls(runners: tuple[Runner, Runner], feeds: Arrays) -> int:
    """Warm both up, and return how many calls one measurement takes."""
    slowest = 0.0
    for runner in runners:
        for _ in range(WARM_UP):
            last = _time(runner, feeds, 1)
        slowest = max(slowest, last)
    return max(1, math.ceil(SHORTEST / max(slowest, 1e-6)))


def _time(runner: Runner, feeds: Arrays, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        runner(feeds)
    return (time.perf_counter() - start) / calls
