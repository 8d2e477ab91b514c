from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tconv.errors import Unavailable, UsageProblem
from tconv.report import Batching, Failed, Passed, Prepared, Verdict
from tconv.spec import Signature, parse_tensor
from tconv.validate.judge import edge_checks, judge
from tconv.validate.samples import Check, Pool, SampleIndex, SampleStore
from tconv.validate.sampling import choose_rows
from tconv.validate.tolerance import Tolerances

Arrays = dict[str, Any]
SIGNATURE = Signature(
    (parse_tensor("x:float32[batch=1..4,2]"),),
    (parse_tensor("y:float32[batch=1..4,2]"), parse_tensor("i:int64[batch=1..4]")),
)
PREPARED = Prepared("m", "python", "torch", SIGNATURE, Batching(4), noise={"y": 1e-6})


def _f32(values: Any) -> Any:
    return np.array(values, "float32")


def _answer(feeds: Arrays) -> Arrays:
    return {"y": feeds["x"] * np.float32(3), "i": feeds["x"].argmax(1)}


class Answering:
    """A runner that answers as `function` does."""

    device = "here"

    def __init__(self, function: Callable[[Arrays], Arrays]) -> None:
        self.function = function

    def __call__(self, feeds: Any) -> Arrays:
        return self.function(dict(feeds))


@pytest.fixture
def store(tmp_path: Path) -> SampleStore:
    store = SampleStore(tmp_path)
    x = np.random.default_rng(0).standard_normal((4, 2)).astype("float32")
    answer = _answer({"x": x})
    store.write("ordinary", "in", {0: x})
    store.write("ordinary", "out", dict(enumerate(answer.values())))
    store.write("ordinary", "score", {1: x})
    store.write_index(
        SampleIndex(
            SIGNATURE.inputs,
            SIGNATURE.outputs,
            (Pool("ordinary", "ordinary", {"batch": 4}),),
            tuple(choose_rows("ordinary", 4)),
            {"y": 5.0},
            {"i": 1},
        )
    )
    return store


def _judge(
    store: SampleStore, function: Callable[[Arrays], Arrays], **more: Any
) -> Passed | Failed:
    return judge(Answering(function), store, PREPARED, more.pop("tolerances", Tolerances()), **more)


def test_what_agrees_passes(store: SampleStore) -> None:
    verdict = _judge(store, _answer)
    assert isinstance(verdict, Passed)
    assert (verdict.checks, verdict.device) == (4, "here")
    y, i = verdict.outputs
    assert (y.error, y.tolerance, y.noise, y.exact) == (0.0, 2e-5, 1e-6, False)
    assert (i.error, i.tolerance, i.noise, i.exact) == (0.0, 0.0, None, True)


def _with(**changes: Callable[[Any], Any]) -> Callable[[Arrays], Arrays]:
    """Answer rightly, but for what `changes` do to outputs."""

    def function(feeds: Arrays) -> Arrays:
        answer = _answer(feeds)
        return answer | {name: change(answer[name]) for name, change in changes.items()}

    return function


def _refuse(_: Arrays) -> Arrays:
    raise ValueError("a bad reshape\nand more")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        pytest.param(_with(y=lambda y: y + 0.1), "'y' differs in 8 of 8 elements", id="values"),
        pytest.param(_with(y=lambda y: y[:, :1]), "has shape [4, 1] instead of [4, 2]", id="shape"),
        pytest.param(_with(y=lambda y: y.astype("float64")), "has dtype float64", id="dtype"),
        pytest.param(_with(i=lambda i: 1 - i), "'i' differs in 4 of 4 elements", id="indices"),
        pytest.param(lambda f: _answer(f) | {"z": f["x"]}, "['y', 'i', 'z'] instead of", id="more"),
        pytest.param(lambda f: {"y": f["x"] * 3}, "outputs are ['y'] instead of", id="fewer"),
        pytest.param(
            lambda f: dict(reversed(_answer(f).items())), "are ['i', 'y'] instead", id="order"
        ),
        pytest.param(_refuse, "it can't be run: ValueError: a bad reshape.", id="refuses"),
    ],
)
def test_what_differs_fails(
    store: SampleStore, function: Callable[[Arrays], Arrays], says: str
) -> None:
    verdict = _judge(store, function)
    assert isinstance(verdict, Failed)
    assert says in verdict.problem
    assert verdict.problem.startswith("4 of 4 checks failed; the first (ordinary values, batch 4")


