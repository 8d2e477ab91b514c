"""Make the samples of a sweep: which sizes, which values, which rows."""

from __future__ import annotations

import itertools
from collections.abc import Container
from typing import Any

import numpy as np

from ..convert.base import Array
from ..spec import BATCH, Axis, Domain, Signature, TensorSpec
from .samples import Check, numpy_dtype

USUAL = 16
UNLIMITED = 32
"""How many sizes are within reach of an axis without a stated limit."""
LARGE, SMALL = 8.0, 1 / 64
LIMITS = {"float16": 65504.0}
"""The largest value that is drawn, by dtype; 3e38 for all others."""
DENORMALS = {"float16": 1e-6, "float64": 1e-310}
"""What is below the normal numbers, by dtype; 1e-40 for all others."""
KINDS = ("ordinary", "flipped", "large", "zero", "small", "denormal")
"""What floating-point values are like; whole numbers and masks have one kind."""

Sizes = dict[str, int]


def axis_values(axis: Axis) -> tuple[int, ...]:
    """Return the sizes an axis is tried at: smallest, usual, an odd one, largest."""
    low, high = axis.min, axis.max if axis.max is not None else axis.min + UNLIMITED - 1
    usual = min(max(low + 1, USUAL), high)
    # The largest is dear enough: the odd one need not be half as large.
    odd = 2 * usual + 1 if 2 * usual + 1 < high else (low + high) // 2 | 1
    return tuple(sorted({low, usual, min(odd, high), high}))


def plan_sizes(axes: dict[str, Axis]) -> list[Sizes]:
    """Return sizes for the axes so that every two values of any two axes meet at least once.

    All axes are also at their smallest together, at their usual size, and at their largest.
    """
    values = {name: axis_values(axis) for name, axis in axes.items()}
    longest = max(map(len, values.values()), default=1)
    plan: list[Sizes] = [
        {name: options[max(0, place + len(options))] for name, options in values.items()}
        for place in range(-longest, 0)
    ]
    wanted = dict.fromkeys(
        frozenset(((a, x), (b, y)))
        for a, b in itertools.combinations(values, 2)
        for x in values[a]
        for y in values[b]
    )
    for sizes in plan:
        _strike(wanted, sizes)
    while wanted:
        plan.append(_meet(dict(next(iter(wanted))), values, wanted))
        _strike(wanted, plan[-1])
    return plan


_Pair = frozenset[tuple[str, int]]


def _strike(wanted: dict[_Pair, None], sizes: Sizes) -> None:
    for two in itertools.combinations(sizes.items(), 2):
        wanted.pop(frozenset(two), None)


def _meet(chosen: Sizes, values: dict[str, tuple[int, ...]], wanted: Container[_Pair]) -> Sizes:
    """Complete `chosen` so that many of the wanted pairs meet; the axes stay in their order."""
    for name, options in values.items():
        if name not in chosen:
            met = [
                sum(frozenset(((name, size), other)) in wanted for other in chosen.items())
                for size in options
            ]
            chosen[name] = options[met.index(max(met))]
    return {name: chosen[name] for name in values}


def usual_sizes(axes: dict[str, Axis]) -> Sizes:
    """Return one ordinary size for every axis: at least 2, where that is allowed."""
    sizes = {}
    for name, axis in axes.items():
        options = axis_values(axis)
        sizes[name] = next((size for size in options if size > 1), options[0])
    return sizes


def draw(
    signature: Signature, sizes: Sizes, kind: str, seed: int, padding: int | None = None
) -> dict[str, Array]:
    """Return one array an input. No two inputs share their values, so that swapping them shows.

    Args:
        signature: the inputs.
        sizes: every axis' size.
        kind: one of `KINDS`.
        seed: the same seed gives the same arrays.
        padding: the id that stands where the mask is 0.
    """
    random = np.random.default_rng([seed, *sizes.values(), KINDS.index(kind)])
    arrays = {
        spec.name: _values(spec, spec.sized(sizes), kind, random) for spec in signature.inputs
    }
    _end(signature, arrays, padding)
    if padding is not None:
        _pad(signature, arrays, padding)
    return arrays


def has_kinds(signature: Signature) -> bool:
    """Whether any input takes values of more than one kind."""
    return any(_is_real(spec) for spec in signature.inputs)


def _is_real(spec: TensorSpec) -> bool:
    return "float" in spec.dtype and (spec.domain is None or spec.domain.kind == "real")


