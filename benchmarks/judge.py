"""What judging costs, beside running the source over the same samples once.

    python benchmarks/judge.py build/gpt2 onnx

The workspace is one that `tconv build` left. Loading is measured apart; the largest memory is that
of the process that judges, beyond what it held with the artifact loaded.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from tconv.convert.base import SourceRequest
from tconv.convert.registry import find_target, source_named
from tconv.request import BuildRequest
from tconv.validate.judge import judge
from tconv.validate.samples import Check, SampleStore
from tconv.validate.tolerance import Tolerances
from tconv.workspace import Workspace


def main() -> None:
    """Print the times, their ratio, and the memory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workspace", type=Path)
    parser.add_argument("target")
    given = parser.parse_args()
    workspace = Workspace(given.workspace)
    store = SampleStore(workspace.samples)
    artifact = workspace.target(given.target).artifact
    if artifact is None:
        parser.error(f"{given.workspace} has no artifact of {given.target}")
    judging, memory = _time_judge(workspace, given.target, store)
    running = _time_source(workspace, workspace.read("request.json", BuildRequest).source, store)
    largest = max(path.stat().st_size for path in workspace.samples.glob("*/out*.npy"))
    print(f"running the source  {running:8.2f} s")
    print(f"judging             {judging:8.2f} s   {judging / running:.2f}x")
    print(
        f"memory of judging   {memory / 1e6:8.0f} MB   {memory / largest:.2f}x the largest output"
    )


def _time_judge(workspace: Workspace, target: str, store: SampleStore) -> tuple[float, int]:
    artifact = workspace.target(target).artifact
    assert artifact is not None
    runner = find_target(target).open(workspace.artifact(target), artifact, "cpu")
    index = store.read_index()
    runner(store.read(index.checks[0], "in", index.inputs))
    before = _peak()
    started = time.perf_counter()
    judge(runner, store, workspace.prepared(), Tolerances())
    return time.perf_counter() - started, _peak() - before


def _time_source(workspace: Workspace, request: SourceRequest, store: SampleStore) -> float:
    """Time the source over the very checks that are judged, answers thrown away."""
    model = source_named(workspace.prepared().source).load(request, workspace.folder / "source")
    index = store.read_index()
    seconds = 0.0
    for check in index.checks:
        feeds = store.read(Check(check.pool, check.rows), "in", index.inputs)
        started = time.perf_counter()
        model.run(feeds)
        seconds += time.perf_counter() - started
    return seconds


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
