"""What is replaced for the exporters computes the same, and is what lets them succeed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tconv.convert.onnx_from_torch import export_dynamo, export_torchscript
from tconv.convert.torch_model import TorchModel
from tconv.convert.torch_modes import export_friendly_mode, inlined_functions
from tconv.spec import Signature, parse_signature, parse_tensor

# torch's own exporters and tracer are deprecated in favour of one another.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Attention(torch.nn.Module):
    """Attention over a mask that may leave a query without any key."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        seen = mask.bool()[:, None, None, :]
        heads = x[:, None].repeat_interleave(2, dim=1)
        return scaled_dot_product_attention(heads, heads, heads, attn_mask=seen)


class Inverted(torch.nn.Module):
    def forward(self, mask: torch.Tensor) -> torch.Tensor:
        return (1.0 - mask) * -9.0


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * 2 if not ctx.needs_input_grad[0] else x


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor, times: int = 3) -> torch.Tensor:
        return x * times

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.ends = inputs, output


@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda x: x.repeat_interleave(3, dim=-1), id="repeat along an axis"),
        pytest.param(lambda x: torch.repeat_interleave(x, 2, 0), id="repeat, by position"),
        pytest.param(lambda x: x.repeat_interleave(2), id="repeat all"),
        pytest.param(
            lambda x: x.repeat_interleave(torch.tensor([1, 2]), dim=0), id="repeat by a tensor"
        ),
        pytest.param(lambda x: 1.0 - x, id="one minus a number"),
        pytest.param(lambda x: 1.0 - x.long(), id="one minus a whole number"),
        pytest.param(lambda x: 1 - x.long(), id="a whole number minus a whole number"),
        pytest.param(lambda x: 1.0 - x.to(torch.complex64), id="one minus a complex number"),
        pytest.param(lambda x: scaled_dot_product_attention(x, x, x), id="attention to all"),
        pytest.param(
            lambda x: scaled_dot_product_attention(x, x, x, torch.tensor([[True], [False]])),
            id="attention to nothing",
        ),
        pytest.param(
            lambda x: scaled_dot_product_attention(x, x, x, torch.tensor([[0.0], [-math.inf]])),
            id="attention by numbers",
        ),
        pytest.param(
            lambda x: scaled_dot_product_attention(x, x, x, is_causal=True), id="causal attention"
        ),
    ],
)
def test_computes_the_same(compute: Any) -> None:
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    expected = compute(x)
    with export_friendly_mode():
        found = compute(x)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("export", [export_dynamo, export_torchscript])
def test_a_query_that_sees_nothing_is_zero_in_the_graph_too(export: Any, tmp_path: Path) -> None:
    signature = parse_signature(["x:float32[batch,n,4]", "mask:int64[batch,n]"])
    random = np.random.default_rng(0)
    example = {
        "x": random.standard_normal((3, 5, 4)).astype(np.float32),
        "mask": np.ones((3, 5), np.int64),
    }
    found = _exported(Attention(), signature.inputs, example, export, tmp_path)
    feeds = {
        "x": random.standard_normal((2, 7, 4)).astype(np.float32),
        "mask": np.array([[0] * 7, [0, 1, 1, 0, 0, 0, 0]]),
    }
    expected = Attention()(*(torch.from_numpy(value) for value in feeds.values())).numpy()
    assert not expected[0].any()
    np.testing.assert_allclose(found.run(None, feeds)[0], expected, atol=1e-6)


@pytest.mark.parametrize("export", [export_dynamo, export_torchscript])
def test_one_minus_a_mask_can_be_exported(export: Any, tmp_path: Path) -> None:
    signature = parse_signature(["mask:int64[batch,n]"])
    example = {"mask": np.ones((3, 5), np.int64)}
    found = _exported(Inverted(), signature.inputs, example, export, tmp_path)
    np.testing.assert_array_equal(found.run(None, {"mask": np.array([[0, 1]])})[0], [[-9, 0]])


def _exported(module: Any, inputs: Any, example: Any, export: Any, folder: Path) -> Any:
    model = TorchModel(module, Signature(inputs), examples=example, batch_declared=True)
    model.run(example)
    shape = "[batch,2,n,4]" if len(inputs) > 1 else "[batch,n]"
    whole = Signature(inputs, (parse_tensor(f"output:float32{shape}"),))
    export(model, whole, folder / "model.onnx", None)
    return onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("function", "factor"), [(Doubled, 2), (Tripled, 3)], ids=["with a context", "without"]
)
def test_a_trace_holds_no_call_into_python(function: Any, factor: int, tmp_path: Path) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function.apply(x)

    with torch.no_grad(), inlined_functions():
        traced = torch.jit.trace(Module(), torch.ones(2))
    torch.jit.save(traced, tmp_path / "model.pt")
    assert torch.jit.load(tmp_path / "model.pt")(torch.ones(3)).tolist() == [factor] * 3


def test_functions_are_their_own_again_afterwards() -> None:
    before = torch.autograd.Function.__dict__["apply"]
    with pytest.raises(ZeroDivisionError), inlined_functions():
        raise ZeroDivisionError
    assert torch.autograd.Function.__dict__["apply"] is before
