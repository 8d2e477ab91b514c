"""Where an artifact leaves the source's path: the first operation whose value it has nowhere.

Every operation of the source is looked up among the values of the artifact's nodes. One whose
inputs are there, whose value is not, and whose value's users are not either, is where they part:
what an exporter merely folded away has users that agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np

from ..convert.base import Array, Arrays, SourceModel
from ..convert.onnx_trace import Step, Trace, run, trace
from ..convert.torch_steps import Operation
from ..errors import UsageProblem
from ..report import Failed

CLOSE = 1e-3
"""Values that differ by less, as a share of the largest, are one."""

HELP = {
    "Softmax": "Look at what is masked: a row of which all is masked has no softmax.",
    "Resize": "State the mode, align_corners and antialias that the exporter knows.",
    "Slice": "A size was frozen at the example's: take it from the input's shape in the model.",
    "Reshape": "A size was frozen at the example's: take it from the input's shape in the model.",
    "Expand": "A size was frozen at the example's: take it from the input's shape in the model.",
    "Gather": "An index was frozen at the example's: pass it in as an input.",
    "MatMul": "Compare the weights: was the file changed, or written from other weights?",
    "Gemm": "Compare the weights: was the file changed, or written from other weights?",
    "Conv": "Compare the weights, and the padding: was the file changed?",
    "Cast": "A cast loses digits: keep float32 up to here.",
}
OTHERWISE = "Try another --exporter or --opset, or write the line in another way."


class Range(msgspec.Struct, frozen=True):
    """What goes into a node; `low` and `high` are None where nothing is finite."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float | None
    high: float | None
    specials: int = 0


class Explanation(msgspec.Struct, frozen=True):
    """Where an artifact leaves the source: a node, or why none can be named.

    `error` is the largest difference there, as a share of the source's largest value, where the
    values have one shape.
    """

    sample: str
    finding: str
    node: str = ""
    operator: str = ""
    module: str = ""
    line: str = ""
    source: str = ""
    error: float | None = None
    inputs: tuple[Range, ...] = ()
    remedy: str = OTHERWISE
    tracer: tuple[str, ...] = ()


def explain(operations: Sequence[Operation], seen: Trace, sample: str) -> Explanation:
    """Name the first node that leaves the source's path."""
    found = {op.output: _find(op.value, seen.values) for op in operations}
    parted = _first_parting(operations, found)
    if parted is None:
        return Explanation(sample, "Every value of the source is in the graph: only what follows "
                           "them differs, such as the order of the outputs.")  # fmt: skip
    names = {name for number in parted.inputs for name in found.get(number, ())}
    names |= {name for name in _inputs(seen) if not names}
    step = _first_using(seen, names, {n for hits in found.values() for n in hits})
    said = f"The source's {parted.name}{f' at {parted.line}' if parted.line else ''}"
    if step is None:
        return Explanation(
            sample,
            f"{said} is in no node: the graph goes another way there.",
            source=parted.name,
            line=parted.line,
            remedy="A value of the example was frozen: write the branch there with torch.where.",
        )
    return Explanation(
        sample,
        f"{said} has another value in the graph.",
        step.name,
        step.operator,
        step.module,
        step.line or parted.line,
        parted.name,
        _nearest(parted.value, seen, step),
        tuple(_range(name, seen.values[name]) for name in step.inputs if name in seen.values),
        HELP.get(step.operator, OTHERWISE),
    )


def _find(value: Array, values: Mapping[str, Array]) -> tuple[str, ...]:
    """Return the names of what is the same value, whatever its shape."""
    return tuple(name for name, other in values.items() if _difference(value, other) <= CLOSE)


def _difference(value: Array, other: Array) -> float:
    """Return the largest difference as a share of the largest value; infinite between sizes."""
    if other.size != value.size or other.dtype.kind in "OUS" or not value.size:
        return float("inf")
    a, b = value.ravel().astype(np.float64), other.ravel().astype(np.float64)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return float("inf")
    largest = np.abs(a[finite]).max(initial=0.0)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / max(largest, 1e-30))


def _first_parting(
    operations: Sequence[Operation], found: Mapping[int, tuple[str, ...]]
) -> Operation | None:
    users: dict[int, list[Operation]] = {}
    for op in operations:
        for number in op.inputs:
            users.setdefault(number, []).append(op)
    for op in operations:
        if found[op.output] or op.value.size < 2:  # noqa: PLR2004
            continue
        made = [number for number in op.inputs if number in found]
        uses = [user for user in users.get(op.output, []) if user.output != op.output]
        if all(found[n] for n in made) and not any(found[user.output] for user in uses):
            return op
    return None


def _inputs(trace: Trace) -> set[str]:
    made = {name for step in trace.steps for name in step.outputs}
    return {name for name in trace.values if name not in made}


def _first_using(trace: Trace, names: set[str], agreed: set[str]) -> Step | None:
    """Return the first node that takes what agrees and gives what does not."""
    for step in trace.steps:
        if names & set(step.inputs) and not agreed & set(step.outputs):
            return step
    return None


def _nearest(value: Array, trace: Trace, step: Step) -> float | None:
    """Return how far the nearest of the values behind a node, of the same size, is."""
    behind = [name for later in trace.steps[trace.steps.index(step) :] for name in later.outputs]
    errors = [_difference(value, trace.values[name]) for name in behind[:8] if name in trace.values]
    least = min(errors, default=float("inf"))
    return least if np.isfinite(least) else None


def _range(name: str, value: Array) -> Range:
    is_number = value.dtype.kind not in "OUS" and value.size
    finite = value[np.isfinite(value.astype(np.float64))] if is_number else value[:0]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
    specials = int(value.size - finite.size) if is_number else 0
    return Range(name, value.dtype.name, tuple(value.shape), low, high, specials)


def find_optimised(
    steps: Sequence[Step], plain: Mapping[str, Array], run: Callable[[str], Array]
) -> Step | None:
    """Return the first node whose value the runtime's optimisations change, by bisection.

    Args:
        steps: the nodes in order.
        plain: their values without optimisation.
        run: computes one value with it.
    """
    low, high = 0, len(steps) - 1
    if high < 0 or not _changes(steps[high], plain, run):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _changes(steps[middle], plain, run) else (middle + 1, high)
    return steps[low]


def _changes(step: Step, plain: Mapping[str, Array], run: Callable[[str], Array]) -> bool:
    return _difference(plain[step.outputs[0]], run(step.outputs[0])) > CLOSE


def explain_file(path: Path, model: SourceModel, feeds: Arrays, verdict: Failed) -> Explanation:
    """Explain an ONNX file that failed on one sample.

    Raises:
        UsageProblem: the source's operations can't be seen.
    """
    operations = getattr(model, "operations", None)
    if operations is None or path.suffix != ".onnx":
        raise UsageProblem(
            f"Nothing is known of the operations inside {path.name}.",
            remedy="tconv explain works on ONNX files that were made from torch modules.",
        )
    sample = verdict.problem.partition("(")[2].partition(")")[0]
    seen = trace(path, feeds)
    changed = find_optimised(
        seen.steps, seen.values, lambda name: run(path, feeds, [name], optimised=True)[name]
    )
    if changed is None:
        return explain(operations(feeds), seen, sample)
    return Explanation(
        sample,
        "ONNX Runtime's optimisations change this node's value.",
        changed.name,
        changed.operator,
        changed.module,
        changed.line,
        inputs=tuple(_range(n, seen.values[n]) for n in changed.inputs if n in seen.values),
        remedy="Try another version of onnxruntime, or another --opset.",
    )
