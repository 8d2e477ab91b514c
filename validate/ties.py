"""What a source's indices were chosen by: between near scores, rounding decides."""

from __future__ import annotations

import numpy as np

from ..convert.base import Arrays, SourceModel
from .compare import Scores
from .tolerance import FLOORS


def find_scores(model: SourceModel, feeds: Arrays, outputs: Arrays) -> dict[str, Scores]:
    """Return the scores of every output of indices; the source is run again if there may be any."""
    if not any(value.dtype == np.int64 for value in outputs.values()):
        return {}
    return {
        name: Scores(values, axis, FLOORS.get(values.dtype.name, 0.0))
        for name, (values, axis) in model.scores(feeds).items()
    }
