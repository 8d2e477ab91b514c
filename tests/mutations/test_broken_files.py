"""No mistake in a file goes unnoticed: artifacts are edited on disk and read back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from tconv.convert.registry import find_target
from tconv.errors import ConversionError
from tconv.report import Failed, Passed
from tconv.validate.judge import judge
from tconv.validate.samples import SampleStore
from tconv.validate.tolerance import Tolerances

from .conftest import Studied, Study

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(60)]

Edit = Callable[[Any], object]
SIDE = "weights.bin"
RECIPES = {"onnx": "torchscript", "torchscript": "trace"}


def _copy(studied: Studied, target: str, folder: Path) -> Path:
    """Return a copy of the artifact, which is made the first time."""
    if not studied.file(target).exists():
        studied.convert(target, RECIPES[target])
    shutil.copytree(studied.workspace.artifact(target), folder)
    return folder / studied.file(target).name


def _judge(studied: Studied, target: str, folder: Path) -> Passed | Failed:
    artifact = studied.workspace.target(target).artifact
    assert artifact is not None
    runner = find_target(target).open(folder, artifact, "cpu")
    store = SampleStore(studied.workspace.samples)
    return judge(runner, store, studied.prepared, Tolerances())


# ---- ONNX ----------------------------------------------------------------------------------------


def _weight(model: Any, *shape: int) -> Any:
    """Return the first weight of this shape."""
    return next(t for t in model.graph.initializer if tuple(t.dims) == shape)


def _change(model: Any, shape: tuple[int, ...], change: Callable[[Any], Any]) -> None:
    tensor = _weight(model, *shape)
    array = change(numpy_helper.to_array(tensor).copy())
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def _scale_one(array: Any) -> Any:
    array.flat[array.size // 2] *= 1.01
    return array


def _swap_activation(model: Any) -> None:
    """Replace GELU, which an exporter writes as one node or as its error function."""
    others = {"Erf": "Tanh", "Gelu": "Relu"}
    node = next(node for node in model.graph.node if node.op_type in others)
    node.op_type = others[node.op_type]
    del node.attribute[:]


def _node(model: Any, kind: str) -> Any:
    return next(node for node in model.graph.node if node.op_type == kind)


def _insert_last(model: Any, kind: str, *more: str, **attributes: Any) -> None:
    """Put a node between the graph and its first output."""
    name = model.graph.output[0].name
    inside = f"{name}_before_{kind}"
    for node in model.graph.node:
        node.output[:] = [inside if o == name else o for o in node.output]
        node.input[:] = [inside if i == name else i for i in node.input]
    model.graph.node.append(helper.make_node(kind, [inside, *more], [name], **attributes))


def _constant(model: Any, name: str, value: Any) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def _exchange(values: Any) -> None:
    """Exchange the names of the first two: the contents change places."""
    values[0].name, values[1].name = values[1].name, values[0].name


def _widen(model: Any) -> None:
    _insert_last(model, "Cast", to=TensorProto.DOUBLE)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE


def _add_axis(model: Any) -> None:
    _insert_last(model, "Unsqueeze", _constant(model, "axes", np.array([1])))


def _count_from_one(model: Any) -> None:
    _insert_last(model, "Sub", _constant(model, "one", np.int64(1)))


def _softmax_over_rows(model: Any) -> None:
    _node(model, "Softmax").attribute[0].i = 0


def _turn(values: Any) -> None:
    values.append(values.pop(0))


def _shorten_steps(model: Any) -> None:
    strides = next(a for a in _node(model, "MaxPool").attribute if a.name == "strides")
    strides.ints[:] = [3, 3]


def _forget(model: Any, rows: int) -> None:
    """Let the last row of an embedding be zero."""
    keep = (np.arange(rows) < rows - 1)[:, None].astype("f")
    _change(model, (rows, 16), lambda w: w * keep)


def _round(array: Any) -> Any:
    return array.astype("e").astype("f")


def _swap_inputs(model: Any) -> None:
    names = {"x": "y", "y": "x"}
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _fold_an_example(model: Any) -> None:
    """Answer with a constant, as if the exporter had folded the example away."""
    _insert_last(model, "Mul", _constant(model, "zero", np.float32(0)))
    _insert_last(model, "Add", _constant(model, "one", np.float32(1)))


def _mix_rows(model: Any) -> None:
    name = _constant(model, "axis", np.array([0]))
    model.graph.node.append(helper.make_node("ReduceMean", ["x", name], ["mean"], keepdims=1))
    model.graph.node.append(helper.make_node("Sub", ["x", "mean"], ["centred"]))
    for node in model.graph.node:
        if "centred" not in node.output and "mean" not in node.output:
            node.input[:] = ["centred" if i == "x" else i for i in node.input]
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(nodes[-2:] + nodes[:-2])


def _freeze_rows(model: Any) -> None:
    _insert_last(model, "Reshape", _constant(model, "rows", np.array([3, 4])))


ONNX_EDITS: list[tuple[str, str, Edit]] = [
    ("mlp", "one weight off by 1 %", lambda m: _change(m, (16, 8), _scale_one)),
    ("mlp", "one bias off by 1 %", lambda m: _change(m, (16,), _scale_one)),
    ("mlp", "weights rounded to half", lambda m: _change(m, (16, 8), _round)),
    ("mlp", "a bias of zeros", lambda m: _change(m, (4,), np.zeros_like)),
    ("mlp", "a bias left out", lambda m: _node(m, "Gemm").input.pop()),
    ("mlp", "rows of a weight exchanged", lambda m: _change(m, (16, 8), lambda w: w[::-1])),
    ("mlp", "rows mixed", _mix_rows),
    ("mlp", "rows frozen at the example's", _freeze_rows),
    ("mlp", "the example folded away", _fold_an_example),
    ("mlp", "output as float64", _widen),
    ("mlp", "output negated", lambda m: _insert_last(m, "Neg")),
    ("mlp", "output cut off at 0", lambda m: _insert_last(m, "Relu")),
    ("mlp", "an axis added", _add_axis),
    ("mlp", "another activation", _swap_activation),
    ("deep_mlp", "a square matrix transposed", lambda m: _change(m, (32, 32), np.transpose)),
    ("deep_mlp", "a layer's flag flipped", lambda m: _node(m, "Gemm").attribute.pop()),
    ("softmaxes", "outputs exchanged", lambda m: _exchange(m.graph.output)),
    ("softmaxes", "outputs in another order", lambda m: _turn(m.graph.output)),
    ("softmaxes", "an output left out", lambda m: m.graph.output.pop()),
    ("softmaxes", "softmax over the batch", _softmax_over_rows),
    ("einsum", "inputs exchanged", _swap_inputs),
    ("pooling", "another stride", _shorten_steps),
    ("indices", "one less in an index", _count_from_one),
    ("text_encoder", "one embedding zero", lambda m: _forget(m, 100)),
    ("text_encoder", "last place forgotten", lambda m: _forget(m, 32)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "edit"), [pytest.param(m, e, id=f"{m}: {n}") for m, n, e in ONNX_EDITS]
)
def test_an_onnx_file(model: str, edit: Edit, study: Study, tmp_path: Path) -> None:
    studied = study(model)
    path = _copy(studied, "onnx", tmp_path / "copy")
    graph = onnx.load(path)
    edit(graph)
    onnx.save(graph, path)
    verdict = _judge(studied, "onnx", path.parent)
    assert isinstance(verdict, Failed)
    assert "can't be run" not in verdict.problem or edit is _freeze_rows


def _save_apart(path: Path, seed: int) -> None:
    """Save an ONNX file with its weights beside it, or other weights where there is a seed."""
    graph = onnx.load(path)
    random = np.random.default_rng(seed)
    for tensor in graph.graph.initializer if seed else ():
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            other = random.permuted(array).astype("f")
            tensor.CopyFrom(numpy_helper.from_array(other, tensor.name))
    (path.parent / SIDE).unlink(missing_ok=True)
    onnx.save(graph, path, save_as_external_data=True, location=SIDE, size_threshold=0)


def test_a_side_file_of_another_version(study: Study, tmp_path: Path) -> None:
    studied = study("mlp")
    new, old = (_copy(studied, "onnx", tmp_path / name) for name in ("new", "old"))
    _save_apart(new, 0)
    _save_apart(old, 1)
    assert isinstance(_judge(studied, "onnx", new.parent), Passed)
    (old.parent / SIDE).replace(new.parent / SIDE)
    assert isinstance(_judge(studied, "onnx", new.parent), Failed)


@pytest.mark.parametrize("size", [0, 100, None], ids=["empty", "cut off", "missing"])
def test_a_side_file_that_is_not_whole(study: Study, tmp_path: Path, size: int | None) -> None:
    studied = study("mlp")
    path = _copy(studied, "onnx", tmp_path / "copy")
    _save_apart(path, 0)
    side = path.parent / SIDE
    side.unlink() if size is None else side.write_bytes(side.read_bytes()[:size])
    with pytest.raises(ConversionError):
        _judge(studied, "onnx", path.parent)


@pytest.mark.parametrize("target", RECIPES)
@pytest.mark.parametrize("size", [0, 50], ids=["empty", "cut off"])
def test_a_file_that_is_not_whole(study: Study, tmp_path: Path, target: str, size: int) -> None:
    studied = study("mlp")
    path = _copy(studied, target, tmp_path / "copy")
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ConversionError):
        _judge(studied, target, path.parent)


@pytest.mark.parametrize("target", RECIPES)
def test_a_file_of_another_model(study: Study, tmp_path: Path, target: str) -> None:
    studied = study("mlp")
    path = _copy(studied, target, tmp_path / "copy")
    other = _copy(study("conv1d"), target, tmp_path / "other")
    other.replace(path)
    assert isinstance(_judge(studied, target, path.parent), Failed)


# ---- TorchScript ---------------------------------------------------------------------------------


def _each(module: Any, change: Callable[[Any], Any]) -> None:
    for parameter in module.parameters():
        parameter.copy_(change(parameter))


SCRIPT_EDITS: list[tuple[str, str, Edit]] = [
    ("mlp", "one weight off by 1 %", lambda m: next(m.parameters())[3, 2].mul_(1.01)),
    ("mlp", "weights rounded to half", lambda m: _each(m, lambda w: w.half().float())),
    ("mlp", "a bias of zeros", lambda m: list(m.parameters())[-1].zero_()),
    ("deep_mlp", "a square matrix transposed", lambda m: next(m.parameters()).t_()),
    ("text_encoder", "one embedding zero", lambda m: next(m.parameters())[99].zero_()),
    ("normed_batches", "batch norm left training", lambda m: [b.zero_() for b in m.buffers()]),
    ("mlp", "computed in half precision", lambda m: m.half()),
]


@pytest.mark.parametrize(
    ("model", "edit"), [pytest.param(m, e, id=f"{m}: {n}") for m, n, e in SCRIPT_EDITS]
)
def test_a_torchscript_file(model: str, edit: Edit, study: Study, tmp_path: Path) -> None:
    studied = study(model)
    path = _copy(studied, "torchscript", tmp_path / "copy")
    module: Any = torch.jit.load(path)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        edit(module)
    torch.jit.save(module, path)
    assert isinstance(_judge(studied, "torchscript", path.parent), Failed)
