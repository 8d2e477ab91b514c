"""Run the source: its signature, the samples of the sweep, its answers, and its own noise.

The first thing that happens to a model, in a process of its own: no exporter has touched it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..convert.base import Arrays, SourceModel, SourceRequest
from ..convert.registry import find_source
from ..errors import UsageProblem
from ..extras import version_of
from ..report import Prepared
from ..spec import BATCH, Signature
from .batching import find_batch
from .dataset import DataRequest, RowSet
from .samples import SampleStore
from .sampling import draw, usual_sizes
from .score import parse_task
from .stochastic import find_varying, name_cause, refuse
from .study import Study, run_or_explain

REPEATED_ROWS = 2
"""How many rows the source is run on twice."""
VERSIONS = ("torch", "transformers", "numpy")


def prepare(
    request: dict[str, Any],
    folder: str,
    max_batch_size: int | None,
    data: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Load the source, study it, and leave samples and answers in the workspace `folder`.

    Raises:
        TconvError: it differs from itself, or a batch that was asked for is none.
        UsageProblem: it can't be loaded or run as asked, or the user's rows are of no use.
    """
    asked = msgspec.convert(request, SourceRequest)
    wanted = msgspec.convert(data or {}, DataRequest)
    # Before the model is loaded, which may take minutes.
    rows = RowSet(wanted, asked.seed) if wanted.rows else None
    if wanted.metric:
        parse_task(wanted.metric)
    workspace = Path(folder)
    source = find_source(asked.model)
    model = source.load(asked, workspace / "source")
    # Before it runs: a module may count its calls in a buffer.
    fingerprint = model.fingerprint()
    stochastic = _find_stochastic(model, asked.seed, allowed=wanted.allow_stochastic)
    found = find_batch(model, asked.seed, max_batch_size)
    # What probes the batch is no sample: no artifact is asked it.
    getattr(model, "forget_decisions", lambda: None)()
    study = Study(model, found, SampleStore(workspace / "samples"), asked.seed, wanted, stochastic)
    study.run(rows)
    prepared = Prepared(
        model=asked.model,
        source=source.name,
        framework=model.framework,
        signature=Signature(found.signature.inputs, study.outputs),
        batching=found.batching,
        noise=study.noise,
        frozen=model.frozen,
        omitted=model.omitted,
        notes=study.notes,
        fingerprint=fingerprint,
        versions=version_of(*VERSIONS),
        plan=tuple(study.plan),
        stochastic=stochastic,
        one_sided=dict(getattr(model, "one_sided", {})),
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
        return feeds, run_or_explain(model, feeds, _usual_name(model))
    except UsageProblem:
        if model.examples or rows == 1:
            raise
        return _usual_answer(model, seed, rows=1)


def _usual_name(model: SourceModel) -> str:
    return "the example inputs" if model.examples else "inputs as they are stated"


def _find_stochastic(model: SourceModel, seed: int, *, allowed: bool) -> dict[str, str]:
    """Return the outputs that vary from run to run on one input, and by what.

    Raises:
        TconvError: there are any, and that is not allowed.
    """
    feeds, first = _usual_answer(model, seed)
    second = run_or_explain(model, feeds, _usual_name(model))
    varying = find_varying(model, feeds, first, second)
    if not varying:
        return {}
    cause = name_cause(model, feeds)
    if not allowed:
        raise refuse(varying, cause)
    return dict.fromkeys(varying, cause)
