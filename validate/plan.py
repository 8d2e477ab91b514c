"""The sweep: which samples, in which order, and which of them a budget leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from ..convert.base import Array, Arrays, SourceModel
from ..spec import BATCH, Axis, Signature
from .batching import ROWS, Found
from .samples import Pool
from .sampling import (
    KINDS,
    Sizes,
    axis_values,
    draw,
    has_kinds,
    plan_sizes,
    split_batch,
    usual_sizes,
)


class Budget:
    """What the sweep may cost the source: seconds of its time, and bytes of samples and answers.

    What the next sample will cost is told from those before, by the numbers in its inputs.
    """

    def __init__(self, seconds: float | None, size: int | None) -> None:
        self._limits = (seconds or math.inf, size or math.inf)
        self._spent = [0.0, 0.0]
        self._rates = [0.0, 0.0]

    def refuse(self, feeds: Arrays) -> str:
        """Return why a sample is too dear; empty where it is not, or nothing is known yet."""
        for limit, spent, rate, unit in zip(
            self._limits, self._spent, self._rates, ("seconds", "bytes"), strict=True
        ):
            cost = spent + rate * _elements(feeds)
            if rate and cost > limit:
                return f"it would bring the sweep to {cost:.3g} of {limit:.3g} {unit}"
        return ""

    def spend(self, feeds: Arrays, seconds: float, size: int) -> None:
        """Count what a sample has cost."""
        for place, cost in enumerate((seconds, size)):
            self._spent[place] += cost
            rate = cost / max(_elements(feeds), 1)
            self._rates[place] = max(self._rates[place], rate)


def _elements(feeds: Arrays) -> int:
    return sum(array.size for array in feeds.values())


def draw_pools(
    model: SourceModel, found: Found, seed: int, extra: int
) -> Iterator[tuple[Pool, dict[str, Array]]]:
    """Yield the samples that are made up, what tells most first.

    Args:
        model: the source.
        found: its signature, and whether it has a batch.
        seed: of the values.
        extra: how many rows of ordinary values are drawn beyond the sweep.
    """
    signature, largest = found.signature, found.batching.max_size
    axes = split_batch(signature) if largest else signature.axes
    batch: Sizes = {BATCH: largest} if largest else {}
    usual = usual_sizes(axes)

    def pool(kind: str, sizes: Sizes, number: int = 0) -> tuple[Pool, dict[str, Array]]:
        name = "-".join([kind, *(f"{axis}{size}" for axis, size in sizes.items())])
        feeds = draw(signature, sizes, kind, seed + number, model.padding)
        return Pool(f"{name}-{number}" if number else name, kind, sizes), feeds

    if model.examples:
        yield _example_pool(signature, model.examples)
    for sizes in plan_sizes(axes):
        yield pool("ordinary", {**sizes, **batch})
    if has_kinds(signature):
        for kind in KINDS[1:]:
            yield pool(kind, {**usual, **batch})
        for sizes in _other_rows(axes, usual) if not largest else ():
            yield pool("flipped", sizes)
    for number, sizes in enumerate(_extra_sizes(usual, largest, extra), 1):
        yield pool("ordinary", sizes, number)


def _other_rows(axes: Mapping[str, Axis], usual: Sizes) -> Iterator[Sizes]:
    """What rows decide together, they must decide both ways: more of them, more chances."""
    for rows in axis_values(axes[ROWS]) if ROWS in axes else ():
        if rows != usual[ROWS]:
            yield {**usual, ROWS: rows}


def _extra_sizes(usual: Sizes, largest: int, extra: int) -> Iterator[Sizes]:
    step = largest or 1
    for start in range(0, extra, step):
        yield {**usual, BATCH: min(step, extra - start)} if largest else usual


def _example_pool(
    signature: Signature, examples: Mapping[str, Array]
) -> tuple[Pool, dict[str, Array]]:
    sizes: Sizes = {}
    for spec in signature.inputs:
        for dim, size in zip(spec.shape, examples[spec.name].shape, strict=True):
            if isinstance(dim, Axis):
                sizes[dim.name] = size
    return Pool("example", "example", sizes), dict(examples)
