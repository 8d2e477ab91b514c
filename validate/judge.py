"""Judge what answers, an artifact or a server, by the samples and the source's answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from ..convert.base import Arrays, Runner
from ..errors import TconvError
from ..report import Failed, OutputCheck, Passed, Prepared
from ..spec import BATCH
from .columns import scales_of
from .compare import Difference, Scores, compare
from .samples import Check, Pool, SampleIndex, SampleStore
from .sampling import KINDS
from .stochastic import HIDDEN
from .tally import Given, OutputTally
from .tolerance import FLOORS, Tolerances, check_names

USUAL = ("ordinary", "example", "flipped", "data")
"""Kinds of values for which an output's parts are as precise as the source's were seen to be."""
TF32 = 5e-3
"""What matrices multiplied in TF32 were seen to differ by at most, as a share of the scale."""
Watch = Callable[[Check, Arrays], None]


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
        spec.name: OutputTally(
            spec,
            tolerances,
            prepared.noise.get(spec.name),
            prepared.stochastic.get(spec.name, ""),
        )
        for spec in index.outputs
    }
    failures = []
    for check in asked:
        problems = _ask(runner, store, index, check, outputs, prepared, watch)
        if problems:
            failures.append((check, problems))
    summaries = tuple(output.summary() for output in outputs.values())
    if not asked or not summaries:
        return Failed("There was nothing to check.", "Give at least one sample.", summaries)
    frozen = _find_frozen(runner, store, index, asked[0], prepared.stochastic)
    if not failures and frozen:
        return Failed(*frozen, summaries)
    if not failures:
        return Passed(summaries, len(asked), runner.device)
    why = [tolerances.explain(outputs[n].spec, outputs[n].noise) for n in failures[0][1] if n]
    hints = [*dict.fromkeys(filter(None, why)), *_suspect_tf32(runner, summaries)]
    return _failed(failures, len(asked), index, summaries, " ".join(["", *hints]))


def _ask(
    runner: Runner,
    store: SampleStore,
    index: SampleIndex,
    check: Check,
    outputs: dict[str, OutputTally],
    prepared: Prepared,
    watch: Watch,
) -> dict[str, str]:
    """Return what is wrong with the answer to one check, by output; nothing if it is right."""
    feeds = store.read(check, "in", index.inputs)
    try:
        answer = runner(feeds)
    except TconvError:
        raise
    except Exception as error:  # whatever a runtime raises, it is its answer to this check
        return {"": f"it can't be run: {_one_line(error)}"}
    watch(check, answer)
    if list(answer) != [spec.name for spec in index.outputs]:
        wanted = [spec.name for spec in index.outputs]
        return {"": f"its outputs are {list(answer)} instead of {wanted}"}
    pool = next(pool for pool in index.pools if pool.name == check.pool)
    problems = {}
    for position, spec in enumerate(index.outputs):
        tally = outputs[spec.name]
        expected = store.read_one(check, "out", position, spec.dtype)
        given = Given(pool, check, answer[spec.name], expected)
        difference = _difference(store, index, given, position, tally.tolerance, prepared)
        tally.add(given, difference)
        if difference.problem:
            problems[spec.name] = f"the output {spec.name!r} {difference.problem}"
    return problems


def _find_frozen(
    runner: Runner,
    store: SampleStore,
    index: SampleIndex,
    check: Check,
    stochastic: Mapping[str, str],
) -> tuple[str, str] | None:
    """Return problem and remedy where the source varies from run to run and the artifact never."""
    if not stochastic:
        return None
    feeds = store.read(check, "in", index.inputs)
    first, second = runner(feeds), runner(feeds)
    frozen = [n for n in stochastic if first[n].tobytes() == second[n].tobytes()]
    if not frozen:
        return None
    name, cause = frozen[0], stochastic[frozen[0]]
    kind = "state" if cause == HIDDEN else "noise"
    return (
        f"Frozen {kind}: the source's {name!r} varies from run to run ({cause}), and the "
        "artifact's never does: what it was while it was exported is a constant in it.",
        f"Take the {kind} as an input of the model.",
    )


def _difference(
    store: SampleStore,
    index: SampleIndex,
    given: Given,
    position: int,
    allowed: float,
    prepared: Prepared,
) -> Difference:
    spec = index.outputs[position]
    if spec.name in prepared.stochastic:
        return _compare_form(given)
    scores = None
    if spec.name in index.score_axes:
        values = store.read_one(given.check, "score", position, "")
        near = FLOORS.get(values.dtype.name, 0.0)
        scores = Scores(values, index.score_axes[spec.name], near)
    columns = index.columns.get(spec.name) if given.pool.kind in USUAL else None
    return compare(
        given.actual,
        given.expected,
        allowed,
        typical=index.scales.get(spec.name, 0.0),
        by_row=prepared.batching.max_size > 0,
        scores=scores,
        columns=scales_of(columns, given.expected) if columns is not None else None,
    )


def _compare_form(given: Given) -> Difference:
    """Compare dtype and shape alone, of what varies from run to run."""
    like = np.zeros(1, given.expected.dtype)
    actual, expected = np.broadcast_to(like, given.actual.shape), given.expected
    if given.actual.dtype != expected.dtype:
        actual = actual.astype(given.actual.dtype)
    return compare(actual, np.broadcast_to(like, expected.shape), 0.0)


def _suspect_tf32(runner: Runner, outputs: tuple[OutputCheck, ...]) -> list[str]:
    """Name TF32 where it explains the difference: a mantissa of 10 bits, on CUDA alone."""
    errors = [o.error for o in outputs if not o.exact and (o.error or 0) > o.tolerance]
    if runner.device != "cuda" or not errors or None in errors:
        return []
    if max(filter(None, errors)) > TF32:
        return []
    return ["TF32 would explain as much: set NVIDIA_TF32_OVERRIDE=0 to rule it out."]


def _failed(
    failures: list[tuple[Check, dict[str, str]]],
    asked: int,
    index: SampleIndex,
    outputs: tuple[OutputCheck, ...],
    hints: str,
) -> Failed:
    check, problems = failures[0]
    problem = "; ".join(problems.values())
    pools = {pool.name: pool for pool in index.pools}
    pool = pools[check.pool]
    # How many rows were asked for is what `why` tells.
    sizes = ", ".join(f"{name} {size}" for name, size in pool.sizes.items() if name != BATCH)
    values = f"rows {pool.rows[0]} to {pool.rows[-1]} of --data" if pool.rows else ""
    where = f"{values or f'{pool.kind} values'}{f' at {sizes}' if sizes else ''}, {check.why}"
    return Failed(
        f"{len(failures)} of {asked} checks failed; the first ({where}): {problem}.{hints}",
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


def smallest_first(index: SampleIndex) -> list[Check]:
    """Return the checks, those of the fewest numbers first."""
    pools = {pool.name: pool for pool in index.pools}

    def size(check: Check) -> int:
        sizes = dict(pools[check.pool].sizes)
        if check.rows is not None:
            sizes[BATCH] = len(check.rows)
        return math.prod(sizes.values())

    return sorted(index.checks, key=size)
