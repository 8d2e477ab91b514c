from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from tconv.convert.base import SourceRequest
from tconv.convert.registry import find_source
from tconv.errors import TconvError, UsageProblem
from tconv.report import Passed, Prepared
from tconv.validate.judge import judge
from tconv.validate.reference import prepare
from tconv.validate.samples import Check, SampleStore
from tconv.validate.sampling import KINDS
from tconv.validate.tolerance import Tolerances

pytestmark = pytest.mark.filterwarnings("ignore")

HEAD = """
import torch
from torch import nn

class Call(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function, self.calls = function, 0

    def forward(self, x):
        self.calls += 1
        return self.function(self, x)

def factory():
    torch.manual_seed(0)
    weight = torch.randn(3, 40)
    return Call(lambda self, x: {body}){example}
"""
NUMBERS = iter(range(1000))


class Study:
    """What `prepare` left of a function of x."""

    def __init__(self, folder: Path, body: str, example: str, *inputs: str, **more: Any) -> None:
        # Files of one name would be one module.
        path = folder / f"source_{next(NUMBERS)}.py"
        given = f', {{"x": {example}}}' if example else ""
        path.write_text(HEAD.format(body=body, example=given))
        self.request = SourceRequest(f"{path}:factory", inputs, device="cpu")
        self.store = SampleStore(folder / "samples")
        built = prepare(msgspec.to_builtins(self.request), str(folder), more.get("asked"))
        self.prepared = msgspec.convert(built, Prepared)
        self.index = self.store.read_index()

    def model(self) -> Any:
        return find_source(self.request.model).load(self.request, Path())

    def pools(self, kind: str) -> list[dict[str, int]]:
        return [pool.sizes for pool in self.index.pools if pool.kind == kind]


Start = Callable[..., Study]
ROWS = "torch.randn(2, 3)"


@pytest.fixture
def study(tmp_path: Path) -> Start:
    folders = itertools.count()

    def start(body: str, *inputs: str, example: str = ROWS, **more: Any) -> Study:
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return Study(folder, body, example, *inputs, **more)

    return start


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_the_stored_answers_are_the_sources(study: Start) -> None:
    studied = study("(x @ weight, x > 0)", "x:float32[batch,n=1..9,3]")
    model = studied.model()
    for pool in studied.index.pools:
        check = Check(pool.name)
        feeds = studied.store.read(check, "in", studied.index.inputs)
        stored = studied.store.read(check, "out", studied.index.outputs)
        answer = model.run(feeds)
        assert list(answer) == list(stored) == ["output_0", "output_1"]
        for name, value in answer.items():
            assert np.allclose(stored[name], value, atol=1e-6)


def test_every_size_and_kind_has_a_pool(study: Start) -> None:
    studied = study("x * 2", "x:float32[batch,n=1..9,3]", example="torch.randn(2, 5, 3)")
    assert studied.pools("example") == [{"batch": 2, "n": 5}]
    sizes = studied.pools("ordinary")
    assert {size["n"] for size in sizes} == {1, 5, 9}
    assert {size["batch"] for size in sizes} == {8}
    assert {pool.kind for pool in studied.index.pools} == {"example", *KINDS}
    assert len({pool.name for pool in studied.index.pools}) == len(studied.index.pools)


def test_whole_numbers_have_one_kind(study: Start) -> None:
    studied = study("x + 1", example="torch.randint(0, 9, (2, 3))")
    assert {pool.kind for pool in studied.index.pools} == {"example", "ordinary"}


@pytest.mark.parametrize(
    ("body", "inputs", "outputs"),
    [
        pytest.param("x", ["x:float32[batch,3]"], ["batch,3"], id="batch"),
        pytest.param("x.sum(-1)", ["x:float32[batch,n=1..9]"], ["batch"], id="summed"),
        pytest.param("x.mT @ x", ["x:float32[batch,n=1..9,3]"], ["batch,3,3"], id="constant"),
        pytest.param("x @ x.mT", ["x:float32[batch,n=1..9,3]"], ["batch,n,n"], id="twice"),
        pytest.param(
            "x.mT", ["x:float32[batch,a=1..9,b=2..5]"], ["batch,b,a"], id="axes exchanged"
        ),
        pytest.param(
            "torch.cat([x, x], 1)", ["x:float32[batch,n=1..9]"], ["batch,output_dim1"], id="doubled"
        ),
        pytest.param("x.new_ones(8)", ["x:float32[4,2]"], ["8"], id="fixed sizes"),
        pytest.param("x.sum()", ["x:float32[4,2]"], [""], id="scalar"),
    ],
)
def test_the_shapes_of_outputs(
    study: Start, body: str, inputs: list[str], outputs: list[str]
) -> None:
    studied = study(body, *inputs, example="")
    found = [",".join(getattr(d, "name", str(d)) for d in s.shape) for s in studied.index.outputs]
    assert found == outputs
    assert studied.prepared.signature.outputs == studied.index.outputs


