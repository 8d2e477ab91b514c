"""The verdict on one target of a build, metric by metric, against what was accepted before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from .baseline import Entries, Entry
from .latency import Timing
from .limits import LATENCY, Limits, find_limit
from .record import Record
from .threshold import Finding, Known, Threshold, Verdict, judge_metric, overall


class Obstacle(msgspec.Struct, frozen=True):
    """Why the latency was not measured; `verdict` is what follows."""

    why: str
    verdict: Verdict = Verdict.UNKNOWN


class Judged(msgspec.Struct, frozen=True):
    """What the gate says of one target. `name` is `NAME/TARGET`."""

    name: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    timings: tuple[Timing, ...] = ()


def judge_record(
    record: Record,
    entries: Entries,
    limits: Limits,
    latency: Sequence[Timing] | Obstacle,
    *,
    in_ci: bool,
) -> Judged:
    """Judge every metric that the build or the baseline has.

    Args:
        record: the candidate.
        entries: what the baseline holds of this target.
        limits: the user's.
        latency: what was measured beside the baseline's artifact.
        in_ci: whether no person is there to accept a first value.
    """
    findings = [record.validation, *_compare(record, entries, limits, in_ci=in_ci)]
    timings: tuple[Timing, ...] = ()
    if isinstance(latency, Obstacle):
        findings.append(Finding(LATENCY, latency.verdict, latency.why))
    else:
        timings = tuple(latency)
        findings += [judge_timing(timing, record.target, limits) for timing in timings]
    return Judged(record.name, overall(findings), tuple(findings), timings)


def _compare(record: Record, entries: Entries, limits: Limits, *, in_ci: bool) -> list[Finding]:
    if record.validation.verdict is not Verdict.PASS:
        return []  # what did not pass has no metrics, and that is said already
    names = sorted({*record.measures, *entries} - {LATENCY})
    return [
        judge_metric(
            name,
            record.measures.get(name),
            _known(entries, name),
            find_limit(limits, record.target, name),
            in_ci=in_ci,
        )
        for name in names
    ]


def _known(entries: Mapping[str, Entry], name: str) -> Known | None:
    entry = entries.get(name)
    return None if entry is None else entry.known


def judge_timing(timing: Timing, target: str, limits: Limits) -> Finding:
    """Return the verdict on a ratio of latencies.

    It fails if the whole interval lies above 1 and the estimate is over the limit. A limit that is
    finer than what the baseline differs from itself by can't be judged, unless the interval lies
    beyond that noise too.
    """
    name = f"{LATENCY}.b{timing.rows}" if timing.rows else LATENCY
    threshold = find_limit(limits, target, name) or Threshold()
    if threshold.max_drop_rel is None:
        return Finding(name, Verdict.UNKNOWN, "No limit is set for it.")
    limit, ratio = threshold.max_drop_rel, timing.ratio
    noise = max(timing.noise.high - 1, 1 - timing.noise.low)
    verdict, why = Verdict.PASS, f"{_change(ratio.estimate)}, within {limit:.1%}."
    if ratio.low > 1 + max(limit, noise) or (
        noise <= limit and ratio.low > 1 and ratio.estimate > 1 + limit
    ):
        verdict, why = Verdict.FAIL, f"{_change(ratio.estimate)}, and {limit:.1%} is allowed."
    elif noise > limit:
        verdict = Verdict.UNKNOWN
        why = (
            f"The baseline differs from itself by up to {noise:.1%} here; the limit is {limit:.1%}."
        )
    return Finding(name, verdict, why, ratio.estimate, 1.0, str(threshold))


def _change(ratio: float) -> str:
    return f"{abs(ratio - 1):.1%} {'slower' if ratio >= 1 else 'faster'}"
