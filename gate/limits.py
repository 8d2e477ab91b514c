"""Which limit holds for which metric: the user's, else the default of its family.

A family is what stands before a metric's first dot: `error` of `error.logits`.
"""

from __future__ import annotations

import contextlib
import difflib
import math
from collections.abc import Iterable, Mapping

from ..convert.registry import TARGET_NAMES
from ..errors import UsageProblem
from .threshold import Threshold

LATENCY = "latency"
DEFAULTS = {
    "accuracy": Threshold(max_drop_abs=0.01),
    "of_source": Threshold(min=0.99),
    "error": Threshold(max=1.0, max_drop_abs=0.25),
    "size": Threshold(max_drop_rel=0.05),
    LATENCY: Threshold(max_drop_rel=0.03),
}
"""`accuracy`: a score on labelled rows. `of_source`: that, as a share of the source's own score.
`error`: the largest error as a share of what is allowed. `size`: bytes. `latency`: the ratio of two
medians, candidate to baseline; a limit of 3 % finds what is 5 % slower."""

Limits = Mapping[str, Threshold]
"""By metric or family, or by `TARGET:metric` for one target alone."""


def find_limit(limits: Limits, target: str, metric: str) -> Threshold | None:
    """Return the limit of a metric: the narrowest of the user's, else the default."""
    family = metric.partition(".")[0]
    for name in (f"{target}:{metric}", f"{target}:{family}", metric, family):
        if name in limits:
            return limits[name]
    return DEFAULTS.get(family)


def check_limits(limits: Limits, metrics: Iterable[str]) -> None:
    """Make sure that every limit is used, and can be.

    Args:
        limits: the user's.
        metrics: what was measured of any target.

    Raises:
        UsageProblem: one is for no metric, limits nothing, or bounds milliseconds.
    """
    known = {*DEFAULTS, *metrics}
    for name, threshold in limits.items():
        target, _, metric = name.rpartition(":")
        if metric not in known or (target and target not in TARGET_NAMES):
            near = difflib.get_close_matches(metric, known, n=1)
            raise UsageProblem(
                f"The limit {name!r} is for no metric.",
                remedy=f"Did you mean {near[0]}?"
                if near
                else f"Known: {', '.join(sorted(known))}.",
            )
        if threshold.is_empty:
            raise UsageProblem(
                f"The limit {name!r} limits nothing.",
                remedy="Give min, max, max_drop_abs or max_drop_rel.",
            )
        _check_latency(name, metric, threshold)


def _check_latency(name: str, metric: str, threshold: Threshold) -> None:
    is_relative = threshold == Threshold(max_drop_rel=threshold.max_drop_rel)
    if metric.partition(".")[0] == LATENCY and not is_relative:
        raise UsageProblem(
            f"The limit {name!r} bounds times, and those of two machines can't be compared.",
            remedy="Give max_drop_rel alone: how much slower than the baseline it may be.",
        )


def parse_limits(texts: Iterable[str]) -> dict[str, Threshold]:
    """Read `size.max_drop_rel=0.1` or `onnx:latency.b8.max_drop_rel=0.05`.

    Raises:
        UsageProblem: no such limit, no number, or given twice.
    """
    found: dict[str, dict[str, float]] = {}
    for text in texts:
        place, _, number = text.rpartition("=")
        metric, _, kind = place.rpartition(".")
        limits = found.setdefault(metric, {})
        if not metric or kind not in Threshold.__struct_fields__ or kind in limits:
            raise UsageProblem(
                f"{text!r} is no limit, or given twice.",
                remedy="Write METRIC.KIND=NUMBER, KIND one of "
                f" {', '.join(Threshold.__struct_fields__)}.",
            )
        limits[kind] = _number(number, text)
    return {metric: Threshold(**limits) for metric, limits in found.items()}


def _number(text: str, whole: str) -> float:
    with contextlib.suppress(ValueError):
        if math.isfinite(number := float(text)):
            return number
    raise UsageProblem(f"{whole!r} has no number.", remedy="Write it like size.max_drop_rel=0.1.")
