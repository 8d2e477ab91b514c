"""What a model may be called in a Triton model repository, where its name is a folder's."""

from __future__ import annotations

import re

from ..errors import UsageProblem

LONGEST = 128
"""A folder's name may have 255 bytes almost everywhere; this leaves room for what is added."""

_FIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")


def validate_name(name: str) -> str:
    """Return `name` if a model can be called that.

    Raises:
        UsageProblem: it would be no good name of a folder, or of a part of a URL.
    """
    if len(name) > LONGEST:
        raise UsageProblem(
            f"The model name {name[:20]!r}… has {len(name)} characters.",
            remedy=f"Choose one of at most {LONGEST} with --name.",
        )
    if not _FIT.fullmatch(name):
        raise UsageProblem(
            f"{name!r} is no name for a model on Triton.",
            remedy=f"Use letters, digits, '_', '-' and '.', for example --name {fit_name(name)}.",
        )
    return name


def fit_name(text: str) -> str:
    """Return `text` with everything replaced that `validate_name` would refuse."""
    return _UNFIT.sub("_", text).lstrip(".-").rstrip("_")[:LONGEST] or "model"
