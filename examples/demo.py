"""The whole path, from a model to a server that answers as PyTorch does: what `make demo` runs.

gpt2 (124 M parameters, random weights, so that no hub is needed) becomes TorchScript, ONNX and a
TensorRT preflight; what passed is published to a real Triton, and asked over HTTP and gRPC.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np

from tconv.export.ports import Ports
from tconv.export.triton import LocalTriton
from tconv.report import Passed, PreflightOnly, Report, TargetReport
from tconv.validate.samples import Check, SampleStore
from tconv.validate.server import TritonRunner

OUTPUT, REPOSITORY, SERVED = Path("build"), Path("models"), Path("build/demo-served")
TARGETS = "torchscript,onnx,trt"


def tconv(*arguments: str) -> str:
    """Run one command as a user would, and return what it printed."""
    print(f"\n$ tconv {' '.join(arguments)}", flush=True)
    run = subprocess.run(
        [sys.executable, "-m", "tconv", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if run.returncode:
        sys.exit(f"{run.stdout}\ntconv ended with exit code {run.returncode}")
    return run.stdout


def build() -> Report:
    """Convert, prove and export gpt2."""
    options = ["--random-weights", "--targets", TARGETS, "--allow-unavailable"]
    places = ["--output", str(OUTPUT), "--repository", str(REPOSITORY)]
    print(tconv("build", "gpt2", *options, *places))
    return msgspec.json.decode((OUTPUT / "gpt2" / "report.json").read_bytes(), type=Report)


@contextmanager
def server() -> Iterator[LocalTriton]:
    """Run a Triton that serves nothing yet."""
    SERVED.mkdir(parents=True, exist_ok=True)
    with LocalTriton() as triton:
        print(f"\nStarting {triton.server} …", flush=True)
        triton.start(SERVED, Ports(), load=[])
        print(f"Triton is ready: HTTP {triton.http_url}, gRPC {triton.grpc_url}")
        yield triton


def ask(triton: LocalTriton, report: Report, target: TargetReport) -> tuple[float, float]:
    """Ask a published model over HTTP and gRPC; return how far each was from PyTorch."""
    assert target.artifact is not None
    assert report.prepared is not None
    store = SampleStore(OUTPUT / "gpt2" / "samples")
    index = store.read_index()
    check = Check(index.pools[0].name, (2, 0, 1))
    feeds = store.read(check, "in", index.inputs)
    truth = store.read(check, "out", index.outputs)
    found = []
    for protocol, url in (("http", triton.http_url), ("grpc", triton.grpc_url)):
        with TritonRunner(
            url, f"gpt2_{target.target}", 1, target.artifact, batched=True, protocol=protocol
        ) as runner:
            answer = runner(feeds)
        found.append(max(float(np.abs(answer[name] - truth[name]).max()) for name in truth))
    return found[0], found[1]


def main() -> int:
    """Run the demo; the last lines are the truth about each target."""
    started = time.monotonic()
    report = build()
    answers = {}
    with server() as triton:
        places = ["--output", str(OUTPUT), "--repository", str(SERVED)]
        urls = ["--url", triton.grpc_url, "--http-url", triton.http_url]
        print(tconv("publish", "gpt2", *places, *urls))
        for target in report.targets:
            if isinstance(target.verdict, Passed):
                answers[target.target] = ask(triton, report, target)
    print()
    for target in report.targets:
        print(say(target, answers.get(target.target)))
    print(f"\nDone in {time.monotonic() - started:.0f} s.")
    return 0


def say(target: TargetReport, answer: tuple[float, float] | None) -> str:
    """Return the line of truth about one target."""
    if isinstance(target.verdict, Passed) and answer is not None:
        served = "the server agrees with PyTorch within {:.1e} (HTTP) and {:.1e} (gRPC)"
        return f"{target.target:12} passed; {served.format(*answer)}"
    if isinstance(target.verdict, PreflightOnly):
        return f"{target.target:12} preflight only: {target.verdict.problem.partition('.')[0]}"
    return f"{target.target:12} {type(target.verdict).__name__}"


if __name__ == "__main__":
    sys.exit(main())
