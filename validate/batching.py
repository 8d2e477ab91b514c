"""Find out whether a source's first axis is a batch: rows that do not know of each other."""

from __future__ import annotations

import msgspec
import numpy as np

from ..convert.base import Array, Arrays, SourceModel
from ..errors import TconvError, UsageProblem
from ..report import Batching
from ..spec import BATCH, Axis, Dim, Signature
from .compare import Scores, compare, is_exact, magnitude
from .sampling import LARGE, Sizes, draw, split_batch, usual_sizes
from .stochastic import suspects
from .ties import find_scores
from .tolerance import floor

ROWS = "n"
"""What the first axis is called once it has turned out to be no batch."""
DEFAULT_LARGEST = 8
PROBE_ROWS = 8
SELECTIONS = ((PROBE_ROWS - 1,), (0,), (2,), (3,), (1, 0), (1, 1, 0), (5, 0, 3, 6, 2))

Outputs = dict[str, Array]
Observation = tuple[Sizes, dict[str, tuple[int, ...]]]
"""The sizes of a run, and every output's shape."""


class Found(msgspec.Struct, frozen=True):
    """The signature with its first axis named for what it is."""

    signature: Signature
    batching: Batching
    observations: tuple[Observation, ...] = ()


class _NotABatchError(Exception):
    """Says why the first axis is no batch; `fixed` if it can't vary at all."""

    def __init__(self, reason: str, *, fixed: bool = False) -> None:
        super().__init__(reason)
        self.fixed = fixed


def find_batch(model: SourceModel, seed: int, asked: int | None) -> Found:
    """Run the source at several first sizes and compare rows with rows.

    Args:
        model: the loaded source.
        seed: of the samples.
        asked: the `--max-batch-size`; None: 8 if the model can be batched.

    Raises:
        TconvError: a batch was declared or asked for, and the rows depend on each other.
        UsageProblem: a batch was declared and the source can't run at another size.
    """
    signature = model.signature
    unbatched = [spec.name for spec in signature.inputs if not spec.is_batched]
    if unbatched:
        return _without_batch(
            model, asked, _NotABatchError(f"the input {unbatched[0]!r} has no batch axis")
        )
    if asked == 0:
        return _without_batch(model, asked, _NotABatchError("--max-batch-size 0 was asked for"))
    try:
        observations = _probe(model, seed)
    except _NotABatchError as finding:
        return _without_batch(model, asked, _with_cause(finding, model, seed))
    largest = asked or DEFAULT_LARGEST
    return Found(_rename(signature, Axis(BATCH, 1, largest)), Batching(largest), observations)


def _with_cause(finding: _NotABatchError, model: SourceModel, seed: int) -> _NotABatchError:
    """Name the statistics of a batch that a source computes with, where that is why."""
    if finding.fixed:
        return finding
    sizes = {**usual_sizes(split_batch(model.signature)), BATCH: PROBE_ROWS}
    feeds = draw(model.signature, sizes, "ordinary", seed, model.padding)
    found = [cause for cause in suspects(model, feeds) if cause.startswith("batch statistics")]
    return _NotABatchError("; ".join([str(finding), *found]))


def _without_batch(model: SourceModel, asked: int | None, finding: _NotABatchError) -> Found:
    if asked or (model.batch_declared and asked is None):
        kind = UsageProblem if finding.fixed else TconvError
        raise kind(
            f"The model can't be batched: {finding}.",
            remedy="Mend the model, or ask for --max-batch-size 0.",
        )
    signature = model.signature
    if any(spec.is_batched for spec in signature.inputs):
        to: Dim = Axis(ROWS, 1, DEFAULT_LARGEST)
        if finding.fixed:
            to = _example_size(model)
        signature = _rename(signature, to)
    return Found(signature, Batching(0, str(finding)))


def _example_size(model: SourceModel) -> int:
    example = next(iter(model.examples.values()), None)
    return 1 if example is None else len(example)


