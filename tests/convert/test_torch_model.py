from __future__ import annotations

import dataclasses
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tconv.convert.base import HALF, SIGN, WHOLE
from tconv.convert.torch_model import TorchModel, choose_device
from tconv.convert.torch_outputs import name_outputs
from tconv.convert.torch_tensors import to_array, to_tensor
from tconv.errors import UsageProblem
from tconv.spec import DTYPES, parse_signature
from tconv.validate.samples import numpy_dtype

NUMERIC = [dtype for dtype in DTYPES if dtype != "string"]
X = torch.arange(6.0).reshape(2, 3)


class Call(nn.Module):
    """A module that is a function of x."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def _model(module: Any, text: str = "x:float32[batch,3]", **more: Any) -> TorchModel:
    return TorchModel(
        module, parse_signature([text]), examples={}, batch_declared=True, device="cpu", **more
    )


def _run(function: Callable[[Any], Any]) -> dict[str, Any]:
    return _model(Call(function)).run({"x": X.numpy()})


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", NUMERIC)
def test_tensors_and_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2)
    array = array.astype(numpy_dtype(dtype))
    tensor = to_tensor(array)
    assert str(tensor.dtype) == f"torch.{dtype}"
    back = to_array(tensor)
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    assert np.array_equal(back, array)


def test_a_tensor_has_memory_of_its_own() -> None:
    array = np.zeros(3, "float32")
    to_tensor(array).add_(1)
    assert not array.any()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda x: x.T, id="transposed"),
        pytest.param(lambda x: x[:, ::2], id="strided"),
        pytest.param(lambda x: x[:1].expand(4, 3), id="expanded"),
        pytest.param(lambda x: torch.complex(x, x).conj().imag, id="lazily negated"),
        pytest.param(lambda x: x.clone().requires_grad_(), id="with a gradient"),
        pytest.param(lambda x: x.bfloat16().T, id="bfloat16, transposed"),
    ],
)
def test_tensors_that_are_no_plain_block_of_memory(make: Callable[[Any], Any]) -> None:
    tensor = make(X)
    assert to_array(tensor).astype("float32").tolist() == tensor.detach().float().tolist()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda x: x.to_sparse(), "sparse_coo tensor", id="sparse"),
        pytest.param(lambda x: torch.complex(x, x), "complex64", id="complex"),
        pytest.param(lambda x: x.to(torch.float8_e4m3fn), "float8_e4m3fn", id="float8"),
        pytest.param(
            lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "qint8", id="quantised"
        ),
        pytest.param(
            lambda x: torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged),
            "nested",
            id="nested",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_no_server_could_hold(make: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(UsageProblem, match=says) as caught:
        to_array(make(X), "The output 'y'")
    assert caught.value.problem.startswith("The output 'y' is a")


Pair = namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass
class Result:
    logits: Any
    hidden: Any = None


@pytest.mark.parametrize(
    ("make", "names"),
    [
        pytest.param(lambda x: x, ["output"], id="tensor"),
        pytest.param(lambda x: (x, x), ["output_0", "output_1"], id="tuple"),
        pytest.param(lambda x: [x], ["output_0"], id="list"),
        pytest.param(lambda x: {"b": x, "a": x}, ["b", "a"], id="dict, in its own order"),
        pytest.param(lambda x: OrderedDict(b=x, a=x), ["b", "a"], id="ordered dict"),
        pytest.param(lambda x: Pair(x, x), ["first", "second"], id="named tuple"),
        pytest.param(lambda x: Result(x, x), ["logits", "hidden"], id="dataclass"),
        pytest.param(
            lambda x: {"out": (x, [x, {"z": x}])},
            ["out_0", "out_1_0", "out_1_1_z"],
            id="nested",
        ),
        pytest.param(lambda x: (x, {"y": x}), ["output_0", "output_1_y"], id="dict in a tuple"),
        pytest.param(lambda x: {0: x, 1: x}, ["0", "1"], id="keys that are numbers"),
        pytest.param(lambda x: {"x": x, "y": x}, ["x_out", "y"], id="an input's name"),
    ],
)
def test_outputs_are_named_by_their_path(make: Callable[[Any], Any], names: list[str]) -> None:
    assert list(_run(make)) == names


@pytest.mark.parametrize(
    ("make", "says"),
    [
        pytest.param(lambda x: {"a": {"b": x}, "a_b": x}, r"called \['a_b'\]", id="one name"),
        pytest.param(lambda x: {"x": x, "x_out": x}, r"called \['x_out'\]", id="one name, made"),
        pytest.param(lambda _: None, "no tensor but NoneType", id="none"),
        pytest.param(lambda _: (), "no tensor but tuple", id="nothing"),
        pytest.param(lambda _: 3.0, "no tensor but float", id="number"),
        pytest.param(lambda x: x.numpy(), "no tensor but ndarray", id="array"),
        pytest.param(lambda x: {"y": x.numpy()}, "no tensor but dict", id="dict of arrays"),
    ],
)
def test_outputs_that_have_no_names(make: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        _run(make)


def test_what_is_no_tensor_is_left_out_with_its_reason() -> None:
    model = _model(Call(lambda x: Result(x, None)))
    assert list(model.run({"x": X.numpy()})) == ["logits"]
    assert [(o.name, o.reason) for o in model.omitted] == [("hidden", "it is None")]
    model = _model(Call(lambda x: (x, 3, x.numpy())))
    assert list(model.run({"x": X.numpy()})) == ["output_0"]
    assert [o.reason for o in model.omitted] == [
        "it is no tensor but int",
        "it is no tensor but ndarray",
    ]


def test_an_array_alone_would_leave_no_output() -> None:
    with pytest.raises(UsageProblem):
        list(name_outputs({"y": np.zeros(3)}, ()))


def test_an_output_that_is_an_input_or_another_output_stands_alone() -> None:
    model = _model(Call(lambda x: (x, x, y := x + 1, y)))
    values = model.flat(tensor := torch.ones(2, 3))
    assert len({value.data_ptr() for value in (tensor, *values)}) == 5


def test_a_module_may_change_its_input_in_place() -> None:
    x = X.numpy().copy()
    model = _model(Call(lambda x: x.add_(1)))
    assert np.array_equal(model.run({"x": x})["output"], x + 1)
    assert np.array_equal(x, X.numpy())


def test_the_model_runs_in_eval_mode_without_gradients_and_weights_stay() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.9))
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    model = _model(module, "input:float32[batch,3]")
    one, two = (model.run({"input": X.numpy()})["output"] for _ in range(2))
    assert np.array_equal(one, two)
    model.run_double({"input": X.numpy()})
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert all(parameter.grad is None for parameter in module.parameters())


def test_float64_shows_what_float32_rounds() -> None:
    model = _model(Call(lambda x: (x + 1e-9) - x))
    x = np.ones((1, 3), "float32")
    assert not model.run({"x": x})["output"].any()
    double = model.run_double({"x": x})["output"]
    assert double.dtype == np.float64
    assert double == pytest.approx(1e-9, rel=1e-6)


def test_scores_of_indices() -> None:
    model = _model(Call(lambda x: {"values": x.topk(2).values, "best": x.argmax(0)}))
    (axis_of,) = model.scores({"x": X.numpy()}).items()
    assert axis_of[0] == "best"
    assert axis_of[1][1] == 0
    assert np.array_equal(axis_of[1][0], X.numpy())


@pytest.mark.parametrize(
    ("function", "values", "cut"),
    [
        pytest.param(lambda x: x > 2, X - 2, SIGN, id="flag"),
        pytest.param(lambda x: x.less_equal(2), X - 2, SIGN, id="flag by name"),
        pytest.param(lambda x: torch.lt(x, other=x * 0.5), X - X * 0.5, SIGN, id="two tensors"),
        pytest.param(lambda x: (x * 1.5).int(), X * 1.5, WHOLE, id="cast"),
        pytest.param(lambda x: (x * 1.5).to(torch.uint8), X * 1.5, WHOLE, id="cast by to"),
        pytest.param(lambda x: (x * 1.5).round().long(), X * 1.5, HALF, id="rounded"),
        pytest.param(lambda x: (x * 1.5).floor().to(dtype=torch.int8), X * 1.5, WHOLE, id="floor"),
    ],
)
def test_what_flags_and_whole_numbers_were_cut_from(
    function: Callable[[Any], Any], values: Any, cut: int
) -> None:
    model = _model(Call(function))
    (found,) = model.scores({"x": X.numpy()}).values()
    assert np.array_equal(found[0], values.numpy())
    assert found[1] == cut


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x.long() + 1, id="changed since"),
        pytest.param(lambda x: x.long() > 1, id="of whole numbers"),
        pytest.param(lambda x: x.double(), id="no cut"),
    ],
)
def test_what_is_not_cut_from_real_numbers(function: Callable[[Any], Any]) -> None:
    assert _model(Call(function)).scores({"x": X.numpy()}) == {}


def _weights() -> nn.Module:
    module = nn.Module()
    module.weight = nn.Parameter(torch.arange(10000.0))
    module.register_buffer("spin", torch.complex(X, X))
    module.register_buffer("bits", torch.arange(5, dtype=torch.uint8))
    module.register_buffer("empty", torch.zeros(0))
    module.register_buffer("scalar", torch.tensor(3.0, dtype=torch.bfloat16))
    module.register_buffer("eighth", X.to(torch.float8_e4m3fn))
    module.register_buffer("sparse", torch.eye(3).to_sparse())
    return module


def _fingerprint(module: nn.Module) -> str:
    return _model(module).fingerprint()


def test_equal_weights_have_one_fingerprint() -> None:
    assert _fingerprint(_weights()) == _fingerprint(_weights())


@pytest.mark.parametrize("name", ["weight", "spin", "bits", "scalar", "eighth", "sparse"])
def test_the_fingerprint_tells_weights_apart(name: str) -> None:
    module = _weights()
    tensor = getattr(module, name)
    tensor = tensor.float() if name == "eighth" else tensor.detach()
    changed = (tensor + tensor).to(getattr(module, name).dtype)
    setattr(module, name, nn.Parameter(changed) if name == "weight" else changed)
    assert _fingerprint(module) != _fingerprint(_weights())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param(lambda: nn.LazyLinear(3), "not initialised", id="lazy"),
        pytest.param(lambda: nn.Linear(3, 3, device="meta"), "meta device", id="meta"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy")
def test_weights_without_values_are_refused(change: Callable[[], Any], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        _model(change())


def test_constants_are_held_fixed() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, *, factor: float) -> Any:
            return x * factor

    model = _model(Scaled(), constants={"factor": 3.0})
    assert np.array_equal(model.run({"x": X.numpy()})["output"], X.numpy() * 3)


def test_float32_is_float32_on_a_gpu_too() -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    assert choose_device("cpu") == "cpu"
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_widening_leaves_the_source_alone() -> None:
    module = nn.Linear(3, 3).bfloat16()
    model = _model(module, "input:bfloat16[batch,3]")
    x = to_array(X.bfloat16())
    (spec,) = parse_signature(["output:bfloat16[batch,3]"]).inputs
    wide = model.widened((spec,))
    assert wide is not model
    (answer,) = wide.flat(*wide.tensors({"input": x}))
    assert answer.dtype == torch.bfloat16
    assert next(wide.flat.parameters()).dtype == torch.float32
    assert module.weight.dtype == torch.bfloat16
    assert _model(nn.Linear(3, 3), "input:float32[batch,3]").widened(()).narrowest == "float32"
