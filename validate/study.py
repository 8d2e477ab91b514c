"""The sweep over one source: its answers to every sample, their shapes, and its own noise."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from ..convert.base import Array, Arrays, SourceModel
from ..errors import TconvError, UsageProblem
from ..report import Planned
from ..spec import BATCH, TensorSpec
from .batching import Found, Observation
from .compare import is_exact, magnitude
from .dataset import DataRequest, Part, RowSet
from .noise import NoiseMeter
from .plan import Budget, draw_pools
from .samples import Check, Dataset, Pool, SampleIndex, SampleStore
from .sampling import choose_rows
from .score import LABEL, Tally, Task, choose_output, parse_task
from .shapes import infer_shape
from .ties import find_scores

USUAL = ("ordinary", "example")
"""Kinds of values by which an output's scale and the source's noise are known."""
DATA = "data"
"""The kind of the user's own rows."""
FIRST = f"{DATA}-0"


def run_or_explain(model: SourceModel, feeds: Arrays, where: str) -> dict[str, Array]:
    """Return the source's answer.

    Raises:
        UsageProblem: it can't be run on these inputs.
    """
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


class Study:
    """The sweep over one source, pool by pool; nothing but the current pool is held."""

    def __init__(
        self,
        model: SourceModel,
        found: Found,
        store: SampleStore,
        seed: int,
        data: DataRequest,
        stochastic: Mapping[str, str],
    ) -> None:
        self.model, self.found, self.store, self.seed = model, found, store, seed
        self.signature = found.signature
        self.batch = found.batching.max_size
        self.plan: list[Planned] = []
        self.outputs: tuple[TensorSpec, ...] = ()
        self._asked = data
        self._tally: Tally | None = None
        self._noise = NoiseMeter(model, by_row=self.batch > 0)
        self._notes: list[str] = [
            f"Nothing is known of the values of {spec.name!r}: only 0 and 1 were tried. "
            "An example from the factory would tell."
            for spec in found.signature.inputs
            if spec.domain is None and "int" in spec.dtype
        ]
        self._notes += [
            f"The values of {name!r} vary from run to run and were not compared: {cause}."
            for name, cause in stochastic.items()
        ]
        self._is_stochastic = bool(stochastic)
        self._observations: list[Observation] = list(found.observations)
        self._dtypes: dict[str, str] = {}
        self._scales: dict[str, float] = {}
        self._score_axes: dict[str, int] = {}
        self._only_nan: set[str] = set()
        self._pools: list[Pool] = []
        self._checks: list[Check] = []

    @property
    def noise(self) -> dict[str, float]:
        """The outputs' float32 errors, as shares of their scales."""
        return self._noise.noise

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know of the study."""
        left = [planned for planned in self.plan if planned.skipped]
        notes = [*self._notes, *self._noise.notes]
        if left:
            notes.append(
                f"{len(left)} of {len(self.plan)} samples were left out for --budget: "
                f"{left[0].kind} values at {_say(left[0].sizes)}: {left[0].skipped}."
            )
        return tuple(dict.fromkeys(notes))

    def run(self, rows: RowSet | None) -> None:
        """Run every pool, store it, and write the index.

        Raises:
            UsageProblem: the user's rows or labels don't fit the model.
        """
        dataset = self._run_rows(rows) if rows is not None else None
        extra = (self._asked.samples or 0) if rows is None else 0
        budget = Budget(self._asked.seconds, self._asked.bytes)
        for pool, feeds in draw_pools(self.model, self.found, self.seed, extra):
            self._run_within(budget, pool, feeds)
        self._finish(dataset)

    def _run_within(self, budget: Budget, pool: Pool, feeds: Arrays) -> None:
        skipped = budget.refuse(feeds)
        started = time.monotonic()
        if not skipped:
            answers = self._run_pool(pool, feeds)
            size = sum(array.nbytes for array in (*feeds.values(), *answers.values()))
            budget.spend(feeds, time.monotonic() - started, size)
        seconds = round(time.monotonic() - started, 4)
        self.plan.append(Planned(pool.kind, pool.sizes, seconds, skipped))

    def _run_rows(self, rows: RowSet) -> Dataset:
        """Run the user's own rows; with labels, say how good the source is."""
        unused = rows.unused(self.signature)
        if unused:
            self._notes.append(f"Columns of --data that no input takes: {', '.join(unused)}.")
        started = time.monotonic()
        for number, part in enumerate(rows.parts(self.signature, self.batch)):
            self._run_part(number, part)
        seconds = round(time.monotonic() - started, 4)
        self.plan.append(Planned(DATA, {"rows": len(rows.taken)}, seconds))
        digest = rows.digest(self.signature)
        if self._tally is None:
            return Dataset(len(rows.taken), digest)
        score = self._tally.score()
        task = self._tally.task
        if score is None:
            raise UsageProblem(
                f"{task.metric} of the source itself on {self._asked.rows} is no number.",
                remedy="Look at the labels, and at the rows: is any label counted, is any NaN?",
            )
        return Dataset(len(rows.taken), digest, task.metric, task.output)

    def _run_part(self, number: int, part: Part) -> None:
        sizes = {BATCH: len(part.rows), **part.sizes} if self.batch else part.sizes
        pool = Pool(f"{DATA}-{number}", DATA, sizes, part.rows)
        answers = self._run_pool(pool, part.feeds)
        if part.labels is not None and self._asked.metric:
            if self._tally is None:
                output, metric = parse_task(self._asked.metric)
                self._tally = Tally(Task(metric, choose_output(output, answers)))
            self._tally.add(part.rows, answers[self._tally.task.output], part.labels)
            self.store.write(pool.name, LABEL, {0: part.labels})

    def _finish(self, dataset: Dataset | None) -> None:
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
                data=dataset,
                columns=self._noise.columns(),
            )
        )

    def _run_pool(self, pool: Pool, feeds: Arrays) -> dict[str, Array]:
        answers = run_or_explain(self.model, feeds, _where(pool))
        self._note_outputs(pool, answers)
        names = self.signature.input_names
        self.store.write(pool.name, "in", {i: feeds[name] for i, name in enumerate(names)})
        self.store.write(pool.name, "out", dict(enumerate(answers.values())))
        self._note_scores(pool, feeds, answers)
        if pool.kind in USUAL and not self._is_stochastic:
            self._noise.see(answers)
            self._noise.measure(feeds, answers, self._scales)
        self._pools.append(pool)
        rows = pool.sizes.get(BATCH, 0) if self.batch else 0
        self._checks += self._choose_checks(pool, rows)
        return answers

    def _choose_checks(self, pool: Pool, rows: int) -> list[Check]:
        if pool.rows and pool.name != FIRST:
            return [Check(pool.name)]  # which rows are together is tried on the first
        return choose_rows(pool.name, rows) if rows else [Check(pool.name)]

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
            if not is_exact(value.dtype.name) and pool.kind in (*USUAL, DATA):
                scale = float(magnitude(value).max(initial=0.0))
                self._scales[name] = max(self._scales.get(name, 0.0), scale)

    def _note_scores(self, pool: Pool, feeds: Arrays, answers: Arrays) -> None:
        for name, scores in find_scores(self.model, feeds, answers).items():
            self._score_axes[name] = scores.axis
            self.store.write(pool.name, "score", {list(answers).index(name): scores.values})


def _has_numbers(array: Array) -> bool:
    return not np.isnan(array).all()


def _say(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items()) or "its sizes"


def _where(pool: Pool) -> str:
    if pool.rows:
        return f"row {pool.rows[0]} to {pool.rows[-1]} of --data"
    return f"{_say(pool.sizes)} ({pool.kind} values)"
