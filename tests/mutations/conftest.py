"""Models are studied once a session, by what a build runs in its child processes."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch

from tconv import jobs
from tconv.artifact import Artifact
from tconv.convert.base import ConvertOptions, SourceModel, SourceRequest
from tconv.convert.registry import find_source, find_target
from tconv.report import Failed, NotJudged, Passed, Prepared, TargetReport
from tconv.validate.judge import judge
from tconv.validate.samples import SampleStore
from tconv.validate.tolerance import Tolerances
from tconv.workspace import Workspace

ZOO = Path(__file__).with_name("zoo.py")
INPUTS: dict[str, tuple[str, ...]] = runpy.run_path(str(ZOO))["INPUTS"]
Arrays = dict[str, Any]
Answer = Callable[[Arrays], Arrays]


class Studied(NamedTuple):
    """A model of the zoo, and what the validator knows of it."""

    request: SourceRequest
    workspace: Workspace
    prepared: Prepared

    def load(self) -> Any:
        """Load the model once more, to be used or broken."""
        source: SourceModel = find_source(self.request.model).load(
            self.request, self.workspace.folder / "source"
        )
        return source

    def judge(self, answer: Answer) -> Passed | Failed:
        """Judge a function of the inputs."""
        store = SampleStore(self.workspace.samples)
        return judge(_Runner(answer), store, self.prepared, Tolerances())

    def convert(self, target: str, recipe: str) -> Artifact:
        """Write an artifact into the workspace."""
        request = msgspec.to_builtins(self.request)
        options = msgspec.to_builtins(ConvertOptions())
        made = jobs.convert(str(self.workspace.folder), target, recipe, request, options)
        artifact = msgspec.convert(made["artifact"], Artifact)
        report = TargetReport(target, NotJudged("", ""), (), artifact)
        self.workspace.write(f"artifacts/{target}.json", report)
        return artifact

    def validate(self, target: str) -> Passed | Failed:
        """Judge the artifact in the workspace."""
        built = jobs.validate(str(self.workspace.folder), target, {}, "cpu")
        return msgspec.convert(built, Passed | Failed)

    def file(self, target: str) -> Path:
        """Return the file of the artifact in the workspace."""
        return self.workspace.artifact(target) / find_target(target).filename


class _Runner:
    device = "cpu"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def __call__(self, feeds: Any) -> Arrays:
        return self._answer(dict(feeds))


Study = Callable[[str], Studied]


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Study a model of the zoo: `study("mlp")`."""
    torch.set_num_threads(1)  # threads would only wait for each other in models so small

    @cache
    def run(name: str) -> Studied:
        folder = tmp_path_factory.mktemp(name)
        request = SourceRequest(f"{ZOO}:{name}", INPUTS[name], device="cpu")
        built = jobs.prepare(str(folder), msgspec.to_builtins(request), None)
        workspace = Workspace(folder)
        workspace.write("source.json", built)
        return Studied(request, workspace, workspace.prepared())

    return run
