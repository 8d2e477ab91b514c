"""What several folders of tests share: real servers, and builds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tconv.convert.base import SourceRequest
from tconv.errors import MissingExtra
from tconv.export.installation import find_server
from tconv.export.triton import LocalTriton
from tconv.pipeline import build
from tconv.process import Processes
from tconv.report import Report
from tconv.request import BuildRequest

StartTriton = Callable[..., LocalTriton]
Build = Callable[..., Report]

MODELS = Path(__file__).parent / "models"
PRELOAD = (
    "torch.export._trace",
    "torch.onnx",
    "onnxscript.function_libs.torch_lib.ops",
    "onnxruntime",
    "tconv.jobs",
    "tconv.convert.onnx",
    "tconv.convert.torchscript",
    "tconv.convert.python",
)
"""What a conversion imports: done once here, where a build alone would gain nothing by it."""


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTriton]:
    """Start a real server over a repository: `triton(folder, load=...)`; all stop at the end."""
    try:
        server = find_server()
    except MissingExtra as error:
        pytest.skip(str(error))
    with contextlib.ExitStack() as stack:

        def start(repository: Path, **options: Any) -> LocalTriton:
            log = tmp_path_factory.mktemp("triton") / "server.log"
            running = stack.enter_context(LocalTriton(server))
            return running.start(repository, **{"log": log, **options})

        yield start


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """Give one fork server to all builds: starting one costs seconds."""
    with Processes(PRELOAD) as shared:
        yield shared


@pytest.fixture
def build_model(processes: Processes, tmp_path: Path) -> Build:
    """Build a factory of `tests/models`: `build_model("traps:plain_mlp", timeout=5.0)`."""

    def run(model: str, *inputs: str, targets: str = "torchscript,onnx", **options: Any) -> Report:
        file, _, factory = model.partition(":")
        path = MODELS / f"{file}.py"
        request = BuildRequest(
            source=SourceRequest(f"{path}:{factory}", inputs),
            targets=tuple(targets.split(",")),
            name=factory,
            output=str(tmp_path / "build"),
            repository=str(tmp_path / "models"),
            **options,
        )
        return build(request, processes=processes)

    return run


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many healthy models passed and how many broken ones were noticed."""
    counts = {"healthy": [0, 0], "broken": [0, 0]}
    for outcome, index in (("passed", 0), ("failed", 1)):
        for report in terminalreporter.stats.get(outcome, ()):
            for kind, count in counts.items():
                count[index] += f"mutations/test_{kind}" in report.nodeid and "[" in report.nodeid
    (quiet, alarms), (caught, missed) = counts["healthy"], counts["broken"]
    if quiet + alarms + caught + missed:
        terminalreporter.write_line(
            f"validator: {quiet} healthy artifacts passed and {alarms} did not; "
            f"{caught} broken ones were noticed and {missed} were not"
        )
