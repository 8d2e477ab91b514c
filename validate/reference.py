"""Run the source: its signature, the samples of the sweep, its answers, and its own noise.

The first thing that happens to a model, in a process of its own: no exporter has touched it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..convert.base import Array, Arrays, SourceModel, SourceRequest
from ..convert.registry import find_source
from ..errors import TconvError, UsageProblem
from ..extras import version_of
from ..report import Prepared
from ..spec import BATCH, Axis, Signature, TensorSpec
from .batching import ROWS, Found, Observation, find_batch
from .compare import compare, is_exact, magnitude
from .samples import Check, Pool, SampleIndex, SampleStore
from .sampling import (
    KINDS,
    Sizes,
    axis_values,
    choose_rows,
    draw,
    has_kinds,
    plan_sizes,
    split_batch,
    usual_sizes,
)
from .shapes import infer_shape
from .ties import find_scores
from .tolerance import floor

NOISE_ROWS = 1
"""How many rows of a pool are run in float64."""
REPEATED_ROWS = 2
"""How many rows the source is run on twice."""
ROUNDING = {"float64": 1e-4, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Float64 that differs by more has taken another path (a saturated mask, a branch): no rounding."""
VERSIONS = ("torch", "transformers", "numpy")


def prepare(request: dict[str, Any], folder: str, max_batch_size: int | None) -> dict[str, Any]:
    """Load the source, study it, and leave samples and answers in the workspace `folder`.

    Raises:
        TconvError: it differs from itself, or a batch that was asked for is none.
        UsageProblem: it can't be loaded or run as asked.
    """
    asked = msgspec.convert(request, SourceRequest)
    workspace = Path(folder)
    source = find_source(asked.model)
    model = source.load(asked, workspace / "source")
    # Before it runs: a module may count its calls in a buffer.
    fingerprint = model.fingerprint()
    _check_repeatable(model, asked.seed)
    found = find_batch(model, asked.seed, max_batch_size)
    study = _Study(model, found, SampleStore(workspace / "samples"), asked.seed)
    study.run()
    prepared = Prepared(
        model=asked.model,
        source=source.name,
        framework=model.framework,
        signature=Signature(found.signature.inputs, study.outputs),
        batching=found.batching,
        noise=study.noise,
        frozen=model.frozen,
        omitted=model.omitted,
        notes=tuple(study.notes),
        fingerprint=fingerprint,
        versions=version_of(*VERSIONS),
    )
    built: dict[str, Any] = msgspec.to_builtins(prepared)
    return built


def _usual_answer(
    model: SourceModel, seed: int, rows: int = REPEATED_ROWS
) -> tuple[Arrays, dict[str, Any]]:
    """Return usual inputs and the source's answer: of a single row, if it refuses several."""
    sizes = {**usual_sizes(model.signature.axes), BATCH: rows}
    feeds = model.examples or draw(model.signature, sizes, "ordinary", seed, model.padding)
    try:
        return feeds, _run_or_explain(model, feeds, _usual_name(model))
    except UsageProblem:
        if model.examples or rows == 1:
            raise
        return _usual_answer(model, seed, rows=1)


def _usual_name(model: SourceModel) -> str:
    return "the example inputs" if model.examples else "inputs as they are stated"


def _check_repeatable(model: SourceModel, seed: int) -> None:
    """Raise if the source, run twice on one input, gives two answers."""
    feeds, first = _usual_answer(model, seed)
    second = _run_or_explain(model, feeds, _usual_name(model))
    scores = find_scores(model, feeds, first)
    for name, value in first.items():
        # Not bit by bit: threads add up in another order from run to run.
        allowed = floor(value.dtype.name, model.narrowest)
        ties = scores.get(name)
        if name not in second or compare(second[name], value, allowed, scores=ties).problem:
            raise TconvError(
                f"The model is stochastic: two runs on the same input differ in {name!r}.",
                remedy="Look for dropout or sampling that is live in eval mode "
                "(F.dropout needs training=self.training), and switch it off.",
            )