def _rename(signature: Signature, to: Dim) -> Signature:
    """Replace the batch axis of every input."""
    return Signature(
        tuple(
            msgspec.structs.replace(spec, shape=(to, *spec.shape[1:])) if spec.is_batched else spec
            for spec in signature.inputs
        )
    )


def _probe(model: SourceModel, seed: int) -> tuple[Observation, ...]:
    sizes = {**usual_sizes(split_batch(model.signature)), BATCH: PROBE_ROWS}
    feeds = _opposite_rows(model, sizes, seed)
    whole = _run(model, feeds, PROBE_ROWS)
    scores = find_scores(model, feeds, whole)
    observations: list[Observation] = [(sizes, _shapes(whole))]
    for rows in SELECTIONS:
        some = {name: array[list(rows)] for name, array in feeds.items()}
        answer = _run(model, some, len(rows))
        for name, value in answer.items():
            ties = _rows_of(scores.get(name), rows)
            _check_rows(name, value, whole.get(name), rows, model.narrowest, ties)
        observations.append(({**sizes, BATCH: len(rows)}, _shapes(answer)))
    return tuple(observations)


def _opposite_rows(model: SourceModel, sizes: Sizes, seed: int) -> Outputs:
    """Return rows of which every other is the opposite of the next.

    Whatever the batch as a whole decides by, its sign or whether any flag is set, the first and the
    last row alone decide differently, so that one of them differs from what it is in the batch.
    """
    feeds = draw(model.signature, sizes, "ordinary", seed, model.padding)
    for spec in model.signature.inputs:
        array = feeds[spec.name]
        if spec.dtype == "bool":
            array[::2] = ~array[1::2]
        elif spec.domain is not None and spec.domain.kind == "binary":
            array[::2] = 1 - array[1::2]
        elif "float" in spec.dtype:
            array[::2] = -array[1::2]
            array[0], array[-1] = -np.abs(array[0]), np.abs(array[-1])
            array[2:4] *= LARGE  # above what a bias would decide
    return feeds


def _shapes(outputs: Outputs) -> dict[str, tuple[int, ...]]:
    return {name: value.shape for name, value in outputs.items()}


def _run(model: SourceModel, feeds: Arrays, rows: int) -> Outputs:
    try:
        return model.run(feeds)
    except TconvError:
        raise
    except Exception as error:
        message = str(error).strip().splitlines()
        raise _NotABatchError(
            f"the source can't run with {rows} along its first axis "
            f"({type(error).__name__}: {message[0] if message else 'no message'})",
            fixed=True,
        ) from error


def _rows_of(scores: Scores | None, rows: tuple[int, ...]) -> Scores | None:
    """Return the scores of some rows, if that is what their first axis is."""
    if scores is None or scores.axis == 0 or len(scores.values) != PROBE_ROWS:
        return None
    return msgspec.structs.replace(scores, values=scores.values[list(rows)])


def _check_rows(
    name: str,
    value: Array,
    whole: Array | None,
    rows: tuple[int, ...],
    narrowest: str,
    scores: Scores | None,
) -> None:
    """Raise unless `value` is those rows of `whole`."""
    if whole is None:
        raise _NotABatchError(f"the output {name!r} is not there at every batch size")
    if (
        not whole.ndim
        or not value.ndim
        or len(whole) != PROBE_ROWS
        or value.shape != (len(rows), *whole.shape[1:])
    ):
        raise _NotABatchError(
            f"the output {name!r} has no batch axis: its shape is {list(whole.shape)} at batch "
            f"{PROBE_ROWS} and {list(value.shape)} at batch {len(rows)}"
        )
    expected = whole[list(rows)]
    allowed = floor(expected.dtype.name, narrowest)
    difference = compare(value, expected, allowed, typical=_magnitude(whole), scores=scores)
    if difference.problem:
        raise _NotABatchError(
            f"rows influence each other: as batch {len(rows)} the output {name!r} "
            f"{difference.problem}"
        )


def _magnitude(array: Array) -> float:
    return 0.0 if is_exact(array.dtype.name) else float(magnitude(array).max(initial=0.0))
