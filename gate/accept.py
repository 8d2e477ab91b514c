"""Accept what was measured: the only way in which a baseline changes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from ..errors import UsageProblem
from ..workspace import Workspace
from .baseline import Baseline, accept, new_file, read_baseline, write_baseline
from .limits import LATENCY
from .proposal import Change, Proposal, read_proposal, review, write_proposal
from .record import Record, read_records
from .store import ArtifactStore
from .threshold import Verdict


def accept_changes(
    path: Path, store: ArtifactStore, chosen: Sequence[str], reason: str
) -> list[Change]:
    """Take over what was measured: all of it, or the `MODEL:METRIC` that are chosen.

    Artifacts go to the store before the baseline names them. What was not chosen stays proposed.

    Raises:
        UsageProblem: there is nothing to accept, no reason, or a choice names no change.
        Unavailable: the store can't be used.
    """
    if not reason.strip():
        raise UsageProblem("No reason is given.", remedy="Say why: --reason 'a smaller model'.")
    proposal = read_proposal(path)
    baseline = read_baseline(path) if path.exists() else Baseline()
    changes = review(baseline, proposal)
    taken = _choose(changes, chosen)
    for change in taken:
        if change.metric == LATENCY and change.new is not None:
            _keep_artifact(change, proposal.workspaces[change.model], store)
    models, today = dict(baseline.models), datetime.date.today().isoformat()
    for model in {change.model for change in taken}:
        metrics = [change.metric for change in taken if change.model == model]
        before = models.get(model, {})
        models[model] = accept(before, proposal.models[model], metrics, reason, today)
    write_baseline(path, Baseline(models=models))
    if len(taken) == len(changes):
        new_file(path).unlink(missing_ok=True)
    return taken


def _choose(changes: list[Change], chosen: Sequence[str]) -> list[Change]:
    if not chosen:
        return changes
    by_name = {f"{change.model}:{change.metric}": change for change in changes}
    for name in chosen:
        if name not in by_name:
            raise UsageProblem(
                f"{name!r} is no change.",
                remedy=f"Choose from: {', '.join(by_name) or 'nothing changed'}.",
            )
    return [by_name[name] for name in chosen]


def _keep_artifact(change: Change, workspace: str, store: ArtifactStore) -> None:
    target = change.model.rpartition("/")[2]
    place = Workspace(Path(workspace))
    artifact = place.target(target).artifact
    if change.new is None or artifact is None or artifact.digest != change.new.value:
        raise UsageProblem(
            f"{workspace} does not hold the artifact that was measured any more.",
            remedy="Run `tconv gate` again, and accept what it measures.",
        )
    store.put(place.artifact(target), artifact)


def prune(baseline: Baseline, keep: Sequence[str]) -> Baseline:
    """Return the baseline without the models that are not in `keep`."""
    return Baseline(models={n: e for n, e in baseline.models.items() if n in keep})


def init_baseline(workspaces: tuple[str, ...], path: Path, store: str, reason: str) -> list[Change]:
    """Make a baseline of builds that passed their validation.

    Raises:
        UsageProblem: there is one already, or a build did not pass.
    """
    if path.exists():
        raise UsageProblem(
            f"There is a baseline {path} already.",
            remedy="Run `tconv gate`, then `tconv baseline accept`; or remove the file.",
        )
    records = _records(workspaces)
    unsound = [record for record in records if record.validation.verdict is not Verdict.PASS]
    if unsound or not records:
        why = unsound[0].validation.why if unsound else "no workspace was given."
        raise UsageProblem(
            f"There is nothing sound to begin with: {why}",
            remedy="Give workspaces whose targets passed: tconv baseline init build/NAME",
        )
    write_proposal(path, Proposal.of(records, Baseline()))
    return accept_changes(path, ArtifactStore(store), (), reason)


def prune_baseline(workspaces: tuple[str, ...], path: Path) -> list[str]:
    """Drop what these builds do not have; return what was dropped.

    Raises:
        UsageProblem: a workspace or the baseline is none.
    """
    records = _records(workspaces)
    if not records:
        raise UsageProblem("There is nothing to keep.", remedy="Give the workspaces to keep.")
    baseline = read_baseline(path)
    kept = prune(baseline, [record.name for record in records])
    gone = sorted(baseline.models.keys() - kept.models.keys())
    if gone:
        write_baseline(path, kept)
    return gone


def _records(workspaces: Sequence[str]) -> list[Record]:
    return [record for folder in workspaces for record in read_records(Path(folder))]