def _run_or_explain(model: SourceModel, feeds: Arrays, where: str) -> dict[str, Any]:
    try:
        return model.run(feeds)
    except TconvError:
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or ["no message"]
        raise UsageProblem(
            f"The source itself can't run at {where}: {type(error).__name__}: {lines[0]}",
            remedy="State what it takes, with ranges: --input 'name:dtype[batch,seq=2..64]'.",
        ) from error


class _Study:
    """The sweep over one source, pool by pool; nothing but the current pool is held."""

    def __init__(self, model: SourceModel, found: Found, store: SampleStore, seed: int) -> None:
        self.model, self.found, self.store, self.seed = model, found, store, seed
        self.signature = found.signature
        self.batch = found.batching.max_size
        self.notes: list[str] = [
            f"Nothing is known of the values of {spec.name!r}: only 0 and 1 were tried. "
            "An example from the factory would tell."
            for spec in found.signature.inputs
            if spec.domain is None and "int" in spec.dtype
        ]
        self.noise: dict[str, float] = {}
        self.outputs: tuple[TensorSpec, ...] = ()
        self._observations: list[Observation] = list(found.observations)
        self._dtypes: dict[str, str] = {}
        self._scales: dict[str, float] = {}
        self._score_axes: dict[str, int] = {}
        self._only_nan: set[str] = set()
        self._pools: list[Pool] = []
        self._checks: list[Check] = []

    def run(self) -> None:
        """Run every pool, store it, and write the index."""
        for pool, feeds in self._draw_pools():
            self._run_pool(pool, feeds)
        if self._only_nan:
            raise TconvError(
                f"The source's output {min(self._only_nan)!r} is NaN for every input, everywhere: "
                "nothing can be compared.",
                remedy="Look at the weights, and at what inputs the model is meant for: --input.",
            )
        self.outputs = tuple(
            TensorSpec(name, dtype, infer_shape(name, self._observations, self.signature))
            for name, dtype in self._dtypes.items()
        )
        self.store.write_index(
            SampleIndex(
                inputs=self.signature.inputs,
                outputs=self.outputs,
                pools=tuple(self._pools),
                checks=tuple(self._checks),
                scales=self._scales,
                score_axes=self._score_axes,
            )
        )

    def _draw_pools(self) -> Iterator[tuple[Pool, Arrays]]:
        axes = split_batch(self.signature) if self.batch else self.signature.axes
        batch: Sizes = {BATCH: self.batch} if self.batch else {}
        if self.model.examples:
            yield self._example_pool()
        for sizes in plan_sizes(axes):
            yield self._draw_pool("ordinary", {**sizes, **batch})
        if has_kinds(self.signature):
            for kind in KINDS[1:]:
                yield self._draw_pool(kind, {**usual_sizes(axes), **batch})
            # What rows decide together, they must decide both ways: more of them, more chances.
            for rows in () if self.batch or ROWS not in axes else axis_values(axes[ROWS]):
                sizes = {**usual_sizes(axes), ROWS: rows}
                if sizes != usual_sizes(axes):
                    yield self._draw_pool("flipped", sizes)

    def _example_pool(self) -> tuple[Pool, Arrays]:
        examples = self.model.examples
        sizes: Sizes = {}
        for spec in self.signature.inputs:
            for dim, size in zip(spec.shape, examples[spec.name].shape, strict=True):
                if isinstance(dim, Axis):
                    sizes[dim.name] = size
        return Pool("example", "example", sizes), examples

    def _draw_pool(self, kind: str, sizes: Sizes) -> tuple[Pool, Arrays]:
        name = "-".join([kind, *(f"{axis}{size}" for axis, size in sizes.items())])
        feeds = draw(self.signature, sizes, kind, self.seed, self.model.padding)
        return Pool(name, kind, sizes), feeds

    def _run_pool(self, pool: Pool, feeds: Arrays) -> None:
        where = ", ".join(f"{name} {size}" for name, size in pool.sizes.items()) or "its sizes"
        answers = _run_or_explain(self.model, feeds, f"{where} ({pool.kind} values)")
        self._note_outputs(pool, answers)
        names = self.signature.input_names
        self.store.write(pool.name, "in", {i: feeds[name] for i, name in enumerate(names)})
        self.store.write(pool.name, "out", dict(enumerate(answers.values())))
        self._note_scores(pool, feeds, answers)
        if pool.kind in ("ordinary", "example"):
            self._measure_noise(feeds, answers)
        self._pools.append(pool)
        rows = pool.sizes.get(BATCH, 0) if self.batch else 0
        self._checks += choose_rows(pool.name, rows) if rows else [Check(pool.name)]

    def _note_outputs(self, pool: Pool, answers: Arrays) -> None:
        dtypes = {name: value.dtype.name for name, value in answers.items()}
        if self._dtypes and dtypes != self._dtypes:
            raise TconvError(
                f"The source's outputs change with its inputs: {dtypes}, before {self._dtypes}.",
                remedy="Let it return the same outputs, of the same dtypes, at every size.",
            )
        if not self._dtypes:
            self._only_nan = {name for name in dtypes if not is_exact(dtypes[name])}
        self._only_nan -= {
            n for n in self._only_nan if not answers[n].size or _has_numbers(answers[n])
        }
        self._dtypes = dtypes
        self._observations.append((pool.sizes, {n: v.shape for n, v in answers.items()}))
        for name, value in answers.items():
            if not is_exact(value.dtype.name) and pool.kind in ("ordinary", "example"):
                scale = float(magnitude(value).max(initial=0.0))
                self._scales[name] = max(self._scales.get(name, 0.0), scale)

    def _note_scores(self, pool: Pool, feeds: Arrays, answers: Arrays) -> None:
        for name, scores in find_scores(self.model, feeds, answers).items():
            self._score_axes[name] = scores.axis
            self.store.write(pool.name, "score", {list(answers).index(name): scores.values})

    def _measure_noise(self, feeds: Arrays, answers: Arrays) -> None:
        """Compare a few rows of the float32 answers with float64."""
        if self.batch:
            # On the same rows: what else is in a batch would pass for noise.
            feeds = {name: array[:NOISE_ROWS] for name, array in feeds.items()}
            alone = self.model.run(feeds)
            self._check_alone(alone, answers)
            answers = alone
        try:
            exact = self.model.run_double(feeds)
        except Exception as error:  # any operator may have no float64 form
            self._note(f"The source's noise is unknown: float64 failed ({type(error).__name__}).")
            return
        for name, value in answers.items():
            if is_exact(value.dtype.name) or name not in exact:
                continue
            expected = exact[name].astype(np.float64)
            actual = value.astype(np.float64)
            typical = self._scales.get(name, 0.0)
            found = compare(
                actual, expected, float("inf"), typical=typical, by_row=self.batch > 0
            ).error
            if found < ROUNDING[self.model.narrowest]:
                self.noise[name] = max(self.noise.get(name, 0.0), found)
            else:
                self._note(f"Float64 takes {name!r} elsewhere (by {found:.2g}): no noise was used.")

    def _check_alone(self, alone: Arrays, answers: Arrays) -> None:
        """Raise if the first rows of the largest batch are other than by themselves."""
        for name, value in alone.items():
            whole, allowed = answers[name], floor(value.dtype.name, self.model.narrowest)
            if is_exact(value.dtype.name):
                continue
            typical = self._scales.get(name, 0.0)
            problem = compare(value, whole[: len(value)], allowed, typical=typical).problem
            if problem:
                raise TconvError(
                    f"Rows influence each other at batch {len(whole)}: alone, {name!r} {problem}.",
                    remedy="Ask for a smaller --max-batch-size, or for 0: no batching.",
                )

    def _note(self, note: str) -> None:
        self.notes += [note] if note not in self.notes else []


def _has_numbers(array: Array) -> bool:
    return not np.isnan(array).all()