def _values(
    spec: TensorSpec, shape: tuple[int, ...], kind: str, random: np.random.Generator
) -> Array:
    dtype, domain = numpy_dtype(spec.dtype), spec.domain
    if _is_real(spec):
        limit = LIMITS.get(spec.dtype, 3e38)
        tiny = DENORMALS.get(spec.dtype, 1e-40)
        reals = _reals(domain, shape, kind, random, tiny)
        return np.clip(reals, -limit, limit).astype(dtype)
    if domain is not None and domain.kind == "mask":
        return _mask(domain, shape, random).astype(dtype)
    if spec.dtype == "bool" or (domain is not None and domain.kind == "binary"):
        return random.integers(0, 2, shape).astype(dtype)
    domain = domain or Domain("integer", 0, 1)
    whole = dtype if dtype.kind in "iu" else np.dtype(np.int64)
    return _integers(domain, shape, whole, random).astype(dtype)


def _integers(
    domain: Domain, shape: tuple[int, ...], dtype: np.dtype[Any], random: np.random.Generator
) -> Array:
    """Return whole numbers of the domain; its ends are among them, in the first row if they fit."""
    reach = np.iinfo(dtype)
    low, high = max(int(domain.low), reach.min), min(int(domain.high), reach.max)
    values = random.integers(low, high, shape, dtype, endpoint=True)
    flat = values.reshape(-1)
    if flat.size:
        flat[shape[-1] - 1 if shape and shape[-1] > 1 else -1] = low
        flat[0] = high
    return values


def _reals(
    domain: Domain | None,
    shape: tuple[int, ...],
    kind: str,
    random: np.random.Generator,
    tiny: float,
) -> Array:
    if kind == "zero":
        return np.zeros(shape)
    reach = max(abs(domain.low), abs(domain.high)) if domain is not None else 1.0
    middle = (domain.low + domain.high) / 2 if domain is not None else 0.0
    values = middle + random.standard_normal(shape) * (reach or 1.0) / 2
    factors = {"ordinary": 1.0, "flipped": -1.0, "large": LARGE, "small": SMALL, "denormal": tiny}
    return np.asarray(values * factors[kind])


def _mask(domain: Domain, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Return ones, and padding on one side: the first row is whole, the next right, then left."""
    longest = shape[-1]
    lengths = random.integers(min(max(1, int(domain.low)), longest), longest + 1, shape[:-1])
    lengths.reshape(-1)[:1] = longest
    places = np.arange(longest)
    left = np.arange(lengths.size).reshape(lengths.shape)[..., None] % 2 == 0
    return np.where(left, places >= longest - lengths[..., None], places < lengths[..., None])


def _end(signature: Signature, arrays: dict[str, Array], padding: int | None) -> None:
    """Put the id that ends a text behind its last token, and nowhere else."""
    for spec in signature.inputs:
        if spec.domain is None or spec.domain.end is None:
            continue
        end, low = spec.domain.end, int(spec.domain.low)
        ids = arrays[spec.name]
        ids[ids == end] = next(i for i in range(low, low + 3) if i not in (end, padding))
        last = np.full(ids.shape[:-1], ids.shape[-1] - 1)
        for mask in signature.inputs:
            if mask.domain and mask.domain.kind == "mask" and mask.shape == spec.shape:
                last = last - np.argmax(arrays[mask.name][..., ::-1], axis=-1)
        np.put_along_axis(ids, last[..., None], end, axis=-1)


def _pad(signature: Signature, arrays: dict[str, Array], padding: int) -> None:
    """Put the padding id where the mask of the same shape says there is nothing."""
    domains = [(spec, spec.domain) for spec in signature.inputs if spec.domain is not None]
    for mask in [spec for spec, domain in domains if domain.kind == "mask"]:
        for spec, domain in domains:
            # What has but two values is no token.
            is_tokens = domain.kind == "integer" and domain.high >= max(padding, 2)
            if is_tokens and spec.shape == mask.shape:
                arrays[spec.name][arrays[mask.name] == 0] = padding


def choose_rows(pool: str, largest: int) -> list[Check]:
    """Return the checks of a batched pool: a single row, small batches, reordered, repeated."""
    last = largest - 1
    checks = [Check(pool, None, f"batch {largest}"), Check(pool, (last,), "one row alone")]
    if largest > 1:
        checks.append(Check(pool, (last, 0), "batch 2 in another order"))
    if largest > 2:  # noqa: PLR2004
        checks.append(Check(pool, (1, 1, 0), "batch 3 with a repeated row"))
    return checks


def split_batch(signature: Signature) -> dict[str, Axis]:
    """Return the axes other than the batch."""
    return {name: axis for name, axis in signature.axes.items() if name != BATCH}
