"""Models that differ from themselves: which kind of thing it is, and where it stands."""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

from ..convert.base import Arrays, SourceModel
from ..errors import TconvError
from .compare import compare, is_exact
from .ties import find_scores
from .tolerance import floor

HIDDEN = "hidden state between calls"
DRAWN = "random numbers"

REMEDIES = {
    "live dropout": "F.dropout needs training=self.training: nn.Dropout is off in eval mode",
    "sampling": "draw outside the model and pass the noise in, or return what is drawn from",
    HIDDEN: "keep nothing in attributes: take the state as an input and return it as an output",
    DRAWN: "draw outside the model and pass the numbers in",
}
WAIVER = "or waive it with --allow-stochastic: then names, dtypes and shapes alone are compared"


def find_varying(model: SourceModel, feeds: Arrays, first: Arrays, second: Arrays) -> list[str]:
    """Return the outputs in which two runs on the same inputs differ.

    Not bit by bit: threads add up in another order from run to run.
    """
    scores = find_scores(model, feeds, first)
    varying = []
    for name, value in first.items():
        allowed = floor(value.dtype.name, model.narrowest)
        if (
            name not in second
            or compare(second[name], value, allowed, scores=scores.get(name)).problem
        ):
            varying.append(name)
    return varying


def suspects(model: SourceModel, feeds: Arrays) -> tuple[str, ...]:
    """Return `kind: operator at file:line` for what draws; a source that can't tell gives none."""
    find = getattr(model, "suspects", None)
    return tuple(find(feeds)) if find is not None else ()


def name_cause(model: SourceModel, feeds: Arrays) -> str:
    """Return what makes a model differ from itself, with the operator where it can be found."""
    drawing = [s for s in suspects(model, feeds) if not s.startswith("batch statistics")]
    if drawing:
        return "; ".join(drawing)
    return DRAWN if _is_seeded(model, feeds) else HIDDEN


def _is_seeded(model: SourceModel, feeds: Arrays) -> bool:
    """Whether the same seeds give the same answers: it draws, and keeps nothing."""
    answers = []
    for _ in range(2):
        _seed()
        answers.append(model.run(feeds))
    return all(np.array_equal(*(_plain(a[name]) for a in answers)) for name in answers[0])


def _plain(array: Any) -> Any:
    return array if is_exact(array.dtype.name) else np.nan_to_num(array.astype(np.float64))


def _seed() -> None:
    np.random.seed(0)
    random.seed(0)
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(0)
    if (tensorflow := sys.modules.get("tensorflow")) is not None:
        tensorflow.random.set_seed(0)


def refuse(varying: list[str], cause: str) -> TconvError:
    """Return the error for a model that differs from itself without a waiver."""
    kind = cause.partition(":")[0]
    advice = REMEDIES.get(kind, REMEDIES[DRAWN])
    return TconvError(
        f"The model is stochastic: two runs on the same input differ in {varying[0]!r} ({cause}).",
        remedy=f"{advice[0].upper()}{advice[1:]}; {WAIVER}.",
    )