def test_one_study_is_like_the_other(study: Start) -> None:
    one, two = (study("x @ weight", "x:float32[batch,3]") for _ in range(2))
    assert one.index == two.index
    assert one.prepared.fingerprint == two.prepared.fingerprint
    files = [sorted(s.store.folder.rglob("*.npy")) for s in (one, two)]
    assert [f.read_bytes() for f in files[0]] == [f.read_bytes() for f in files[1]]


def test_noise_is_the_sources_own_rounding(study: Start) -> None:
    exact, rough = study("x * 2").prepared, study("(x + 300) - 300").prepared
    assert exact.noise == {"output": 0.0}
    assert 1e-6 < rough.noise["output"] < 1e-4


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param("x * (1 if x.dtype == torch.float32 else 2)", "no noise was used", id="path"),
        pytest.param(
            "x if x.dtype == torch.float32 else 1 / 0", "failed (ZeroDivisionError)", id="failure"
        ),
    ],
)
def test_what_is_no_noise_is_noted(study: Start, body: str, says: str) -> None:
    prepared = study(body).prepared
    assert prepared.noise == {}
    assert says in prepared.notes[0]


def test_indices_come_with_their_scores(study: Start) -> None:
    studied = study("(x @ weight).topk(4)")
    assert studied.index.score_axes == {"output_1": 1}
    values = studied.store.read_one(Check(studied.index.pools[-1].name), "score", 1, "")
    assert values.shape == (8, 40)


def test_scales_are_of_ordinary_values(study: Start) -> None:
    scales = study("(x.clamp(-1, 1), x > 0, x.masked_fill(x < 0, -1e9))").index.scales
    assert scales["output_0"] == 1.0
    assert "output_1" not in scales
    assert scales["output_2"] < 10


def test_a_judge_agrees_with_the_source(study: Start) -> None:
    studied = study("(x @ weight, (x @ weight).argsort(-1))")
    model = studied.model()
    verdict = judge(_Runner(model), studied.store, studied.prepared, Tolerances())
    assert isinstance(verdict, Passed)
    assert verdict.checks == len(studied.index.checks)


class _Runner:
    device = "cpu"

    def __init__(self, model: Any) -> None:
        self._model = model

    def __call__(self, feeds: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self._model.run(feeds)
        return answer


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        pytest.param("x + torch.randn(3)", TconvError, "stochastic", id="noise"),
        pytest.param("x + self.calls", TconvError, "stochastic", id="a counter"),
        pytest.param("torch.dropout(x, 0.5, True)", TconvError, "differ in 'output'", id="dropout"),
        pytest.param("(x, x * float('nan'))", TconvError, "'output_1' is NaN", id="NaN"),
        pytest.param("x.nonsense()", UsageProblem, "AttributeError", id="a mistake"),
        pytest.param(
            "x if x.abs().max() < 3 else x.double()", TconvError, "outputs change", id="dtype"
        ),
        pytest.param("None", UsageProblem, "no tensor", id="nothing"),
        pytest.param("x.to_sparse()", UsageProblem, "sparse", id="sparse"),
    ],
)
def test_sources_that_are_refused(
    study: Start, body: str, kind: type[TconvError], says: str
) -> None:
    with pytest.raises(TconvError, match=says) as caught:
        study(body)
    assert type(caught.value) is kind
    assert caught.value.remedy


def test_an_output_may_be_nan_in_places(study: Start) -> None:
    assert study("(x.log(), x / 0)").prepared.batching.max_size == 8


def test_a_size_that_the_source_refuses_is_named(study: Start) -> None:
    with pytest.raises(UsageProblem, match=r"can't run at n 9, batch 8 \(ordinary values\)"):
        study("x if x.shape[1] < 9 else 1 / 0", "x:float32[batch,n=1..9]", example="")


def test_a_rank_that_changes_is_refused(study: Start) -> None:
    with pytest.raises(TconvError, match="a server needs one rank"):
        study("x.squeeze(1)", "x:float32[batch,n=1..9]", example="")
