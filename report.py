"""The record of a build: one verdict per target, each a type of its own, and what it rests on."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from .artifact import Artifact
from .errors import BUG, ConversionError
from .process import Cost
from .spec import Signature


class Worst(msgspec.Struct, frozen=True):
    """The element of an output that strayed furthest, and the sample in which it did."""

    sample: str
    index: tuple[int, ...]
    actual: float
    expected: float


class Point(msgspec.Struct, frozen=True):
    """The largest error of an output at one place of the sweep: how many rows, at which sizes.

    `error` is None where no number says how far; `passed` says whether it was within bounds.
    """

    kind: str
    rows: int
    sizes: dict[str, int]
    error: float | None
    passed: bool


class OutputCheck(msgspec.Struct, frozen=True):
    """How far one output strayed over all checks.

    `error`, `tolerance` and `noise` are shares of the output's own scale (the largest magnitude in
    its row). `error` is None where no number says how far: another shape, a NaN, a wrong index.
    `noise` is the source's own float32 error against float64, None where unknown. `floor` is what
    passes whatever the noise; `mismatched` is the share of elements beyond the tolerance, `cosine`
    and `relative_l2` compare all elements at once, and `agreement` is the share of equal first
    choices of an output that looks like scores of classes. `waived` says why its values were not
    compared, where they vary from run to run.
    """

    name: str
    error: float | None
    tolerance: float
    noise: float | None = None
    exact: bool = False
    floor: float | None = None
    mismatched: float | None = None
    cosine: float | None = None
    relative_l2: float | None = None
    agreement: float | None = None
    worst: Worst | None = None
    waived: str = ""
    points: tuple[Point, ...] = ()


class Score(msgspec.Struct, frozen=True):
    """How good the source and an artifact are on the same labelled rows of the user's.

    `source` and `artifact` are the metric's values, None where it is no number; `data_digest`
    tells whether another build was scored on the same rows and labels.
    """

    metric: str
    output: str
    rows: int
    data_digest: str
    source: float | None
    artifact: float | None
    higher_is_better: bool = True

    @property
    def pair(self) -> tuple[float | None, float | None]:
        """The artifact's value, then the source's."""
        return self.artifact, self.source


class Passed(msgspec.Struct, frozen=True, tag="passed", tag_field="verdict"):
    """Every check agreed with the source."""

    exit_code: ClassVar[int] = 0
    outputs: tuple[OutputCheck, ...]
    checks: int
    device: str
    score: Score | None = None


class Failed(msgspec.Struct, frozen=True, tag="failed", tag_field="verdict"):
    """A check said no: `problem` says what, how far and where; `remedy` what to do."""

    exit_code: ClassVar[int] = 1
    problem: str
    remedy: str
    outputs: tuple[OutputCheck, ...] = ()
    score: Score | None = None


class NotConverted(msgspec.Struct, frozen=True, tag="not converted", tag_field="verdict"):
    """The conversion was refused, or it crashed; the last three say more of a crash."""

    problem: str
    remedy: str
    log: str = ""
    tail: str = ""
    reproduce: str = ""
    is_bug: bool = False

    @property
    def exit_code(self) -> int:
        """A refusal is the target's word; a bug is ours."""
        return BUG if self.is_bug else ConversionError.exit_code


class PreflightOnly(msgspec.Struct, frozen=True, tag="preflight only", tag_field="verdict"):
    """All that can be checked without the target's hardware was checked, and was right."""

    exit_code: ClassVar[int] = 3
    problem: str
    remedy: str


class NotJudged(msgspec.Struct, frozen=True, tag="unavailable", tag_field="verdict"):
    """Something that is needed is missing here."""

    exit_code: ClassVar[int] = 3
    problem: str
    remedy: str


Verdict = Passed | Failed | NotConverted | PreflightOnly | NotJudged


class Batching(msgspec.Struct, frozen=True):
    """How large a batch a server may form; `reason` says why none where `max_size` is 0."""

    max_size: int
    reason: str = ""


class Omission(msgspec.Struct, frozen=True):
    """Something of the source that the signature leaves out, and why."""

    name: str
    reason: str


class Planned(msgspec.Struct, frozen=True):
    """One sample of the sweep; `skipped` says why it was left out, where it was."""

    kind: str
    sizes: dict[str, int]
    seconds: float = 0.0
    skipped: str = ""


class Prepared(msgspec.Struct, frozen=True):
    """What is known of a source once it has been run: the truth the targets are compared with.

    `noise` maps an output to the source's own float32 error, as a share of the output's scale.
    `fingerprint` tells whether a later load gave the same weights. `plan` is the whole sweep.
    `stochastic` maps outputs that vary from run to run to what they vary by, which was waived.
    `one_sided` are the lines that look at a value and went one way only over all samples.
    """

    model: str
    source: str
    framework: str
    signature: Signature
    batching: Batching
    noise: dict[str, float] = {}
    frozen: dict[str, str] = {}
    omitted: tuple[Omission, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    versions: dict[str, str] = {}
    plan: tuple[Planned, ...] = ()
    stochastic: dict[str, str] = {}
    one_sided: dict[str, bool] = {}


class Attempt(msgspec.Struct, frozen=True):
    """One way of converting that was tried; `cost` covers conversion and validation apart."""

    recipe: str
    verdict: Verdict
    convert_cost: Cost | None = None
    validate_cost: Cost | None = None


class TargetReport(msgspec.Struct, frozen=True):
    """One target's outcome. `exported` is the version folder it was exported to, if it was."""

    target: str
    verdict: Verdict
    attempts: tuple[Attempt, ...] = ()
    artifact: Artifact | None = None
    exported: str | None = None


class Report(msgspec.Struct, frozen=True):
    """The whole record of a build, as `report.json` holds it."""

    name: str
    model: str
    exit_code: int
    prepared: Prepared | None
    prepare_cost: Cost | None
    targets: tuple[TargetReport, ...]
    seconds: float
    tconv: str
    platform: dict[str, str] = {}
    schema: int = 1
