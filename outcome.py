"""What becomes of a child process that failed: a verdict about a target, or an error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from .artifact import Artifact
from .errors import BUG, TconvError, Unavailable
from .process import Crash
from .report import Failed, NotConverted, NotJudged, Passed, Prepared, TargetReport, Verdict

SEVERITY = (BUG, 1, 4, 3)
"""Which exit code stands for a build of several targets: the first of these that occurs."""


TRACER_WORDS = ("Converting", "Iterating", "Using")
"""How the tracer's warnings about a frozen value begin; others are about constants."""
BRANCH = "Python boolean"
WITHOUT_BRANCH = "Write the branch there with torch.where, or convert with --script."


class ChildBugError(Exception):
    """A child process met an error that tconv did not foresee; its traceback is the message."""


def exit_code(targets: Iterable[TargetReport], *, allow_unavailable: bool) -> int:
    """Return the code that a build of these targets ends in."""
    codes = {report.verdict.exit_code for report in targets}
    if allow_unavailable:
        codes -= {Unavailable.exit_code}
    return next((code for code in SEVERITY if code in codes), 0)


def explain_crash(crash: Crash) -> Exception:
    """Return the error for a source that could not be studied."""
    if crash.is_bug:
        return ChildBugError(f"{crash.reason}\n{crash.tail}")
    return Unavailable(
        f"The source can't be run: {crash.reason}.",
        remedy=f"Look at {crash.log}, or run it by itself: {crash.reproduce}",
    )


def judge_failure(
    stage: Literal["conversion", "validation"], failure: TconvError | Crash
) -> Verdict:
    """Return the verdict on a target whose conversion or validation ended without a result."""
    if isinstance(failure, Unavailable):
        return NotJudged(failure.problem, failure.remedy)
    if isinstance(failure, TconvError):
        refusal = NotConverted if stage == "conversion" else Failed
        return refusal(failure.problem, failure.remedy)
    if failure.timed_out:
        return NotJudged(f"The {stage} was stopped: {failure.reason}.", "Raise --timeout.")
    return _crashed(stage, failure)


def _crashed(stage: str, crash: Crash) -> NotConverted:
    return NotConverted(
        f"The {stage} ended without a result: {crash.reason}.",
        f"Look at {crash.log}, or run it by itself: {crash.reproduce}",
        log=crash.log,
        tail=crash.tail,
        reproduce=crash.reproduce,
        is_bug=crash.is_bug,
    )


def is_frozen(note: str) -> bool:
    """Whether a note of an artifact is the tracer's word about a value that it froze."""
    return any(f": {word}" in note for word in TRACER_WORDS)


def quote_tracer(verdict: Failed, artifact: Artifact) -> Failed:
    """Add the lines at which a tracer said that it froze a value: the likeliest culprits."""
    frozen = [note for note in artifact.notes if is_frozen(note)]
    if not frozen:
        return verdict
    problem = f"{verdict.problem} The tracer froze a value at {'; '.join(frozen)}."
    remedy = verdict.remedy
    if any(BRANCH in note for note in frozen):
        remedy = f"{WITHOUT_BRANCH} {remedy}"
    return msgspec.structs.replace(verdict, problem=problem, remedy=remedy)


def refuse_unproven(verdict: Passed, artifact: Artifact, prepared: Prepared) -> Passed | Failed:
    """Fail what holds one way of a branch of which no sample took the other."""
    unproven = [
        note
        for note in artifact.notes
        if BRANCH in note and note.partition(": ")[0] in prepared.one_sided
    ]
    if not unproven:
        return verdict
    line = unproven[0].partition(": ")[0]
    way = "true" if prepared.one_sided[line] else "false"
    return Failed(
        f"A branch was frozen at {line}, and nothing is known of its other way: in all samples its "
        f"condition was {way}.",
        f"{WITHOUT_BRANCH} Or give rows that take the other way: --data.",
        verdict.outputs,
        verdict.score,
    )
