"""How much worse a metric may get, and what follows from a number: one form for every metric.

It fails closed: a number that is not there, is NaN, or has nothing to be compared with is no pass.
"""

from __future__ import annotations

import enum
import math

import msgspec

from ..errors import TconvError, Unavailable

Value = float | int | str
"""A number, or a text that must stay as it is (a signature)."""


class Verdict(str, enum.Enum):
    """What a gate says; the third never turns into one of the others."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "could not judge"

    @property
    def exit_code(self) -> int:
        """The code of a command that ends in this verdict."""
        return {
            Verdict.PASS: 0,
            Verdict.FAIL: TconvError.exit_code,
            Verdict.UNKNOWN: Unavailable.exit_code,
        }[self]


class Better(str, enum.Enum):
    """Which way a metric gets better. `SAME`: any change is a regression."""

    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"


class Threshold(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of one metric, in its own unit; all that are given must hold.

    `min` and `max` bound the value. A drop is by how much it got worse than the baseline's,
    whichever way is worse for it; the relative one is a share of the baseline's magnitude.
    """

    min: float | None = None
    max: float | None = None
    max_drop_abs: float | None = None
    max_drop_rel: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it limits nothing."""
        return all(getattr(self, name) is None for name in self.__struct_fields__)

    @property
    def needs_baseline(self) -> bool:
        """Whether a limit is about the change."""
        return self.max_drop_abs is not None or self.max_drop_rel is not None

    def __str__(self) -> str:
        names = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return ", ".join(f"{name} {getattr(self, name):g}" for name in names) or "no limit"


class Measure(msgspec.Struct, frozen=True):
    """One metric of one build. `basis` is the digest of what it was measured on."""

    value: Value
    better: Better
    basis: str = ""


class Finding(msgspec.Struct, frozen=True):
    """The verdict on one metric: `why` is a sentence, `old` the baseline's value."""

    metric: str
    verdict: Verdict
    why: str
    new: Value | None = None
    old: Value | None = None
    limit: str = ""


class Known(msgspec.Struct, frozen=True):
    """What the baseline holds of a metric."""

    value: Value
    basis: str = ""


def judge_metric(
    name: str,
    new: Measure | None,
    old: Known | None,
    threshold: Threshold | None,
    *,
    in_ci: bool,
) -> Finding:
    """Return the verdict on one metric.

    Args:
        name: the metric's.
        new: the candidate's; None: it was not measured.
        old: the baseline's; None: it holds none.
        threshold: None: none is set.
        in_ci: whether no person is there to accept a first value.
    """
    verdict, why = _weigh(new, old, threshold, in_ci=in_ci)
    return Finding(
        name,
        verdict,
        why,
        new.value if new else None,
        old.value if old else None,
        "" if threshold is None else str(threshold),
    )


def _weigh(
    new: Measure | None, old: Known | None, threshold: Threshold | None, *, in_ci: bool
) -> tuple[Verdict, str]:
    if new is None:
        return Verdict.UNKNOWN, "It was not measured."
    if isinstance(new.value, float) and math.isnan(new.value):
        return Verdict.FAIL, "It is not a number."
    if new.better is Better.SAME:
        return _judge_same(new, old, in_ci=in_ci)
    if threshold is None or threshold.is_empty:
        return Verdict.UNKNOWN, "No limit is set for it."
    return _judge_number(new, old, threshold, in_ci=in_ci)


def _judge_number(
    new: Measure, old: Known | None, threshold: Threshold, *, in_ci: bool
) -> tuple[Verdict, str]:
    if broken := _beyond_bounds(float(new.value), threshold):
        return Verdict.FAIL, broken
    if obstacle := _obstacle(new, old, threshold, in_ci=in_ci):
        return Verdict.UNKNOWN, obstacle
    if old is not None and (broken := _dropped(new, old, threshold)):
        return Verdict.FAIL, broken
    return Verdict.PASS, "It is within its limits."


def _judge_same(new: Measure, old: Known | None, *, in_ci: bool) -> tuple[Verdict, str]:
    if old is None:
        where = " in CI" if in_ci else ""
        return Verdict.UNKNOWN, f"The baseline holds nothing to compare it with{where}."
    if new.value != old.value:
        return Verdict.FAIL, "It changed."
    return Verdict.PASS, "It is the same."


def _beyond_bounds(value: float, threshold: Threshold) -> str:
    if threshold.min is not None and not value >= threshold.min:
        return f"{value:g} is below {threshold.min:g}."
    if threshold.max is not None and not value <= threshold.max:
        return f"{value:g} is above {threshold.max:g}."
    return ""


def _obstacle(new: Measure, old: Known | None, threshold: Threshold, *, in_ci: bool) -> str:
    """Return why the change can't be judged, or an empty string."""
    if old is None:
        if in_ci or threshold.needs_baseline:
            return "The baseline holds nothing to compare it with."
        return ""
    if not isinstance(old.value, int | float) or not math.isfinite(old.value):
        return "The baseline's value is no number."
    if old.basis != new.basis and (in_ci or threshold.needs_baseline):
        return "The baseline's was measured on other samples."
    return ""


def _dropped(new: Measure, old: Known, threshold: Threshold) -> str:
    if not threshold.needs_baseline:
        return ""
    before, now = float(old.value), float(new.value)
    drop = before - now if new.better is Better.HIGHER else now - before
    if threshold.max_drop_abs is not None and not drop <= threshold.max_drop_abs:
        return f"It got worse by {drop:g}, from {before:g} to {now:g}."
    if threshold.max_drop_rel is not None and not drop <= threshold.max_drop_rel * abs(before):
        share = f"{drop / abs(before):.2%}" if before else "any share"
        return f"It got worse by {share}, from {before:g} to {now:g}."
    return ""


def overall(findings: list[Finding]) -> Verdict:
    """Return the verdict on all: one failure fails; nothing to judge is no pass."""
    verdicts = {finding.verdict for finding in findings}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    if Verdict.UNKNOWN in verdicts or not verdicts:
        return Verdict.UNKNOWN
    return Verdict.PASS
