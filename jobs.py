"""What runs in child processes: one function a stage, each taking and returning JSON."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from .artifact import Artifact
from .convert.base import ConvertOptions, Preflight, Runner, SourceModel, SourceRequest
from .convert.registry import find_target, source_named
from .errors import UsageProblem
from .gate.latency import Plan, choose_feeds, time_side_by_side
from .report import Failed, PreflightOnly, Prepared
from .spec import BATCH
from .validate.explain import Explanation, explain_file
from .validate.judge import judge, smallest_first
from .validate.reference import prepare as study
from .validate.samples import SampleIndex, SampleStore
from .validate.score import scorer_for, with_score
from .validate.tolerance import Tolerances
from .workspace import Workspace, writing

EXAMPLE_ROWS = (2, 0, 1)
"""An example of three rows: exporters take sizes of 1 for fixed."""


def prepare(
    folder: str,
    request: dict[str, Any],
    max_batch_size: int | None,
    data: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Study the source; see `validate.reference.prepare`."""
    with writing(Path(folder)):
        return study(request, folder, max_batch_size, data)


def convert(
    folder: str, target: str, recipe: str, request: dict[str, Any], options: dict[str, Any]
) -> dict[str, Any]:
    """Write one artifact into the workspace; return it, or why there is only a preflight."""
    workspace, chosen = Workspace(Path(folder)), find_target(target)
    prepared = workspace.prepared()
    place = workspace.artifact(target)
    with writing(place):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        model: SourceModel | Path
        if chosen.base is None:
            model = _load(workspace, prepared, msgspec.convert(request, SourceRequest))
        else:
            model = workspace.artifact(chosen.base)
        made = chosen.convert(
            model, prepared, recipe, place, msgspec.convert(options, ConvertOptions)
        )
    if isinstance(made, Preflight):
        shutil.rmtree(place)
        checked = " ".join(made.checked)
        verdict = PreflightOnly(f"{made.reason} {checked}".strip(), made.remedy)
        return {"preflight": msgspec.to_builtins(verdict)}
    return {"artifact": msgspec.to_builtins(made)}


def _load(workspace: Workspace, prepared: Prepared, request: SourceRequest) -> SourceModel:
    """Load the source again, in this process, and make sure that it is the same."""
    # On the CPU: what is captured on a GPU has that device written into it.
    request = msgspec.structs.replace(request, device="cpu")
    model = source_named(prepared.source).load(request, workspace.folder / "source")
    if model.fingerprint() != prepared.fingerprint:
        raise UsageProblem(
            f"{request.model} gives other weights than it did before.",
            remedy="Let the factory load or seed its weights, so that every call gives the same. "
            "If you have changed the model, run `tconv build` again.",
        )
    store = SampleStore(workspace.samples)
    model.examples = _example(store, store.read_index(), prepared)
    return model


def _example(store: SampleStore, index: SampleIndex, prepared: Prepared) -> Any:
    """Return the sample to convert with: ordinary values, and no axis of size 1 if possible."""
    ordinary = [pool for pool in index.pools if pool.kind == "ordinary"]
    wide = [pool for pool in ordinary if min(pool.sizes.values(), default=2) > 1]
    pool = min(wide or ordinary, key=lambda p: max(p.sizes.values(), default=0))
    check = next(check for check in index.checks if check.pool == pool.name)
    rows = pool.sizes.get(BATCH, 0) if prepared.batching.max_size else 0
    if rows >= len(EXAMPLE_ROWS):
        check = msgspec.structs.replace(check, rows=EXAMPLE_ROWS)
    return store.read(check, "in", index.inputs)


def measure(
    target: str,
    baseline: tuple[str, dict[str, Any]],
    candidate: tuple[str, dict[str, Any]],
    samples: str,
    plan: dict[str, Any],
) -> list[dict[str, Any]]:
    """Time an artifact beside the baseline's, each a folder and its record; see `gate.latency`."""
    opened, chosen = find_target(target), msgspec.convert(plan, Plan)

    def load(folder: str, record: dict[str, Any]) -> Runner:
        artifact = msgspec.convert(record, Artifact)
        return opened.open(Path(folder), artifact, chosen.device, chosen.threads)

    timings = time_side_by_side(
        partial(load, *baseline),
        partial(load, *candidate),
        choose_feeds(SampleStore(Path(samples))),
        chosen,
    )
    built: list[dict[str, Any]] = msgspec.to_builtins(timings)
    return built


def validate(folder: str, target: str, tolerances: dict[str, Any], device: str) -> dict[str, Any]:
    """Read one artifact back from disk and judge it; the source is never loaded here."""
    workspace = Workspace(Path(folder))
    artifact = workspace.target(target).artifact
    assert artifact is not None  # the caller has seen that there is one
    runner = find_target(target).open(workspace.artifact(target), artifact, device)
    store = SampleStore(workspace.samples)
    scorer = scorer_for(store, store.read_index())
    verdict = judge(
        runner,
        store,
        workspace.prepared(),
        msgspec.convert(tolerances, Tolerances),
        watch=scorer or (lambda *_: None),
    )
    if scorer is not None:
        with writing(workspace.folder):
            scorer.save(workspace.predictions(target))
        verdict = with_score(verdict, scorer.score())
    built: dict[str, Any] = msgspec.to_builtins(verdict)
    return built


def explain(
    folder: str, target: str, request: dict[str, Any], tolerances: dict[str, Any]
) -> dict[str, Any]:
    """Find out where an artifact that failed leaves the source's path."""
    workspace = Workspace(Path(folder))
    artifact = workspace.target(target).artifact
    assert artifact is not None  # the caller has seen that there is one
    chosen, store = find_target(target), SampleStore(workspace.samples)
    path = workspace.artifact(target) / chosen.filename
    runner = chosen.open(path.parent, artifact, "cpu")
    index, prepared = store.read_index(), workspace.prepared()
    allowed = msgspec.convert(tolerances, Tolerances)
    found = Explanation("", "Nothing differs: every check agrees with the source.", remedy="")
    for check in smallest_first(index):
        verdict = judge(runner, store, prepared, allowed, [check])
        if isinstance(verdict, Failed):
            model = _load(workspace, prepared, msgspec.convert(request, SourceRequest))
            found = explain_file(path, model, store.read(check, "in", index.inputs), verdict)
            break
    built: dict[str, Any] = msgspec.to_builtins(found)
    return built
