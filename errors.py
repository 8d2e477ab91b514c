"""Every error tconv raises on purpose, with the exit code it ends in.

TconvError                1  a check said no
├── UsageProblem          2  the request cannot be carried out as it stands
├── Unavailable           3  something that is needed is not here: hub, server, GPU, time
│   └── MissingExtra      3  … a Python package
├── ConversionError       4  a target refused the model
├── PublishError          5  publishing failed; the old version was seen to answer
└── RollbackError         6  publishing failed and the way back could not be proven
"""

from __future__ import annotations

import errno
from typing import ClassVar

FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says where there is no room left, on the disk or in a quota."""

BUG = 70
"""The exit code of a failure that tconv did not foresee (`EX_SOFTWARE` of BSD's sysexits.h)."""


class TconvError(Exception):
    """A failure that tconv explains: what went wrong, then what to do about it."""

    exit_code: ClassVar[int] = 1

    def __init__(self, problem: str, *, remedy: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem}\n{self.remedy}"


class UsageProblem(TconvError):
    """The request itself cannot be carried out."""

    exit_code = 2


class Unavailable(TconvError):
    """Nothing is wrong with the request, but it could not be judged here and now."""

    exit_code = 3


class MissingExtra(Unavailable):
    """An optional dependency is not installed."""


class ConversionError(TconvError):
    """A target refused the model."""

    exit_code = 4


class PublishError(TconvError):
    """Publishing failed; the version that was served before still answers."""

    exit_code = 5


class RollbackError(TconvError):
    """Publishing failed and the old version could not be shown to answer: a person is needed."""

    exit_code = 6


_BY_NAME = {
    kind.__name__: kind
    for kind in (
        TconvError,
        UsageProblem,
        Unavailable,
        MissingExtra,
        ConversionError,
        PublishError,
        RollbackError,
    )
}


def to_json(error: TconvError) -> dict[str, str]:
    """Return `error` as what travels from a child process to its parent."""
    return {"kind": type(error).__name__, "problem": error.problem, "remedy": error.remedy}


def from_json(data: dict[str, str]) -> TconvError:
    """Return the error that `to_json` wrote."""
    return _BY_NAME[data["kind"]](data["problem"], remedy=data["remedy"])
