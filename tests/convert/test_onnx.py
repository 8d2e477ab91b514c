from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from tconv.artifact import Artifact
from tconv.convert.base import ConvertOptions
from tconv.convert.onnx import EXPORTERS, TARGET
from tconv.convert.torch_model import TorchModel
from tconv.errors import ConversionError, Unavailable, UsageProblem
from tconv.report import Batching, Prepared
from tconv.spec import Axis, Signature, parse_signature, parse_tensor
from tconv.validate.sampling import draw

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(120)]

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.function(x) if y is None else self.function(x, y)


def _model(module: Any, *inputs: str) -> TorchModel:
    signature = parse_signature(inputs)
    sizes = {name: place + 3 for place, name in enumerate(signature.axes)}
    return TorchModel(
        module,
        signature,
        examples=draw(signature, sizes, "ordinary", 0),
        batch_declared=True,
        device="cpu",
    )


def _convert(
    model: TorchModel, folder: Path, *outputs: str, recipe: str = "torchscript", **options: Any
) -> Artifact:
    signature = Signature(model.signature.inputs, tuple(map(parse_tensor, outputs)))
    prepared = Prepared("m", "python", "torch", signature, Batching(8))
    return TARGET.convert(model, prepared, recipe, folder, ConvertOptions(**options))


X = "x:float32[batch=1..8,n=1..9]"


def test_recipes_are_the_exporters() -> None:
    assert (
        TARGET.recipes(ConvertOptions()) == tuple(EXPORTERS["torch"]) == ("dynamo", "torchscript")
    )
    for name in EXPORTERS["torch"]:
        assert TARGET.recipes(ConvertOptions(exporter=name)) == (name,)
    with pytest.raises(UsageProblem, match="no exporter called 'onnx'") as caught:
        TARGET.recipes(ConvertOptions(exporter="onnx"))
    assert "auto, dynamo, torchscript" in caught.value.remedy


@pytest.mark.parametrize("recipe", EXPORTERS["torch"])
def test_the_file_has_the_signatures_names_and_ranges(tmp_path: Path, recipe: str) -> None:
    outputs = ("output_0:float32[batch=1..8,n=1..9]", "output_1:int64[batch=1..8]")
    model = _model(Call(lambda x: (x * 2, x.argmax(-1))), X)
    artifact = _convert(model, tmp_path, *outputs, recipe=recipe)
    assert tuple(map(str, artifact.signature.inputs)) == (X,)
    assert tuple(map(str, artifact.signature.outputs)) == outputs
    runner = TARGET.open(tmp_path, artifact, "cpu")
    x = np.array([[1, 3], [5, 4], [0, 0], [2, 1], [1, 2]], "float32")
    answer = runner({"x": x})
    assert list(answer) == ["output_0", "output_1"]
    assert np.array_equal(answer["output_0"], x * 2)
    assert answer["output_1"].tolist() == [1, 0, 0, 0, 1]


def test_an_axis_that_depends_on_another_has_no_range(tmp_path: Path) -> None:
    model = _model(Call(lambda x: torch.cat([x, x], 1)), X)
    artifact = _convert(model, tmp_path, "output:float32[batch=1..8,output_dim1]")
    assert artifact.signature.outputs[0].shape == (Axis("batch", 1, 8), Axis("output_dim1"))


@pytest.mark.parametrize("recipe", EXPORTERS["torch"])
def test_an_input_that_is_not_read_is_kept_and_noted(tmp_path: Path, recipe: str) -> None:
    model = _model(Call(lambda x, _: x * 2), X, "y:int64[batch=1..8]")
    artifact = _convert(model, tmp_path, "output:float32[batch=1..8,n=1..9]", recipe=recipe)
    assert artifact.signature.input_names == ("x", "y")
    assert any("'y'" in note for note in artifact.notes)
    feeds = {"x": np.ones((2, 3), "f"), "y": np.zeros(2, "q")}
    assert TARGET.open(tmp_path, artifact, "cpu")(feeds)["output"].tolist() == [[2] * 3] * 2


@pytest.mark.parametrize("opset", [17, 20])
def test_the_opset_is_what_was_asked_for(tmp_path: Path, opset: int) -> None:
    _convert(_model(Call(lambda x: x * 2), X), tmp_path, "output:float32[batch,n]", opset=opset)
    written = onnx.load(tmp_path / "model.onnx").opset_import
    assert {entry.version for entry in written if not entry.domain} == {opset}


@pytest.mark.parametrize("recipe", EXPORTERS["torch"])
def test_an_opset_that_there_is_not(tmp_path: Path, recipe: str) -> None:
    model = _model(Call(lambda x: x * 2), X)
    with pytest.raises(ConversionError, match="999"):
        _convert(model, tmp_path, "output:float32[batch,n]", recipe=recipe, opset=999)