def test_a_verdict_comes_back_from_json(store: SampleStore) -> None:
    """An error without a number (another shape, a NaN, an index) must not spoil the record."""
    broken = (_with(y=lambda y: y[:, :1]), _with(i=lambda i: 1 - i), _refuse, _answer)
    for function in broken:
        verdict = _judge(store, function)
        assert msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict) == verdict


def test_no_number_is_given_where_none_was_measured(store: SampleStore) -> None:
    assert [check.error for check in _judge(store, _refuse).outputs] == [None, None]
    nan = _judge(store, _with(y=lambda y: y * np.float32("nan")))
    assert [check.error for check in nan.outputs] == [None, 0.0]


def test_only_the_wrong_output_is_named(store: SampleStore) -> None:
    verdict = _judge(store, _with(i=lambda i: 1 - i))
    assert isinstance(verdict, Failed)
    assert "'y'" not in verdict.problem


def _frozen_batch(feeds: Arrays) -> Arrays:
    if len(feeds["x"]) != 4:
        raise RuntimeError("cannot reshape")
    return _answer(feeds)


def test_what_depends_on_the_batch_is_advised(store: SampleStore) -> None:
    verdict = _judge(store, _frozen_batch)
    assert isinstance(verdict, Failed)
    assert verdict.problem.startswith("3 of 4 checks failed; the first (ordinary values, one row")
    assert "It depends on the batch" in verdict.remedy


def test_tolerances_are_used(store: SampleStore) -> None:
    stray = _with(y=lambda y: y * np.float32(1 + 1e-3))
    assert isinstance(_judge(store, stray), Failed)
    assert isinstance(_judge(store, stray, tolerances=Tolerances(1e-2)), Passed)
    assert isinstance(_judge(store, stray, tolerances=Tolerances(None, {"y": 1e-2})), Passed)
    with pytest.raises(UsageProblem, match="'Y' is for no output"):
        _judge(store, _answer, tolerances=Tolerances(None, {"Y": 1e-2}))


def test_indices_may_tie_by_rounding(store: SampleStore) -> None:
    store.write("ordinary", "score", {1: np.full((4, 2), 3, "float32")})
    assert isinstance(_judge(store, _with(i=lambda i: 1 - i)), Passed)


def test_nothing_to_check_is_no_pass(store: SampleStore) -> None:
    verdict = _judge(store, _answer, checks=())
    assert isinstance(verdict, Failed)
    assert verdict.problem == "There was nothing to check."


def test_no_outputs_are_no_pass(store: SampleStore) -> None:
    store.write_index(msgspec.structs.replace(store.read_index(), outputs=()))
    assert isinstance(_judge(store, lambda _: {}), Failed)


def test_what_is_missing_here_is_no_verdict(store: SampleStore) -> None:
    def gone(_: Arrays) -> Arrays:
        raise Unavailable("The server is gone.", remedy="Start it.")

    with pytest.raises(Unavailable):
        _judge(store, gone)


def test_a_lost_sample_is_not_the_runners_fault(store: SampleStore) -> None:
    (store.folder / "ordinary" / "in0.npy").unlink()
    with pytest.raises(FileNotFoundError):
        _judge(store, _answer)


def test_a_server_is_asked_one_row_and_all(store: SampleStore) -> None:
    assert [check.rows for check in edge_checks(store.read_index())] == [(3,), None]


def test_without_a_batch_the_scale_is_the_whole_outputs(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    x = _f32([[1e-4, 1e-4], [10, 10]])
    store.write("p", "in", {0: x})
    store.write("p", "out", {0: x})
    spec = parse_tensor("y:float32[2,2]")
    index = SampleIndex((spec,), (spec,), (Pool("p", "ordinary", {}),), (Check("p"),))
    store.write_index(index)
    prepared = Prepared(
        "m", "python", "torch", Signature((spec,), (spec,)), Batching(0, "no batch")
    )
    stray = Answering(lambda feeds: {"y": feeds["y"] + np.float32(1e-5)})
    assert isinstance(judge(stray, store, prepared, Tolerances()), Passed)
    batched = msgspec.structs.replace(prepared, batching=Batching(2))
    assert isinstance(judge(stray, store, batched, Tolerances()), Failed)
