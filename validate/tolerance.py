"""How far an output may stray: relative to its own scale, and to the source's own noise."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..errors import UsageProblem
from ..spec import TensorSpec
from .compare import is_exact

FLOORS = {"float64": 1e-9, "float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""The smallest tolerance by dtype, as a share of a row's largest magnitude: some ten times what
exporters that are right were seen to differ by, a tenth of what half precision would do."""

NOISE_FACTOR = 10.0
"""A candidate may be this many times as noisy as the source itself."""

LARGEST = 1e-2
"""No noise excuses more than this share of the scale."""


def floor(dtype: str, narrowest: str) -> float:
    """Return how far two runs of one source may differ in an output of `dtype`.

    `narrowest` is the narrowest dtype it computes in: float64 at the end of a float32 model is
    float32 still.
    """
    return 0.0 if is_exact(dtype) else max(FLOORS[dtype], FLOORS[narrowest])


class Tolerances(msgspec.Struct, frozen=True):
    """What the user overrides: one tolerance for all floats, or one for an output by name."""

    floor: float | None = None
    by_output: dict[str, float] = {}

    def allowed(self, spec: TensorSpec, noise: float | None) -> float:
        """Return the largest error that passes for an output, as a share of its scale."""
        if is_exact(spec.dtype):
            return 0.0
        if spec.name in self.by_output:
            return self.by_output[spec.name]
        if self.floor is not None:
            return self.floor
        return max(FLOORS[spec.dtype], min(NOISE_FACTOR * (noise or 0.0), LARGEST))

    def least(self, spec: TensorSpec) -> float:
        """Return what passes whatever the noise."""
        return self.allowed(spec, None)

    def explain(self, spec: TensorSpec, noise: float | None) -> str:
        """Return a sentence that says where the tolerance comes from."""
        if is_exact(spec.dtype):
            return ""
        if spec.name in self.by_output or self.floor is not None:
            return f"Allowed is the {self.allowed(spec, noise):.2g} that was asked for."
        least = f"the floor for {spec.dtype}, {FLOORS[spec.dtype]:.2g}"
        if noise is None:
            return f"Allowed is {least}; the source's own noise is unknown."
        return (
            f"Allowed is the larger of {least}, and {NOISE_FACTOR:.0f} times the source's own "
            f"noise, {NOISE_FACTOR:.0f} × {noise:.2g}."
        )


def parse_tolerances(texts: tuple[str, ...]) -> Tolerances:
    """Read `1e-4` or `logits=1e-3`, each at most once.

    Raises:
        UsageProblem: not a number between 0 and 1, or given twice.
    """
    floor, by_output = None, {}
    for text in texts:
        name, separator, number = text.rpartition("=")
        # A lone '=' names no output: no number then, rather than a tolerance that is never used.
        value = _number(number if name or not separator else "", text)
        if (separator and name in by_output) or (not separator and floor is not None):
            raise UsageProblem(
                f"The tolerance {text!r} is given twice.", remedy="Keep one of the two."
            )
        if separator:
            by_output[name] = value
        else:
            floor = value
    return Tolerances(floor, by_output)


def check_names(tolerances: Tolerances, outputs: Sequence[str]) -> None:
    """Make sure that every tolerance is used.

    Raises:
        UsageProblem: one is for an output that there is not.
    """
    for name in tolerances.by_output:
        if name not in outputs:
            raise UsageProblem(
                f"The tolerance for {name!r} is for no output.",
                remedy=f"The outputs are: {', '.join(outputs)}.",
            )


def _number(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise UsageProblem(
            f"{whole!r} is no tolerance.",
            remedy="Give a share of the output's scale between 0 and 1: 1e-4, or logits=1e-3.",
        )
    return value
