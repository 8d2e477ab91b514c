"""Most cases convert in a child process each, as tconv does: Polygraphy's switch is per process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tconv.convert.base import ConvertOptions, Preflight
from tconv.convert.gpu import count_gpus
from tconv.convert.trt import TARGET
from tconv.errors import ConversionError, TconvError, Unavailable
from tconv.process import Finished, Processes
from tconv.report import Batching, Prepared
from tconv.spec import Signature, TensorSpec, parse_signature, parse_tensor

needs_engine = pytest.mark.skipif(
    not count_gpus() or find_spec("tensorrt") is None,
    reason="there is no NVIDIA GPU, or the package tensorrt is not installed",
)
without_gpu = pytest.mark.skipif(count_gpus() > 0, reason="there is an NVIDIA GPU")
needs_rtx = pytest.mark.skipif(
    find_spec("tensorrt_rtx") is None or find_spec("polygraphy") is None,
    reason="the package tensorrt-rtx or polygraphy is not installed",
)

Convert = Callable[..., Finished]


def prepare(inputs: Sequence[str], outputs: Sequence[str], max_batch: int = 8) -> Prepared:
    signature = Signature(parse_signature(inputs).inputs, tuple(map(parse_tensor, outputs)))
    return Prepared("model", "python", "torch", signature, Batching(max_batch))


def tensor(text: str) -> onnx.ValueInfoProto:
    spec = parse_tensor(text)
    shape = [getattr(dim, "name", dim) for dim in spec.shape]
    dtype = {"float32": "FLOAT", "float16": "FLOAT16"}.get(spec.dtype, spec.dtype.upper())
    return helper.make_tensor_value_info(spec.name, getattr(TensorProto, dtype), shape)


def write_graph(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: dict[str, Any] | None = None,
    **save: Any,
) -> Path:
    initializers = [
        onnx.numpy_helper.from_array(np.asarray(value), name)
        for name, value in (weights or {}).items()
    ]
    graph = helper.make_graph(
        nodes, "graph", [*map(tensor, inputs)], [*map(tensor, outputs)], initializers
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my.own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    folder.mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx", **save)
    return folder


def run_conversion(base: str, prepared: Any, recipe: str, folder: str) -> Any:
    """Convert in the child."""
    result = TARGET.convert(
        Path(base), msgspec.convert(prepared, Prepared), recipe, Path(folder), ConvertOptions()
    )
    return msgspec.to_builtins(result)


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent))
        server = Processes(preload=[Path(__file__).stem])
    with server:
        yield server
    # Left open, the pipe is a ResourceWarning in whatever test runs when it is collected.
    pipe = server._server.stdout
    assert pipe is not None
    pipe.close()


@pytest.fixture
def convert(processes: Processes, tmp_path: Path) -> Convert:
    def run(base: Path, prepared: Prepared, recipe: str = "preflight") -> Finished:
        folder = tmp_path / "trt"
        folder.mkdir()
        arguments = {
            "base": str(base),
            "prepared": msgspec.to_builtins(prepared),
            "recipe": recipe,
            "folder": str(folder),
        }
        call = f"{Path(__file__).stem}:run_conversion"
        return processes.run(call, arguments, log=tmp_path / "log.txt", timeout=60)

    return run


def passed(finished: Finished) -> Preflight:
    assert isinstance(finished.outcome, dict), finished.outcome
    return msgspec.convert(finished.outcome, Preflight)


MLP = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
MLP_INPUTS, MLP_OUTPUTS = ["x:float32[batch,seq=1..128,4]"], ["y:float32[batch,seq,3]"]
MLP_WEIGHTS = {"w": np.ones((4, 3), np.float32)}


@needs_rtx
def test_preflight_builds_an_engine_and_keeps_nothing(convert: Convert, tmp_path: Path) -> None:
    base = write_graph(tmp_path / "onnx", MLP, MLP_INPUTS, MLP_OUTPUTS, MLP_WEIGHTS)
    preflight = passed(convert(base, prepare(MLP_INPUTS, MLP_OUTPUTS)))
    parsed, ranges, built = preflight.checked
    assert parsed.startswith("Parsed ")
    assert "x 1x1x4 to 8x128x4, best at 4x64x4" in ranges
    assert "compute capability 8.9" in built
    assert float(built.partition(" MB")[0].rpartition(" ")[2]) > 0
    assert "so no engine was kept" in preflight.reason
    assert list((tmp_path / "trt").iterdir()) == []


@needs_rtx
def test_weights_in_a_file_beside_the_graph_are_found(convert: Convert, tmp_path: Path) -> None:
    base = write_graph(
        tmp_path / "onnx",
        MLP,
        MLP_INPUTS,
        MLP_OUTPUTS,
        MLP_WEIGHTS,
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    assert (base / "model.onnx.data").stat().st_size >= 48
    assert passed(convert(base, prepare(MLP_INPUTS, MLP_OUTPUTS))).checked


@needs_rtx
@pytest.mark.parametrize(
    ("inputs", "note"),
    [
        pytest.param(
            ["x:float32[batch,4]", "unused:int64[batch]", "z:float32[batch,4]"],
            "does not have the input 'unused'",
            id="an input is gone",
        ),
        pytest.param(
            ["z:float32[batch,4]", "x:float32[batch,4]"], "in another order: x, z", id="order"
        ),
        pytest.param(["x:float32[batch,4]", "z:float32[batch,4]"], "", id="the same"),
    ],
)
def test_inputs_that_differ_are_noted(
    convert: Convert, tmp_path: Path, inputs: list[str], note: str
) -> None:
    add = helper.make_node("Add", ["x", "z"], ["y"])
    names = ["x:float32[batch,4]", "z:float32[batch,4]"]
    base = write_graph(tmp_path / "onnx", [add], names, ["y:float32[batch,4]"])
    notes = passed(convert(base, prepare(inputs, ["y:float32[batch,4]"]))).checked[3:]
    assert len(notes) == bool(note)
    assert note in "".join(notes)


@needs_rtx
@pytest.mark.parametrize(
    "text",
    [
        "x[0]:float32[batch,4]",
        "x:float16[batch,4]",
        "x:bfloat16[batch,4]",
        "x:int8[batch,4]",
        "x:uint8[batch,4]",
        "x:int64[batch,4]",
        "x:bool[batch,4]",
        "x:float32[batch=2..3]",
        "x:float32[]",
        "x:float32[7,7]",
    ],
)
def test_these_inputs_are_accepted(convert: Convert, tmp_path: Path, text: str) -> None:
    name, _, rest = text.partition(":")
    node = helper.make_node("Identity", [name], ["y"])
    base = write_graph(tmp_path / "onnx", [node], [text], [f"y:{rest}"])
    assert passed(convert(base, prepare([text], [f"y:{rest}"]))).checked


X, Y = "x:float32[batch,4,4]", "y:float32[batch,16]"
FLATTEN = helper.make_node("Reshape", ["x", "shape"], ["y"], name="flatten")
REFUSED = {
    "unknown domain": (
        [helper.make_node("Frobnicate", ["x"], ["y"], name="frob_1", domain="my.own")],
        ([X], [Y], {}),
        "cannot take the operator Frobnicate (node 'frob_1'): it knows no such operator.",
    ),
    "unsupported operator without a name": (
        [helper.make_node("Det", ["x"], ["y"])],
        ([X], ["y:float32[batch]"], {}),
        "cannot take the operator Det (node 0).",
    ),
    "several operators": (
        [
            helper.make_node("Det", ["x"], ["a"], name="det"),
            helper.make_node("StringNormalizer", ["a"], ["y"], name="norm"),
        ],
        ([X], ["y:float32[batch]"], {}),
        "cannot take the operator Det (node 'det'), nor StringNormalizer.",
    ),
    "operator with the wrong dtype": (
        [helper.make_node("Add", ["x", "half"], ["y"], name="add")],
        ([X], [X.replace("x", "y", 1)], {"half": np.ones(4, np.float16)}),
        "the operator Add (node 'add'): add: ElementWiseOperation SUM must have same input types",
    ),
    "batch baked into a Reshape": (
        [FLATTEN],
        ([X], [Y], {"shape": np.array([1, 16])}),
        "ranges asked for contradict: IShuffleLayer flatten: reshaping failed for tensor: x",
    ),
    "batch baked into an output": (
        [helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=1)],
        ([X], ["y:float32[batch,4,4]"], {"axes": np.array([0])}),
        "fixes the output 'y' at [1, 4, 4], where the model has [batch, 4, 4]",
    ),
    "input that decides a shape": (
        [FLATTEN],
        ([X, "shape:int64[2]"], ["y:float32[batch,n]"], {}),
        "values of the input 'shape' decide the shape",
    ),
}


@needs_rtx
@pytest.mark.parametrize(("nodes", "graph", "problem"), REFUSED.values(), ids=REFUSED)
def test_the_refusal_names_what_is_refused(
    convert: Convert, tmp_path: Path, nodes: Any, graph: Any, problem: str
) -> None:
    inputs, outputs, weights = graph
    base = write_graph(tmp_path / "onnx", nodes, inputs, outputs, weights)
    error = convert(base, prepare(inputs, outputs)).outcome
    assert isinstance(error, ConversionError), error
    assert problem in error.problem
    assert "\n" not in error.problem
    assert "_src" not in error.problem
    assert list((tmp_path / "trt").iterdir()) == []


@needs_rtx
def test_what_only_the_preflight_lacks_is_not_judged(convert: Convert, tmp_path: Path) -> None:
    node = helper.make_node("NonZero", ["x"], ["y"], name="find")
    outputs = ["y:int64[2,n]"]
    base = write_graph(tmp_path / "onnx", [node], ["x:float32[batch,4]"], outputs)
    error = convert(base, prepare(["x:float32[batch,4]"], outputs)).outcome
    assert isinstance(error, Unavailable), error
    assert "does not have the operator NonZero (node 'find'); TensorRT itself may" in error.problem


@needs_rtx
@pytest.mark.parametrize(
    ("graph", "model", "problem"),
    [
        pytest.param(["x:float32[1,4]"], ["x:float32[batch,4]"], "fixes the input 'x'", id="size"),
        pytest.param(["x:float32[batch,4]"], ["x:float32[batch]"], "fixes the input", id="rank"),
        pytest.param(["x:float32[batch]"], ["a:float32[batch]"], "has an input 'x'", id="name"),
    ],
)
def test_a_graph_of_another_interface_is_refused(
    convert: Convert, tmp_path: Path, graph: list[str], model: list[str], problem: str
) -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    base = write_graph(tmp_path / "onnx", [node], graph, [graph[0].replace("x", "y", 1)])
    error = convert(base, prepare(model, [])).outcome
    assert isinstance(error, ConversionError), error
    assert problem in error.problem


@needs_rtx
def test_a_missing_output_is_refused(convert: Convert, tmp_path: Path) -> None:
    base = write_graph(tmp_path / "onnx", MLP, MLP_INPUTS, MLP_OUTPUTS, MLP_WEIGHTS)
    error = convert(base, prepare(MLP_INPUTS, [*MLP_OUTPUTS, "more:float32[batch]"])).outcome
    assert isinstance(error, ConversionError), error
    assert "lacks the output 'more'" in error.problem


@needs_rtx
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param(b"hello", "it holds no ONNX graph", id="no graph"),
        pytest.param(None, "Failed to import initializer: w", id="weights lost"),
    ],
)
def test_a_broken_file_is_refused(
    convert: Convert, tmp_path: Path, content: bytes | None, problem: str
) -> None:
    base = write_graph(
        tmp_path / "onnx",
        MLP,
        MLP_INPUTS,
        MLP_OUTPUTS,
        MLP_WEIGHTS,
        save_as_external_data=True,
        location="weights",
        size_threshold=0,
    )
    (base / "weights").unlink()
    if content is not None:
        (base / "model.onnx").write_bytes(content)
    error = convert(base, prepare(MLP_INPUTS, MLP_OUTPUTS)).outcome
    assert isinstance(error, ConversionError), error
    assert problem in error.problem


@needs_rtx
def test_polygraphy_imported_for_the_other_package_is_a_bug() -> None:
    code = (
        "import polygraphy.config; from tconv.convert.trt_engine import load_tensorrt\n"
        "load_tensorrt(rtx=True)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "RuntimeError: polygraphy was imported before" in run.stderr


def test_the_parent_learns_the_recipe_without_importing_anything() -> None:
    code = """
