"""Judge what answers, an artifact or a server, by the samples and the source's answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from ..convert.base import Array, Arrays, Runner
from ..errors import TconvError
from ..report import Failed, OutputCheck, Passed, Prepared
from ..spec import BATCH, TensorSpec
from .columns import scales_of
from .compare import Difference, Scores, compare, is_exact
from .samples import Check, Pool, SampleIndex, SampleStore
from .sampling import KINDS
from .tolerance import FLOORS, Tolerances, check_names

USUAL = ("ordinary", "example", "flipped", "data")
"""Kinds of values for which an output's parts are as precise as the source's were seen to be."""
Watch = Callable[[Check, Arrays], None]


class _Output:
    """The tally of one output over all checks."""

    def __init__(self, spec: TensorSpec, tolerance: float, noise: float | None) -> None:
        self.spec, self.tolerance, self.noise = spec, tolerance, noise
        self.errors: list[float] = []

    def summary(self) -> OutputCheck:
        exact = is_exact(self.spec.dtype)
        tolerance = 0.0 if exact else self.tolerance
        worst = max(self.errors, default=math.inf)
        error = worst if math.isfinite(worst) else None
        return OutputCheck(self.spec.name, error, tolerance, self.noise, exact)


def judge(
    runner: Runner,
    store: SampleStore,
    prepared: Prepared,
    tolerances: Tolerances,
    checks: Iterable[Check] | None = None,
    watch: Watch = lambda *_: None,
) -> Passed | Failed:
    """Ask `runner` every check and compare its answers with the source's.

    Args:
        runner: what is judged.
        store: the samples, with the source's answers.
        prepared: what is known of the source.
        tolerances: how much each output may differ.
        checks: a part of the store's checks; None: all of them.
        watch: told every check and the answer to it.

    Raises:
        UsageProblem: a tolerance names no output.
    """
    index = store.read_index()
    check_names(tolerances, [spec.name for spec in index.outputs])
    asked = tuple(index.checks if checks is None else checks)
    outputs = {
        spec.name: _Output(
            spec,
            tolerances.allowed(spec, prepared.noise.get(spec.name)),
            prepared.noise.get(spec.name),
        )
        for spec in index.outputs
    }
    failures = []
    for check in asked:
        problem = _ask(runner, store, index, check, outputs, prepared, watch)
        if problem:
            failures.append((check, problem))
    summaries = tuple(output.summary() for output in outputs.values())
    if not asked or not summaries:
        return Failed("There was nothing to check.", "Give at least one sample.", summaries)
    if not failures:
        return Passed(summaries, len(asked), runner.device)
    return _failed(failures, len(asked), index, summaries)


def _ask(
    runner: Runner,
    store: SampleStore,
    index: SampleIndex,
    check: Check,
    outputs: dict[str, _Output],
    prepared: Prepared,
    watch: Watch,
) -> str:
    """Return what is wrong with the answer to one check, or an empty string."""
    feeds = store.read(check, "in", index.inputs)
    try:
        answer = runner(feeds)
    except TconvError:
        raise
    except Exception as error:  # whatever a runtime raises, it is its answer to this check
        return f"it can't be run: {_one_line(error)}"
    watch(check, answer)
    if list(answer) != [spec.name for spec in index.outputs]:
        wanted = [spec.name for spec in index.outputs]
        return f"its outputs are {list(answer)} instead of {wanted}"
    problems = []
    for position, spec in enumerate(index.outputs):
        difference = _difference(
            store, index, check, position, answer[spec.name], outputs[spec.name].tolerance, prepared
        )
        outputs[spec.name].errors.append(difference.error)
        if difference.problem:
            problems.append(f"the output {spec.name!r} {difference.problem}")
    return "; ".join(problems)


def _difference(
    store: SampleStore,
    index: SampleIndex,
    check: Check,
    position: int,
    actual: Array,
    allowed: float,
    prepared: Prepared,
) -> Difference:
    spec = index.outputs[position]
    scores = None
    if spec.name in index.score_axes:
        values = store.read_one(check, "score", position, "")
        near = FLOORS.get(values.dtype.name, 0.0)
        scores = Scores(values, index.score_axes[spec.name], near)
    expected = store.read_one(check, "out", position, spec.dtype)
    columns = index.columns.get(spec.name)
    usual = columns is not None and check.pool.partition("-")[0] in USUAL
    return compare(
        actual,
        expected,
        allowed,
        typical=index.scales.get(spec.name, 0.0),
        by_row=prepared.batching.max_size > 0,
        scores=scores,
        columns=scales_of(columns, expected) if columns is not None and usual else None,
    )


def _failed(
    failures: list[tuple[Check, str]],
    asked: int,
    index: SampleIndex,
    outputs: tuple[OutputCheck, ...],
) -> Failed:
    check, problem = failures[0]
    pools = {pool.name: pool for pool in index.pools}
    pool = pools[check.pool]
    # How many rows were asked for is what `why` tells.
    sizes = ", ".join(f"{name} {size}" for name, size in pool.sizes.items() if name != BATCH)
    values = f"rows {pool.rows[0]} to {pool.rows[-1]} of --data" if pool.rows else ""
    where = f"{values or f'{pool.kind} values'}{f' at {sizes}' if sizes else ''}, {check.why}"
    return Failed(
        f"{len(failures)} of {asked} checks failed; the first ({where}): {problem}.",
        _advise([failed for failed, _ in failures], asked, pools),
        outputs,
    )


def _advise(failed: list[Check], asked: int, pools: Mapping[str, Pool]) -> str:
    kinds = {pools[check.pool].kind for check in failed}
    whys = {check.why for check in failed}
    if len(failed) == asked:
        return "Nothing agrees: try another --exporter, or look at the conversion's log."
    if kinds and kinds <= set(KINDS[1:]):
        return "It agrees on ordinary values only: a value of the example was frozen."
    if all(why != "as it is" for why in whys) and any("row" in why for why in whys):
        return (
            "It depends on the batch: a size was frozen at the example's, or rows are mixed. "
            "Take sizes from the input's shape inside the model, or export without batching: "
            "--max-batch-size 0 with fixed sizes in --input."
        )
    return (
        "It depends on the sizes: one was frozen at the example's. Take sizes from the input's "
        "shape inside the model, or state fixed sizes with --input."
    )


def _one_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def edge_checks(index: SampleIndex) -> tuple[Check, ...]:
    """Return the checks of one row and of the largest batch: what a server is asked."""
    alone = [check for check in index.checks if check.rows is not None and len(check.rows) == 1]
    return (*alone, *(check for check in index.checks if check.rows is None))
