"""The commands that work on what a build left: one stage alone, publish, inspect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .artifact import Artifact
from .convert.base import ConvertOptions
from .convert.registry import TARGET_NAMES, find_target
from .errors import UsageProblem
from .export.config import ConfigOptions
from .export.publish import Published, PublishRequest
from .export.publish import publish as publish_version
from .export.repository import CONFIG, read_manifest, versions_of
from .outcome import is_frozen
from .pipeline import Run, Watch, with_bases
from .report import Attempt, Passed, Report, TargetReport
from .request import BuildRequest, check_request
from .spec import Signature
from .validate.explain import Explanation
from .validate.tolerance import parse_tolerances
from .workspace import Workspace


def run_stage(
    stage: str, folder: Path, given: dict[str, Any], watch: Watch
) -> tuple[Report, BuildRequest]:
    """Run `convert`, `validate` or `export` on a workspace; `given` overrides what was asked for.

    Raises:
        UsageProblem: the stage before has left nothing.
    """
    workspace = Workspace(folder)
    request = _amend(workspace.read("request.json", BuildRequest), folder, given)
    check_request(request)
    workspace.prepared()
    run = Run(request, watch)
    with run:
        workspace.write("request.json", request)
        _STAGES[stage](run)
        return run.finish(), request


def _amend(request: BuildRequest, folder: Path, given: dict[str, Any]) -> BuildRequest:
    folder = folder.absolute()
    changes: dict[str, Any] = {"output": str(folder.parent), "name": folder.name}
    if "tolerances" in given:
        changes["tolerances"] = parse_tolerances(given["tolerances"])
    nested: dict[str, Any] = {"convert": ConvertOptions, "config": ConfigOptions}
    for field, kind in nested.items():
        names = {f.name for f in msgspec.structs.fields(kind)} & set(given)
        if names:
            part = getattr(request, field)
            changes[field] = msgspec.structs.replace(part, **{n: given[n] for n in names})
    fields = {f.name for f in msgspec.structs.fields(BuildRequest)}
    changes |= {n: v for n, v in given.items() if n in fields and n not in changes}
    return msgspec.structs.replace(request, **changes)


def _convert(run: Run) -> None:
    for target in with_bases(run.request.targets):
        attempts: list[Attempt] = []
        for recipe in run.recipes(target, attempts):
            made, cost = run.convert(target, recipe)
            if isinstance(made, Artifact):
                break
            attempts.append(Attempt(recipe, made, cost))
        else:
            run.keep(TargetReport(target.name, attempts[-1].verdict, tuple(attempts)))


def _validate(run: Run) -> None:
    for name in run.request.targets:
        report = run.workspace.target(name)
        if report.artifact is None:
            continue
        verdict, cost = run.validate(name)
        attempt = Attempt(report.artifact.recipe, verdict, None, cost)
        run.keep(TargetReport(name, verdict, (attempt,), report.artifact))


def _export(run: Run) -> None:
    for name in run.request.targets:
        run.export(name)


_STAGES = {"convert": _convert, "validate": _validate, "export": _export}


def publish_workspace(
    folder: Path, given: dict[str, Any], say: Callable[[str], None]
) -> list[Published]:
    """Publish every exported target of a workspace, or those that are named.

    Raises:
        UsageProblem: nothing was exported.
        TconvError: as `export.publish.publish` does.
    """
    workspace = Workspace(folder)
    request = workspace.read("request.json", BuildRequest)
    wanted = given.pop("targets") or request.targets
    reports = [workspace.target(name) for name in wanted]
    ready = [r for r in reports if isinstance(r.verdict, Passed) and r.exported]
    if not ready:
        raise UsageProblem(
            f"{folder} has no target that passed and was exported.",
            remedy="Run `tconv build`, and look at its verdicts.",
        )
    done = []
    for report in ready:
        say(f"{report.target}: publishing to {given['url']}")
        asked = PublishRequest(
            source=str(report.exported),
            samples=str(workspace.samples),
            prepared=workspace.prepared(),
            tolerances=request.tolerances,
            **given,
        )
        done.append(publish_version(asked, say))
    return done


def explain_target(folder: Path, target: str) -> Explanation:
    """Return where a target's artifact leaves the source's path.

    Raises:
        UsageProblem: there is no such artifact, or nothing is known of its inside.
        TconvError: it can't be run.
    """
    workspace = Workspace(folder)
    request = workspace.read("request.json", BuildRequest)
    report = workspace.target(target)
    if report.artifact is None:
        raise UsageProblem(
            f"{folder} has no artifact of {target}: {report.verdict.problem}"
            if not isinstance(report.verdict, Passed)
            else f"{folder} has no artifact of {target}.",
            remedy="Run `tconv build`, and look at its verdicts.",
        )
    asked = msgspec.structs.replace(request, targets=(target,))
    with Run(asked, lambda *_: None) as run:
        found = run.explain(target)
    notes = tuple(note for note in report.artifact.notes if is_frozen(note))
    return msgspec.structs.replace(found, tracer=notes)


def inspect_path(path: Path) -> Signature:
    """Return the signature of a model file, a repository entry, or a workspace.

    Raises:
        UsageProblem: it is none of these.
    """
    if (path / "source.json").is_file():
        return Workspace(path).prepared().signature
    if (path / CONFIG).is_file() and versions_of(path):
        return read_manifest(path / str(versions_of(path)[-1])).artifact.signature
    if path.is_file():
        for name in TARGET_NAMES:
            target = find_target(name)
            if Path(target.filename).suffix == path.suffix:
                return target.inspect(path)
    raise UsageProblem(
        f"{path} is no model file, repository entry or workspace.",
        remedy="Give a .pt, .onnx or .plan file, or a folder like models/NAME or build/NAME.",
    )
