"""The stages in order: study the source, convert, validate, export. `build` is all of them."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from . import __version__
from .artifact import Artifact
from .convert.base import Target
from .convert.gpu import count_gpus
from .convert.registry import find_source, find_target
from .errors import ConversionError, TconvError, UsageProblem
from .export.config import render_config
from .export.repository import export_version, next_version
from .outcome import (
    exit_code,
    explain_crash,
    judge_failure,
    quote_tracer,
    refuse_unproven,
)
from .page import to_html
from .process import Cost, Crash, Finished, Processes
from .report import (
    Attempt,
    Failed,
    NotConverted,
    NotJudged,
    Passed,
    PreflightOnly,
    Prepared,
    Report,
    TargetReport,
    Verdict,
)
from .request import BuildRequest, check_request, data_request
from .validate.explain import Explanation
from .workspace import Workspace, check_room, writing

__all__ = ["BuildRequest", "Run", "build"]

JOBS = "tconv.jobs"
"""The module that child processes call."""
Stage = Literal["prepare", "convert", "validate", "export"]
Watch = Callable[[str, Stage, str], None]
"""Told what begins: a target's name (empty for the source), the stage, and a detail."""


def build(
    request: BuildRequest, watch: Watch = lambda *_: None, processes: Processes | None = None
) -> Report:
    """Convert, validate and export; return the record, which `report.json` holds too.

    Args:
        request: what is asked for.
        watch: told what begins.
        processes: where the stages run, for several builds in a row; None: in its own.

    Raises:
        TconvError: the source can't be used. What befalls a target is in its verdict instead.
    """
    check_request(request)
    run = Run(request, watch, processes)
    with run:
        run.workspace.clear()
        run.workspace.write("request.json", request)
        run.prepare()
        for target in with_bases(request.targets):
            run.convert_and_validate(target)
        for name in request.targets:
            run.export(name)
        return run.finish()


def with_bases(names: Iterable[str]) -> list[Target]:
    """Return the targets, each behind the one it is made from, which is added if missing."""
    ordered: list[Target] = []
    for name in names:
        target = find_target(name)
        chain = [target] if target.base is None else [find_target(target.base), target]
        ordered += [t for t in chain if t.name not in {done.name for done in ordered}]
    return ordered


