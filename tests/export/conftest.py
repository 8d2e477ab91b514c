"""What the tests of real servers share: a small repository, and a look at what runs over it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import TensorProto, helper


class Watch:
    """The processes of the servers over one repository, which is named in their commands."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository

    def processes(self) -> dict[int, str]:
        """Return the commands of the server, its keeper and its stubs, by process id."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                command = entry.read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if str(self.repository) in command and int(entry.parent.name) != os.getpid():
                found[int(entry.parent.name)] = command
        return found

    def find(self, program: str) -> int:
        """Return the id of the process that runs `program`."""
        commands = self.processes().items()
        return next(pid for pid, command in commands if command.split()[0].endswith(program))

    def until(self, condition: Callable[[], object], seconds: float = 20) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"it did not happen in time: {self.processes()}"
            time.sleep(0.05)


def write_identity(repository: Path, name: str, config: str = "") -> None:
    """Add a model that returns its input, with another config.pbtxt if one is given."""
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["b", 3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", ends[:1], ends[1:])
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "1" / "model.onnx").write_bytes(model.SerializeToString())
    (repository / name / "config.pbtxt").write_text(config or IDENTITY)


IDENTITY = """
    platform: "onnxruntime_onnx"
    max_batch_size: 8
    input { name: "x" data_type: TYPE_FP32 dims: [3] }
    output { name: "y" data_type: TYPE_FP32 dims: [3] }
    instance_group { kind: KIND_CPU count: 1 }
"""


@pytest.fixture
def identity(tmp_path: Path) -> Path:
    """A model repository with one model, `identity`."""
    write_identity(tmp_path / "models", "identity")
    return tmp_path / "models"


@pytest.fixture
def add_identity() -> Callable[..., None]:
    """Add a model to a repository: `add_identity(repository, name, config)`."""
    return write_identity


@pytest.fixture
def watch(identity: Path) -> Watch:
    """Look at what runs over the repository `identity`."""
    return Watch(identity)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """Write a shell script called tritonserver: `program("exit 7")`."""

    def write(script: str) -> Path:
        path = tmp_path / "bin" / "tritonserver"
        path.parent.mkdir()
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return write
