from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tconv.convert.torch_model import TorchModel
from tconv.errors import TconvError, UsageProblem
from tconv.report import Batching
from tconv.spec import Axis, parse_signature
from tconv.validate.batching import DEFAULT_LARGEST, Found, find_batch

pytestmark = pytest.mark.filterwarnings("ignore")


class Call(nn.Module):
    """A function of x, and of y where there is one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.function(x) if y is None else self.function(x, y)


def _source(
    function: Callable[..., Any],
    *texts: str,
    examples: dict[str, Any] | None = None,
    declared: bool = False,
) -> TorchModel:
    signature = parse_signature(texts or ["x:float32[batch,3]"])
    return TorchModel(
        Call(function),
        signature,
        examples=examples or {},
        batch_declared=declared,
        device="cpu",
    )


def _find(function: Callable[..., Any], *texts: str, asked: int | None = None) -> Found:
    return find_batch(_source(function, *texts), 0, asked)


WEIGHT = torch.randn(3, 300, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x * 2, id="elementwise"),
        pytest.param(lambda x: x @ WEIGHT, id="product"),
        pytest.param(lambda x: (x, x.sum(-1), x > 0), id="several outputs"),
        pytest.param(lambda x: (x @ WEIGHT).argsort(-1), id="indices whose scores are near"),
        pytest.param(lambda x: (x @ WEIGHT).topk(7), id="topk"),
        pytest.param(lambda x: torch.where(x.sum(1, True) > 0, x, -x), id="a choice of each row"),
        pytest.param(lambda x: x * float("nan"), id="NaN"),
        pytest.param(lambda x: x.unsqueeze(1).expand(-1, 4, -1), id="a new axis behind"),
        pytest.param(lambda x: x.half(), id="half"),
        pytest.param(lambda x: x.bfloat16(), id="bfloat16"),
    ],
)
def test_rows_that_do_not_know_of_each_other(function: Callable[[Any], Any]) -> None:
    found = _find(function)
    assert found.batching == Batching(DEFAULT_LARGEST)
    assert found.signature.inputs[0].shape[0] == Axis("batch", 1, DEFAULT_LARGEST)
    sizes = {sizes["batch"] for sizes, _ in found.observations}
    assert {1, 2, 3} < sizes


@pytest.mark.parametrize(
    ("function", "says"),
    [
        pytest.param(lambda x: x - x.mean(0), "rows influence each other", id="mean over rows"),
        pytest.param(lambda x: x - x.mean(0) * 1e-3, "rows influence", id="a little of the mean"),
        pytest.param(lambda x: x.cumsum(0), "rows influence each other", id="sum of those before"),
        pytest.param(lambda x: x.flip(0), "rows influence each other", id="other order"),
        pytest.param(lambda x: x if x.sum() > 0 else -x, "rows influence", id="choice of all"),
        pytest.param(lambda x: x if (x > 0).any() else -x, "rows influence", id="choice of any"),
        pytest.param(lambda x: x.softmax(0), "rows influence each other", id="softmax over rows"),
        pytest.param(lambda x: x.argmax(0), "has no batch axis", id="argmax over rows"),
        pytest.param(lambda x: x.argsort(0), "rows influence each other", id="order of rows"),
        pytest.param(lambda x: x.sum(), "has no batch axis", id="one number for all"),
        pytest.param(lambda x: x.T, "has no batch axis", id="transposed"),
        pytest.param(lambda x: x @ x.T, "has no batch axis", id="rows by rows"),
        pytest.param(lambda x: x[:1], "has no batch axis", id="first row alone"),
        pytest.param(lambda x: x.squeeze(), "has no batch axis", id="squeezed"),
        pytest.param(lambda x: (x, torch.ones(5)), "'output_1' has no batch axis", id="a constant"),
        pytest.param(
            lambda x: {"a": x, **({"b": x} if len(x) == 3 else {})}, "'b' is not there", id="more"
        ),
        pytest.param(
            lambda x: x + torch.arange(len(x))[:, None] * 1e-3, "rows influence", id="place"
        ),
    ],
)
def test_rows_that_know_of_each_other(function: Callable[[Any], Any], says: str) -> None:
    found = _find(function)
    assert found.batching.max_size == 0
    assert says in found.batching.reason
    assert not any(spec.is_batched for spec in found.signature.inputs)
    assert found.signature.inputs[0].shape == (Axis("n", 1, DEFAULT_LARGEST), 3)


@pytest.mark.parametrize("asked", [None, 4])
def test_a_batch_that_was_asked_for_must_be_one(asked: int | None) -> None:
    model = _source(lambda x: x - x.mean(0), declared=asked is None)
    with pytest.raises(TconvError, match="can't be batched: rows influence each other") as caught:
        find_batch(model, 0, asked)
    assert caught.value.exit_code == 1
    assert "--max-batch-size 0" in caught.value.remedy


@pytest.mark.parametrize("asked", [1, 4, 64])
def test_the_largest_batch_is_what_was_asked_for(asked: int) -> None:
    found = _find(lambda x: x * 2, asked=asked)
    assert found.batching == Batching(asked)
    assert found.signature.inputs[0].shape[0] == Axis("batch", 1, asked)


def test_no_batch_may_be_asked_for() -> None:
    found = find_batch(_source(lambda x: x * 2, declared=True), 0, 0)
    assert found.batching == Batching(0, "--max-batch-size 0 was asked for")


def _only_two(x: Any) -> Any:
    return x.reshape(2, 3)


def test_a_first_axis_that_cannot_vary_keeps_the_examples_size() -> None:
    model = _source(_only_two, examples={"x": np.zeros((2, 3), "float32")})
    found = find_batch(model, 0, None)
    assert found.signature.inputs[0].shape == (2, 3)
    assert "can't run with 8 along its first axis (RuntimeError" in found.batching.reason


def test_a_declared_axis_that_cannot_vary_is_a_wrong_request() -> None:
    with pytest.raises(UsageProblem, match="can't run with 8 along its first axis"):
        find_batch(_source(_only_two, declared=True), 0, None)


def test_an_error_that_explains_itself_is_passed_on() -> None:
    with pytest.raises(UsageProblem, match="no tensor"):
        _find(lambda _: None)


def test_all_inputs_need_a_batch() -> None:
    texts = ("x:float32[batch,3]", "y:float32[3]")
    found = _find(lambda x, y: x * y, *texts)
    assert found.batching == Batching(0, "the input 'y' has no batch axis")
    assert [spec.shape[0] for spec in found.signature.inputs] == [Axis("n", 1, 8), 3]


def test_rows_of_both_inputs_are_tried_together() -> None:
    texts = ("x:float32[batch,3]", "y:float32[batch,3]")
    assert _find(lambda x, y: x * y, *texts).batching == Batching(8)
    crossed = _find(lambda x, y: x * y.flip(0), *texts)
    assert "rows influence" in crossed.batching.reason


@pytest.mark.parametrize("text", ["x:bool[batch,3]", "x:int64[batch,3]", "x:float16[batch,3]"])
def test_inputs_of_any_dtype(text: str) -> None:
    assert _find(lambda x: x + x, text).batching == Batching(8)
    if "float" not in text:
        found = _find(lambda x: x ^ x.amax(0) if x.dtype == torch.bool else x + x.amax(0), text)
        assert found.batching.max_size == 0


def test_other_axes_keep_their_names_and_ranges() -> None:
    found = _find(lambda x: x * 2, "x:float32[batch,seq=3..9]")
    assert found.signature.inputs[0].shape == (Axis("batch", 1, 8), Axis("seq", 3, 9))
    assert all(3 <= sizes["seq"] <= 9 for sizes, _ in found.observations)