import sys
from tconv.convert.base import ConvertOptions
from tconv.convert.trt import TARGET
assert len(TARGET.recipes(ConvertOptions())) == 1
TARGET.availability()
print(*({"onnx", "polygraphy", "tensorrt", "tensorrt_rtx", "torch"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


@without_gpu
def test_without_a_gpu_a_preflight_is_all(tmp_path: Path) -> None:
    assert TARGET.recipes(ConvertOptions()) == ("preflight",)
    availability = TARGET.availability()
    assert "no NVIDIA GPU" in availability.build
    assert "no NVIDIA GPU" in availability.run
    assert "tconv[gpu]" in availability.remedy
    with pytest.raises(Unavailable, match="no NVIDIA GPU"):
        TARGET.inspect(tmp_path / "model.plan")


def build_and_run(base: str, prepared: Any, folder: str) -> Any:
    """Build an engine in the child, read it back, and run it."""
    asked = msgspec.convert(prepared, Prepared)
    artifact = TARGET.convert(Path(base), asked, "engine", Path(folder), ConvertOptions())
    assert not isinstance(artifact, Preflight)
    runner = TARGET.open(Path(folder), artifact, "cuda")
    feeds = [np.full((batch, seq, 4), batch, np.float32) for batch, seq in ((1, 1), (8, 128))]
    first = runner({"x": feeds[0]})["y"]
    second = runner({"x": feeds[1]})["y"]
    try:
        runner({"x": np.ones((9, 1, 4), np.float32)})
        refused = ""
    except TconvError as error:
        refused = error.problem
    return {
        "artifact": msgspec.to_builtins(artifact),
        "inspected": msgspec.to_builtins(TARGET.inspect(Path(folder) / "model.plan")),
        "first": [list(first.shape), float(first.min()), float(first.max())],
        "second": [list(second.shape), float(second.min()), float(second.max())],
        "refused": refused,
    }


@pytest.mark.gpu
@needs_engine
def test_an_engine_is_built_read_back_and_run(processes: Processes, tmp_path: Path) -> None:
    base = write_graph(tmp_path / "onnx", MLP, MLP_INPUTS, MLP_OUTPUTS, MLP_WEIGHTS)
    prepared = prepare(MLP_INPUTS, MLP_OUTPUTS)
    (tmp_path / "trt").mkdir()
    arguments = {
        "base": str(base),
        "prepared": msgspec.to_builtins(prepared),
        "folder": str(tmp_path / "trt"),
    }
    call = f"{Path(__file__).stem}:build_and_run"
    found = processes.run(call, arguments, log=tmp_path / "log.txt", timeout=300).outcome
    assert isinstance(found, dict), found
    assert found["first"] == [[1, 1, 3], 4.0, 4.0]
    assert found["second"] == [[8, 128, 3], 32.0, 32.0]
    assert "refuses its inputs" in found["refused"]
    artifact = found["artifact"]
    assert [file["name"] for file in artifact["files"]] == ["model.plan"]
    assert {"tensorrt", "cuda", "driver", "gpu", "compute_capability"} <= set(artifact["versions"])
    assert msgspec.convert(artifact["signature"], Signature) == prepared.signature
    inspected = msgspec.convert(found["inspected"], Signature)
    assert inspected.inputs[0] == parse_tensor("x:float32[batch=1..8,x_1=1..128,4]")
    assert isinstance(inspected.outputs[0], TensorSpec)
