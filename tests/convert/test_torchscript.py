from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tconv.artifact import Artifact
from tconv.convert.base import ConvertOptions
from tconv.convert.torch_model import TorchModel
from tconv.convert.torchscript import SERVED_DTYPES, TARGET
from tconv.errors import ConversionError, Unavailable, UsageProblem
from tconv.report import Batching, Prepared
from tconv.spec import DTYPES, Signature, parse_signature, parse_tensor

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.arange(6.0).reshape(2, 3)


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class Open(nn.Module):
    """Takes whatever names it is given."""

    def forward(self, **named: Any) -> Any:
        return sum(named.values())


class Two(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return a - b, a + b


class Ready(nn.Module):
    """Can be scripted; `factor` keeps its default."""

    def forward(self, x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        if bool(x.sum() > 0):
            return x * factor
        return -x


class Lookup(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x}


def _convert(
    module: Any,
    folder: Path,
    inputs: tuple[str, ...] = ("x:float32[batch,3]",),
    outputs: tuple[str, ...] = ("output:float32[batch,3]",),
    recipe: str = "trace",
) -> Artifact:
    signature = parse_signature(inputs)
    model = TorchModel(
        module,
        signature,
        examples={name: X.numpy() + place for place, name in enumerate(signature.input_names)},
        batch_declared=True,
        device="cpu",
    )
    signature = Signature(signature.inputs, tuple(map(parse_tensor, outputs)))
    prepared = Prepared("m", "python", "torch", signature, Batching(8))
    return TARGET.convert(model, prepared, recipe, folder, ConvertOptions())


def _run(folder: Path, artifact: Artifact, **feeds: Any) -> dict[str, Any]:
    return TARGET.open(folder, artifact, "cpu")(feeds)


def _file(folder: Path) -> Any:
    return torch.jit.load(folder / "model.pt")  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("script", "recipe"), [(False, "trace"), (True, "script")], ids=["trace", "script"]
)
def test_recipes(script: bool, recipe: str) -> None:
    assert TARGET.recipes(ConvertOptions(script=script)) == (recipe,)


def test_arguments_keep_their_names_and_outputs_are_counted(tmp_path: Path) -> None:
    inputs = ("a:float32[batch,3]", "b:float32[batch,3]")
    outputs = ("output_0:float32[batch,3]", "output_1:float32[batch,3]")
    artifact = _convert(Two(), tmp_path, inputs, outputs)
    assert artifact.wire_names == {"output_0": "OUTPUT__0", "output_1": "OUTPUT__1"}
    assert [a.name for a in _file(tmp_path).forward.schema.arguments] == ["self", "a", "b"]
    assert TARGET.inspect(tmp_path / "model.pt").input_names == ("a", "b")
    answer = _run(tmp_path, artifact, b=np.ones((1, 3), "f"), a=np.zeros((1, 3), "f"))
    assert {name: value.tolist() for name, value in answer.items()} == {
        "output_0": [[-1] * 3],
        "output_1": [[1] * 3],
    }


@pytest.mark.parametrize("name", ["class", "in/put:0", "1st", "forward", "größe", "a b"])
def test_names_that_are_no_arguments_are_counted_too(tmp_path: Path, name: str) -> None:
    inputs = (f"{name}:float32[batch,3]", "fine:float32[batch,3]")
    artifact = _convert(Open(), tmp_path, inputs)
    assert artifact.wire_names == {name: "INPUT__0", "fine": "INPUT__1", "output": "OUTPUT__0"}
    answer = _run(tmp_path, artifact, **{name: X.numpy(), "fine": X.numpy()})
    assert np.array_equal(answer["output"], X.numpy() * 2)


@pytest.mark.parametrize("name", ["flat", "module", "training", "input", "None_", "_"])
def test_names_that_are_unusual_arguments(tmp_path: Path, name: str) -> None:
    artifact = _convert(Open(), tmp_path, (f"{name}:float32[batch,3]",))
    assert artifact.wire(name) == name
    assert np.array_equal(_run(tmp_path, artifact, **{name: X.numpy()})["output"], X.numpy())


def test_a_name_for_an_input_and_an_output_is_sent_by_two(tmp_path: Path) -> None:
    artifact = _convert(Call(lambda x: {"y": x}), tmp_path, outputs=("y:float32[batch,3]",))
    names = [artifact.wire(name) for name in ("x", "y")]
    assert names == ["x", "OUTPUT__0"]


def test_sizes_are_taken_from_the_input(tmp_path: Path) -> None:
    module = Call(lambda x: x.reshape(x.shape[0], -1) + torch.zeros(x.shape[0], 1))
    artifact = _convert(module, tmp_path)
    assert _run(tmp_path, artifact, x=np.ones((7, 3), "f"))["output"].shape == (7, 3)


def test_a_frozen_value_is_noted_with_its_line(tmp_path: Path) -> None:
    def branch(x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x

    (note,) = _convert(Call(branch), tmp_path).notes
    assert f"{__file__}:{branch.__code__.co_firstlineno + 1}" in note


def test_an_input_that_is_not_read_is_noted(tmp_path: Path) -> None:
    class First(nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return a * 2

    inputs = ("a:float32[batch,3]", "b:float32[batch,3]")
    (note,) = _convert(First(), tmp_path, inputs).notes
    assert "'b'" in note


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_of_tritons_backend(tmp_path: Path, dtype: str) -> None:
    if dtype in SERVED_DTYPES:
        assert _convert(Call(lambda x: x * 2), tmp_path, outputs=(f"output:{dtype}[batch,3]",))
        return
    with pytest.raises(ConversionError, match=f"no type for 'output': {dtype}"):
        _convert(Call(lambda x: x * 2), tmp_path, outputs=(f"output:{dtype}[batch,3]",))
    assert not list(tmp_path.iterdir())


def test_a_script_keeps_its_branches(tmp_path: Path) -> None:
    artifact = _convert(Ready(), tmp_path, recipe="script")
    for sign in (1, -1):
        x = X.numpy() * sign
        assert np.array_equal(_run(tmp_path, artifact, x=x)["output"], np.abs(x) * (1.5 + sign / 2))


@pytest.mark.parametrize(
    ("module", "recipe", "says"),
    [
        pytest.param(Call(lambda x: x.nonsense()), "trace", "trace refused", id="a mistake"),
        pytest.param(Call(lambda x: x), "script", "script refused", id="no script"),
        pytest.param(Lookup(), "script", "returns a dict", id="a dict"),
        pytest.param(Two(), "script", r"takes \['a', 'b'\], not \['x'\]", id="other arguments"),
    ],
)
def test_what_is_refused(tmp_path: Path, module: nn.Module, recipe: str, says: str) -> None:
    with pytest.raises(ConversionError, match=says) as caught:
        _convert(module, tmp_path, recipe=recipe)
    assert caught.value.remedy.endswith(".")


def test_other_frameworks_are_refused() -> None:
    with pytest.raises(ConversionError, match="made from a torch model"):
        TARGET.recipes(ConvertOptions(), "tensorflow")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    artifact = _convert(Ready(), tmp_path)
    with pytest.raises(Unavailable, match="no GPU"):
        TARGET.open(tmp_path, artifact, "cuda")
    assert TARGET.open(tmp_path, artifact, "auto").device == "cpu"


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda path: torch.save({"a": X}, path), id="a state dict"),
        pytest.param(lambda path: path.mkdir(), id="a folder"),
        pytest.param(lambda path: path.write_text("version https://git-lfs"), id="a pointer"),
        pytest.param(lambda _: None, id="nothing"),
    ],
)
def test_what_is_no_torchscript(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "model.pt")
    with pytest.raises(UsageProblem, match="can't be read as TorchScript"):
        TARGET.inspect(tmp_path / "model.pt")
