"""The source's own float32 noise: how far its answers are from those it gives in float64."""

from __future__ import annotations

import numpy as np

from ..convert.base import Arrays, SourceModel
from ..errors import TconvError
from .columns import ColumnMeter
from .compare import compare, is_exact
from .samples import Columns
from .tolerance import floor

NOISE_ROWS = 1
"""How many rows of a pool are run in float64."""
ROUNDING = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Float64 that differs by more has taken another path (a saturated mask, a branch): no rounding."""


class NoiseMeter:
    """Measures a source, sample by sample, and keeps the worst of every output."""

    def __init__(self, model: SourceModel, *, by_row: bool) -> None:
        self.model, self.by_row = model, by_row
        self.noise: dict[str, float] = {}
        self.notes: list[str] = []
        self._meters: dict[str, tuple[str, tuple[ColumnMeter, ...]]] = {}

    def see(self, answers: Arrays) -> None:
        """Note the magnitudes of an answer to usual values."""
        for name, value in answers.items():
            if self.by_row and not is_exact(value.dtype.name) and value.ndim > 1:
                axes = sorted({1, value.ndim - 1})
                made = (value.dtype.name, tuple(map(ColumnMeter, axes)))
                for meter in self._meters.setdefault(name, made)[1]:
                    meter.see(value)

    def columns(self) -> dict[str, Columns]:
        """Return the outputs whose parts have scales of their own."""
        found = {}
        for name, (dtype, meters) in self._meters.items():
            known = [c for meter in meters if (c := meter.columns(dtype)) is not None]
            if known:
                found[name] = known[-1]
        return found

    def measure(self, feeds: Arrays, answers: Arrays, scales: dict[str, float]) -> None:
        """Compare a few rows of the float32 answers with float64."""
        if self.by_row:
            # On the same rows: what else is in a batch would pass for noise.
            feeds = {name: array[:NOISE_ROWS] for name, array in feeds.items()}
            alone = self.model.run(feeds)
            self._check_alone(alone, answers, scales)
            answers = alone
        try:
            exact = self.model.run_double(feeds)
        except Exception as error:  # any operator may have no float64 form
            self.notes.append(
                f"The source's noise is unknown: float64 failed ({type(error).__name__})."
            )
            return
        for name, value in answers.items():
            if is_exact(value.dtype.name) or name not in exact:
                continue
            expected = exact[name].astype(np.float64)
            actual = value.astype(np.float64)
            typical = scales.get(name, 0.0)
            found = compare(
                actual, expected, float("inf"), typical=typical, by_row=self.by_row
            ).error
            for meter in self._meters.get(name, ("", ()))[1]:
                meter.hear(actual, expected)
            if found < ROUNDING[self.model.narrowest]:
                self.noise[name] = max(self.noise.get(name, 0.0), found)
            else:
                self.notes.append(
                    f"Float64 takes {name!r} elsewhere (by {found:.2g}): no noise was used."
                )

    def _check_alone(self, alone: Arrays, answers: Arrays, scales: dict[str, float]) -> None:
        """Raise if the first rows of the largest batch are other than by themselves."""
        for name, value in alone.items():
            whole, allowed = answers[name], floor(value.dtype.name, self.model.narrowest)
            if is_exact(value.dtype.name):
                continue
            typical = scales.get(name, 0.0)
            problem = compare(value, whole[: len(value)], allowed, typical=typical).problem
            if problem:
                raise TconvError(
                    f"Rows influence each other at batch {len(whole)}: alone, {name!r} {problem}.",
                    remedy="Ask for a smaller --max-batch-size, or for 0: no batching.",
                )
