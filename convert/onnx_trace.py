"""What every node of an ONNX file computes on one sample, without the runtime's optimisations."""

from __future__ import annotations

import ast
import contextlib
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .base import Array, Arrays
from .tracer import is_user_code

SCOPES, STACK = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"
"""Where torch.onnx notes the modules and the lines that a node was made from."""
_LINE = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


class Step(NamedTuple):
    """A node: its name and operator, the module path and the user's line it comes from."""

    name: str
    operator: str
    module: str
    line: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class Trace(NamedTuple):
    """The nodes in order, and the values they computed, by name; inputs and weights included."""

    steps: list[Step]
    values: dict[str, Array]


def trace(path: Path, feeds: Arrays) -> Trace:
    """Run every node as the file has it."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    steps = [_step(node) for node in model.graph.node]
    names = [name for step in steps for name in step.outputs]
    return Trace(steps, {**feeds, **run(path, feeds, names, optimised=False)})


def run(path: Path, feeds: Arrays, names: Sequence[str], *, optimised: bool) -> dict[str, Array]:
    """Return values inside of a file; `optimised` as it is served."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.graph_optimization_level = level
    with tempfile.TemporaryDirectory(prefix="tconv-explain-") as folder:
        # A copy: no runtime reads weights that are linked.
        copy = Path(shutil.copytree(path.parent, Path(folder) / "model")) / path.name
        model = onnx.load(copy, load_external_data=False)
        known = {output.name for output in model.graph.output}
        model.graph.output.extend(
            onnx.helper.make_empty_tensor_value_info(name) for name in names if name not in known
        )
        copy.write_bytes(model.SerializeToString())
        session = onnxruntime.InferenceSession(copy, options, providers=["CPUExecutionProvider"])
        values = session.run(list(names), dict(feeds))
    return dict(zip(names, values, strict=True))


def _step(node: Any) -> Step:
    noted = {entry.key: entry.value for entry in node.metadata_props}
    places = [m for m in _LINE.finditer(noted.get(STACK, "")) if is_user_code(m["file"])]
    line = f"{places[-1]['file']}:{places[-1]['line']}" if places else ""
    outputs = tuple(name for name in node.output if name)
    return Step(
        node.name or node.output[0],
        node.op_type,
        _module(noted.get(SCOPES, ""), node.name),
        line,
        tuple(name for name in node.input if name),
        outputs,
    )


def _module(scopes: str, name: str) -> str:
    """Return a module's path: from the exporter's notes, or from the name of the older one's."""
    path = ""
    if scopes:
        with contextlib.suppress(ValueError, SyntaxError):
            path = ([s for s in ast.literal_eval(scopes)[:-1] if s] or [""])[-1]
    elif name.startswith("/"):
        path = ".".join(name.split("/")[1:-1])
    return path.removeprefix("module").removeprefix(".")
