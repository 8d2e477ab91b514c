"""The accuracy of a source and of an artifact on the same labelled rows."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from ..convert.base import Array, Arrays
from ..errors import UsageProblem
from ..report import Failed, Passed, Score
from .metrics import Evidence, LabelError, find_metric
from .samples import Check, Pool, SampleIndex, SampleStore

LABEL = "label"
"""What a pool's labels are stored as."""


class Task(msgspec.Struct, frozen=True):
    """What is scored, and by what: `metric` is a name or `file.py:function`."""

    metric: str
    output: str


def parse_task(text: str) -> tuple[str, str]:
    """Return the output, empty where none is named, and the metric of `[OUTPUT=]METRIC`.

    Raises:
        UsageProblem: there is no such metric.
    """
    output, _, metric = text.rpartition("=")
    find_metric(metric)
    return output, metric


def choose_output(asked: str, outputs: Arrays) -> str:
    """Return the output to score: the one asked for, `logits`, or the first.

    Raises:
        UsageProblem: there is no such output.
    """
    name = asked or ("logits" if "logits" in outputs else next(iter(outputs)))
    if name not in outputs:
        raise UsageProblem(
            f"The metric is for {name!r}, which is no output.",
            remedy=f"The outputs are: {', '.join(outputs)}.",
        )
    return name


class Tally:
    """What a metric needs of the rows seen so far."""

    def __init__(self, task: Task) -> None:
        self.task, self.metric = task, find_metric(task.metric)
        self.predictions: list[Array] = []
        self._evidence: list[Evidence] = []

    def add(self, rows: tuple[int, ...], output: Array, labels: Array) -> None:
        """Count an output against the labels of as many rows.

        Raises:
            UsageProblem: the labels don't fit the output; says which row.
        """
        if len(output) != len(labels):
            output = output[np.newaxis]  # a row of a model without batches
        try:
            seen = self.metric.observe(output, labels)
        except LabelError as error:
            raise UsageProblem(
                f"In row {rows[error.row]} of the labels {error}.",
                remedy="Mend the labels; -100 is a class that is not counted.",
            ) from error
        self.predictions.append(seen.predictions)
        self._evidence.append(seen.evidence)

    def score(self) -> float | None:
        """Return the metric over all rows; None where it is no number."""
        columns = [np.concatenate(column) for column in zip(*self._evidence, strict=True)]
        if not columns or not len(columns[0]):
            return None
        value = self.metric.total(*columns)
        return value if np.isfinite(value) else None


class Scorer:
    """Scores what is judged beside the source, as a `watch` of `judge`."""

    def __init__(self, store: SampleStore, task: Task, digest: str) -> None:
        self._store, self._task, self._digest = store, task, digest
        self._index = store.read_index()
        self._pools = {pool.name: pool for pool in self._index.pools if pool.rows}
        names = [spec.name for spec in self._index.outputs]
        self._position = names.index(task.output)
        self._source, self._artifact = Tally(task), Tally(task)
        self._seen: list[Pool] = []

    def __call__(self, check: Check, answer: Arrays) -> None:
        """Count an answer to one check, if that is rows of the user's, whole and well-formed."""
        pool = self._pools.get(check.pool)
        if pool is None or check.rows is not None:
            return
        dtype = self._index.outputs[self._position].dtype
        expected = self._store.read_one(check, "out", self._position, dtype)
        actual = answer.get(self._task.output)
        if actual is None or (actual.shape, actual.dtype) != (expected.shape, expected.dtype):
            return
        labels = self._store.read_one(check, LABEL, 0, "")
        self._source.add(pool.rows, expected, labels)
        self._artifact.add(pool.rows, actual, labels)
        self._seen.append(pool)

    def score(self) -> Score:
        """Return both scores; None of an artifact that did not answer to all rows."""
        whole = len(self._seen) == len(self._pools)
        return Score(
            metric=self._task.metric,
            output=self._task.output,
            rows=sum(len(pool.rows) for pool in self._pools.values()),
            data_digest=self._digest,
            source=self._source.score(),
            artifact=self._artifact.score() if whole else None,
            higher_is_better=self._source.metric.higher_is_better,
        )

    def save(self, path: Path) -> None:
        """Write what was predicted, an element a prediction: `row`, `source` and `artifact`.

        A prediction is a class (-1 where its scores are NaN) or a row's mean value.
        """
        rows = [
            np.broadcast_to(_column(pool.rows, values.ndim), values.shape).ravel()
            for pool, values in zip(self._seen, self._source.predictions, strict=True)
        ]
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f"{path.name}.part")
        with scratch.open("wb") as file:
            np.savez(
                file,
                row=_flat(rows).astype(np.int64),
                source=_flat(self._source.predictions),
                artifact=_flat(self._artifact.predictions),
            )
        scratch.replace(path)


def _column(rows: tuple[int, ...], ndim: int) -> Array:
    return np.asarray(rows).reshape(-1, *(1 for _ in range(ndim - 1)))


def _flat(arrays: list[Array]) -> Array:
    return np.concatenate([array.ravel() for array in arrays]) if arrays else np.zeros(0)


def scorer_for(store: SampleStore, index: SampleIndex) -> Scorer | None:
    """Return what scores a build's artifacts; None where there are no labels."""
    data = index.data
    if data is None or not data.metric:
        return None
    return Scorer(store, Task(data.metric, data.output), data.digest)


def with_score(verdict: Passed | Failed, score: Score) -> Passed | Failed:
    """Return the verdict with the score; an artifact whose score is no number has failed."""
    if isinstance(verdict, Passed) and score.artifact is None:
        return Failed(
            f"Its {score.metric} on {score.rows} rows of --data is no number; "
            f"the source's is {score.source:.6g}.",
            "Look at the predictions that were kept beside the report.",
            verdict.outputs,
            score,
        )
    return msgspec.structs.replace(verdict, score=score)