@pytest.mark.parametrize("recipe", EXPORTERS["torch"])
def test_what_an_exporter_refuses(tmp_path: Path, recipe: str) -> None:
    model = _model(Call(lambda x: x.nonsense()), X)
    with pytest.raises(ConversionError, match="refused the model") as caught:
        _convert(model, tmp_path, "output:float32[batch,n]", recipe=recipe)
    assert caught.value.remedy


def test_outputs_that_are_not_the_sources(tmp_path: Path) -> None:
    with pytest.raises(ConversionError):
        _convert(_model(Call(lambda x: x * 2), X), tmp_path, "a:float32[]", "b:float32[]")


def _trace(module: nn.Module) -> Any:
    return torch.jit.trace(module, torch.ones(2, 3))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(torch.jit.script, id="scripted"),
        pytest.param(_trace, id="traced"),
    ],
)
def test_torchscript_is_no_source_for_onnx(tmp_path: Path, make: Callable[[Any], Any]) -> None:
    model = _model(make(nn.Linear(3, 3)), "input:float32[batch,3]")
    with pytest.raises(ConversionError, match="TorchScript already"):
        _convert(model, tmp_path, "output:float32[batch,3]")


def test_other_frameworks_are_refused() -> None:
    with pytest.raises(ConversionError, match="not made from a model of jax"):
        TARGET.recipes(ConvertOptions(), "jax")


@pytest.mark.parametrize("recipe", EXPORTERS["torch"])
def test_bfloat16_goes_in_and_out(tmp_path: Path, recipe: str) -> None:
    model = _model(Call(lambda x: (x * 2, x.float().sum(-1), x[:, :1] * 0)), "x:bfloat16[batch,n]")
    outputs = (
        "output_0:bfloat16[batch,n]",
        "output_1:float32[batch]",
        "output_2:bfloat16[batch,1]",
    )
    artifact = _convert(model, tmp_path, *outputs, recipe=recipe)
    assert [spec.dtype for spec in artifact.signature.outputs] == [
        "bfloat16",
        "float32",
        "bfloat16",
    ]
    assert any("float32 instead of bfloat16" in note for note in artifact.notes)
    runner = TARGET.open(tmp_path, artifact, "cpu")
    x = np.array([[1, 2, 3], [4, 5, 6]], "float32").astype(ml_dtypes.bfloat16)
    for feeds in (x, np.asfortranarray(x)):
        answer = runner({"x": feeds})
        assert [v.dtype.name for v in answer.values()] == ["bfloat16", "float32", "bfloat16"]
        assert answer["output_0"].astype("f").tolist() == [[2, 4, 6], [8, 10, 12]]
        assert answer["output_1"].tolist() == [6, 15]
    kept = answer["output_0"]
    runner({"x": x * 0})
    assert kept.astype("f").max() == 12  # its memory is its own


def _write(folder: Path, *nodes: Any, **save: Any) -> Artifact:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        list(nodes),
        "g",
        [value("x", TensorProto.FLOAT, [2])],
        [value("y", TensorProto.FLOAT, [2])],
    )
    model = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)])
    onnx.save(model, folder / "model.onnx", **save)
    signature = Signature((parse_tensor("x:float32[2]"),), (parse_tensor("y:float32[2]"),))
    return Artifact("onnx", "r", (), signature)


@pytest.mark.parametrize(
    ("node", "says"),
    [
        pytest.param(helper.make_node("Nonsense", ["x"], ["y"]), "Nonsense", id="operator"),
        pytest.param(helper.make_node("Identity", ["lost"], ["y"]), "lost", id="open end"),
        pytest.param(
            helper.make_node("Identity", ["x"], ["y"], domain="own"), "own", id="own domain"
        ),
    ],
)
def test_a_file_that_the_runtime_refuses(tmp_path: Path, node: Any, says: str) -> None:
    artifact = _write(tmp_path, node)
    with pytest.raises(ConversionError, match=says) as caught:
        TARGET.open(tmp_path, artifact, "cpu")
    assert "\n" not in caught.value.problem
    assert caught.value.problem.startswith("ONNX Runtime can't load the file: ")


@pytest.mark.skipif(HAS_CUDA, reason="there is a CUDA provider")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    artifact = _write(tmp_path, helper.make_node("Identity", ["x"], ["y"]))
    with pytest.raises(Unavailable, match="no CUDA provider"):
        TARGET.open(tmp_path, artifact, "cuda")
    assert TARGET.open(tmp_path, artifact, "auto").device == "cpu"
