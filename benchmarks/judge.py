"""What judging costs, beside running the source over the same samples once.

    python benchmarks/judge.py build/gpt2 onnx

The workspace is one that `tconv build` left. Loading is left out; the source runs every pool whole,
once, and what is judged is asked all checks. The memory is that of all arrays at their most, the
artifact's answers included; the runtime's own memory and mapped files are not in it.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from pathlib import Path

from tconv.convert.base import SourceRequest
from tconv.convert.registry import find_target, source_named
from tconv.request import BuildRequest
from tconv.validate.judge import judge, smallest_first
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
        f"arrays held         {memory / 1e6:8.0f} MB   {memory / largest:.2f}x the largest output"
    )


def _time_judge(workspace: Workspace, target: str, store: SampleStore) -> tuple[float, int]:
    artifact = workspace.target(target).artifact
    assert artifact is not None
    runner = find_target(target).open(workspace.artifact(target), artifact, "cpu")
    index = store.read_index()
    runner(store.read(smallest_first(index)[-1], "in", index.inputs))
    tracemalloc.start()
    started = time.perf_counter()
    judge(runner, store, workspace.prepared(), Tolerances())
    return time.perf_counter() - started, tracemalloc.get_traced_memory()[1]


def _time_source(workspace: Workspace, request: SourceRequest, store: SampleStore) -> float:
    """Time the source over the pools that are judged, answers thrown away."""
    model = source_named(workspace.prepared().source).load(request, workspace.folder / "source")
    index = store.read_index()
    seconds = 0.0
    for pool in index.pools:
        feeds = store.read(Check(pool.name), "in", index.inputs)
        started = time.perf_counter()
        model.run(feeds)
        seconds += time.perf_counter() - started
    return seconds


if __name__ == "__main__":
    main()
