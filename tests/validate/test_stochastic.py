"""What differs from itself is told apart by name, with the operator and the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tconv.convert.base import Arrays, SourceRequest
from tconv.errors import TconvError
from tconv.report import Failed, Passed, Prepared
from tconv.validate.dataset import DataRequest
from tconv.validate.judge import judge
from tconv.validate.reference import prepare
from tconv.validate.samples import SampleStore
from tconv.validate.tolerance import Tolerances

pytestmark = pytest.mark.filterwarnings("ignore")

HEAD = """
import numpy as np
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x):
        return {body}

    def count(self):
        self.calls += 1
        return self.calls

def factory():
    return Model(), {{"x": torch.randn(4, 6)}}
"""
LINE = 13


def _prepare(folder: Path, body: str, *, allow: bool = False) -> Prepared:
    (folder / "model.py").write_text(HEAD.format(body=body))
    built = prepare(
        msgspec.to_builtins(SourceRequest(f"{folder}/model.py:factory", device="cpu")),
        str(folder),
        None,
        msgspec.to_builtins(DataRequest(allow_stochastic=allow)),
    )
    return msgspec.convert(built, Prepared)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("F.dropout(x, 0.5)", "live dropout: dropout"),
        ("F.dropout(x, 0.5, True)", "live dropout: dropout"),
        ("F.alpha_dropout(x, 0.5, training=True)", "live dropout: alpha_dropout"),
        ("x + torch.randn_like(x)", "sampling: randn_like"),
        ("x + torch.rand(6)", "sampling: rand"),
        ("x * torch.bernoulli(torch.full_like(x, 0.5))", "sampling: bernoulli"),
        ("torch.multinomial(x.softmax(-1), 3)", "sampling: multinomial"),
        ("x + torch.empty(6).normal_()", "sampling: normal_"),
        ("x + torch.distributions.Normal(x, 1.0).sample()", "sampling: normal"),
    ],
)
def test_the_operator_and_its_line_are_named(body: str, cause: str, tmp_path: Path) -> None:
    said = rf"The model is stochastic: .* differ in 'output' \({cause}.* at .*model.py:{LINE}"
    with pytest.raises(TconvError, match=said) as error:
        _prepare(tmp_path, body)
    assert error.value.exit_code == 1
    assert "--allow-stochastic" in error.value.remedy


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("x + self.count()", "hidden state between calls"),
        ("x + self.total.add_(1)", "hidden state between calls"),
        ("x + float(np.random.rand())", "random numbers"),
    ],
)
def test_state_and_draws_outside_torch_are_told_apart(
    body: str, cause: str, tmp_path: Path
) -> None:
    with pytest.raises(TconvError, match=re.escape(f"'output' ({cause})")):
        _prepare(tmp_path, body)


@pytest.mark.parametrize(
    "body", ["F.dropout(x, 0.5, self.training)", "x + torch.zeros(6).normal_() * 0", "x * 2"]
)
def test_what_draws_nothing_that_shows_is_fine(body: str, tmp_path: Path) -> None:
    assert not _prepare(tmp_path, body).stochastic


def test_the_statistics_of_a_batch_are_named(tmp_path: Path) -> None:
    reason = _prepare(tmp_path, "F.batch_norm(torch.cat([x, x]), None, None, training=True)")
    assert not reason.batching.max_size
    body = "F.batch_norm(x.unsqueeze(-1).repeat(1, 1, 2), None, None, training=True)"
    mixed = _prepare(tmp_path, body)
    assert f"batch statistics: batch_norm at {tmp_path}/model.py:{LINE}" in mixed.batching.reason


def _judge(folder: Path, prepared: Prepared, function: Callable[[Any], Any]) -> Any:
    class Runner:
        device = "cpu"

        def __call__(self, feeds: Arrays) -> dict[str, Any]:
            return {"output": function(np.asarray(feeds["x"]))}

    return judge(Runner(), SampleStore(folder / "samples"), prepared, Tolerances())


def test_a_waiver_compares_the_form_alone(tmp_path: Path) -> None:
    prepared = _prepare(tmp_path, "x + torch.randn_like(x)", allow=True)
    assert prepared.stochastic["output"].startswith("sampling: randn_like at ")
    assert any("were not compared" in note for note in prepared.notes)

    def noisy(x: Any) -> Any:
        return x + np.random.standard_normal(x.shape).astype("float32")

    verdict = _judge(tmp_path, prepared, noisy)
    assert isinstance(verdict, Passed)
    assert verdict.outputs[0].waived
    assert isinstance(_judge(tmp_path, prepared, lambda x: noisy(x)[:, 1:]), Failed)
    assert isinstance(_judge(tmp_path, prepared, lambda x: noisy(x).astype("float64")), Failed)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("x + torch.randn_like(x)", r"Frozen noise: .* \(sampling: randn_like at .*model.py"),
        ("x + self.count()", r"Frozen state: .* \(hidden state between calls\)"),
    ],
)
def test_what_was_frozen_is_no_pass_even_with_a_waiver(
    body: str, said: str, tmp_path: Path
) -> None:
    verdict = _judge(tmp_path, _prepare(tmp_path, body, allow=True), lambda x: x + 1)
    assert isinstance(verdict, Failed)
    assert re.match(said, verdict.problem)
    assert verdict.exit_code == 1
