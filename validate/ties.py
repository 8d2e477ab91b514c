"""What a source's indices were chosen by: between near scores, rounding decides."""

from __future__ import annotations

from ..convert.base import Arrays, SourceModel
from .compare import Scores, is_exact
from .tolerance import FLOORS


def find_scores(model: SourceModel, feeds: Arrays, outputs: Arrays) -> dict[str, Scores]:
    """Return what every output of indices, flags or whole numbers was chosen by or cut from.

    The source is run again if there is any.
    """
    if not any(is_exact(value.dtype.name) for value in outputs.values()):
        return {}
    return {
        name: Scores(values, axis, FLOORS.get(values.dtype.name, 0.0))
        for name, (values, axis) in model.scores(feeds).items()
    }