class Run:
    """One walk through the stages over a workspace, with the child processes it needs."""

    def __init__(
        self, request: BuildRequest, watch: Watch, processes: Processes | None = None
    ) -> None:
        self.request, self.watch = request, watch
        self.workspace = Workspace(Path(request.output) / request.name)
        self.prepare_cost: Cost | None = None
        self._started = time.monotonic()
        self._processes, self._borrowed = processes, processes is not None
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Run:
        self._held.enter_context(self.workspace.locked())
        return self

    def __exit__(self, *_: object) -> None:
        with self._held:
            if self._processes is not None and not self._borrowed:
                self._processes.close()

    def _child(self, job: str, log: str, **arguments: Any) -> Finished:
        """Run a job; what the request is to blame for, or the disk, is no matter of a target."""
        if self._processes is None:
            source = find_source(self.request.source.model)
            bases = with_bases(self.request.targets)
            preload = [JOBS, *source.preload, *(m for target in bases for m in target.preload)]
            self._processes = Processes(tuple(dict.fromkeys(preload)))
        with writing(self.workspace.folder):
            ended = self._processes.run(
                f"{JOBS}:{job}",
                {"folder": str(self.workspace.folder), **arguments},
                log=self.workspace.log(log),
                timeout=self.request.timeout,
                memory_limit=self.request.memory_limit,
            )
        if ended.failure is not None:
            check_room(self.workspace.folder)
        if isinstance(ended.failure, UsageProblem):
            raise ended.failure
        return ended

    def prepare(self) -> Prepared:
        """Study the source and keep what was found."""
        self.watch("", "prepare", self.request.source.model)
        ended = self._child(
            "prepare",
            "prepare",
            request=msgspec.to_builtins(self.request.source),
            max_batch_size=self.request.config.max_batch_size,
            data=msgspec.to_builtins(data_request(self.request)),
        )
        self.prepare_cost = ended.cost
        if isinstance(ended.outcome, TconvError):
            raise ended.outcome
        if isinstance(ended.outcome, Crash):
            raise explain_crash(ended.outcome)
        prepared = msgspec.convert(ended.outcome, Prepared)
        self.workspace.write("source.json", prepared)
        return prepared

    def convert_and_validate(self, target: Target) -> TargetReport:
        """Try the target's recipes in order until one passes."""
        attempts: list[Attempt] = []
        artifact: Artifact | None = None
        for recipe in self.recipes(target, attempts):
            artifact, attempt = self._attempt(target, recipe)
            attempts.append(attempt)
            if isinstance(attempt.verdict, Passed | PreflightOnly | NotJudged):
                break
        report = TargetReport(target.name, attempts[-1].verdict, tuple(attempts), artifact)
        self.keep(report)
        return report

    def recipes(self, target: Target, attempts: list[Attempt]) -> tuple[str, ...]:
        """Return the ways to make a target; where there is none, `attempts` gets the reason."""
        if target.base is not None:
            base = self.workspace.target(target.base)
            if not isinstance(base.verdict, Passed):
                reason = f"It is made from {target.base}, which did not pass."
                attempts.append(Attempt("", NotJudged(reason, f"See {target.base}.")))
                return ()
        try:
            return target.recipes(self.request.convert, self.workspace.prepared().framework)
        except ConversionError as refusal:
            attempts.append(Attempt("", NotConverted(refusal.problem, refusal.remedy)))
            return ()

    def _attempt(self, target: Target, recipe: str) -> tuple[Artifact | None, Attempt]:
        made, cost = self.convert(target, recipe)
        if not isinstance(made, Artifact):
            return None, Attempt(recipe, made, cost)
        verdict, judging = self.validate(target.name)
        return made, Attempt(recipe, verdict, cost, judging)

    def convert(self, target: Target, recipe: str) -> tuple[Artifact | Verdict, Cost]:
        """Convert in a child process; the artifact is kept as not yet judged."""
        self.watch(target.name, "convert", recipe)
        ended = self._child(
            "convert",
            f"{target.name}-{recipe}",
            target=target.name,
            recipe=recipe,
            request=msgspec.to_builtins(self.request.source),
            options=msgspec.to_builtins(self.request.convert),
        )
        if ended.failure is not None:
            return judge_failure("conversion", ended.failure), ended.cost
        if "preflight" in ended.outcome:
            return msgspec.convert(ended.outcome["preflight"], PreflightOnly), ended.cost
        artifact = msgspec.convert(ended.outcome["artifact"], Artifact)
        unjudged = NotJudged("It was not validated yet.", "Run: tconv validate WORKSPACE")
        self.keep(TargetReport(target.name, unjudged, (), artifact))
        return artifact, ended.cost

    def validate(self, target: str) -> tuple[Verdict, Cost]:
        """Judge an artifact of the workspace in a child process."""
        self.watch(target, "validate", "")
        artifact = self.workspace.target(target).artifact
        ended = self._child(
            "validate",
            f"{target}-validate",
            target=target,
            tolerances=msgspec.to_builtins(self.request.tolerances),
            device=self.request.device,
        )
        if ended.failure is not None:
            return judge_failure("validation", ended.failure), ended.cost
        verdict = msgspec.convert(ended.outcome, Passed | Failed)
        if isinstance(verdict, Failed) and artifact is not None:
            verdict = quote_tracer(verdict, artifact)
        if isinstance(verdict, Passed) and artifact is not None:
            verdict = refuse_unproven(verdict, artifact, self.workspace.prepared())
        return verdict, ended.cost

    def explain(self, target: str) -> Explanation:
        """Find out in a child process where an artifact leaves the source's path.

        Raises:
            TconvError: it can't be found out.
        """
        ended = self._child(
            "explain",
            f"{target}-explain",
            target=target,
            request=msgspec.to_builtins(self.request.source),
            tolerances=msgspec.to_builtins(self.request.tolerances),
        )
        if isinstance(ended.outcome, TconvError):
            raise ended.outcome
        if isinstance(ended.outcome, Crash):
            raise explain_crash(ended.outcome)
        return msgspec.convert(ended.outcome, Explanation)

    def export(self, name: str) -> TargetReport:
        """Export what passed as the model's next version."""
        report = self.workspace.target(name)
        if not isinstance(report.verdict, Passed) or report.artifact is None:
            return report
        self.watch(name, "export", self.request.repository)
        try:
            report = msgspec.structs.replace(
                report, exported=str(self._export(name, report.artifact))
            )
        except ConversionError as error:  # no server could run it; the other targets go on
            verdict = NotConverted(error.problem, error.remedy)
            report = msgspec.structs.replace(report, verdict=verdict)
        self.keep(report)
        return report

    def _export(self, name: str, artifact: Artifact) -> Path:
        model, repository = f"{self.request.name}_{name}", Path(self.request.repository)
        config = render_config(
            model,
            artifact,
            find_target(name).platform,
            self.workspace.prepared().batching,
            self.request.config,
            next_version(repository / model),
            has_gpu=count_gpus() > 0,
        )
        return export_version(repository, model, artifact, self.workspace.artifact(name), config)

    def keep(self, report: TargetReport) -> None:
        """Write what is known of a target."""
        self.workspace.write(f"artifacts/{report.target}.json", report)

    def finish(self) -> Report:
        """Write and return the record of the whole."""
        targets = tuple(self.workspace.target(name) for name in self.request.targets)
        report = Report(
            name=self.request.name,
            model=self.request.source.model,
            exit_code=exit_code(targets, allow_unavailable=self.request.allow_unavailable),
            prepared=self.workspace.prepared(),
            prepare_cost=self.prepare_cost,
            targets=targets,
            seconds=time.monotonic() - self._started,
            tconv=__version__,
            platform={
                "system": platform.platform(),
                "python": platform.python_version(),
                "cpus": str(os.cpu_count()),
            },
        )
        self.workspace.write("report.json", report)
        page = to_html(report, msgspec.to_builtins(self.request))
        self.workspace.write_text("report.html", page)
        return report
