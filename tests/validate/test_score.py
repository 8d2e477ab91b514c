"""Rows of one's own through the study of a source and the judging of what answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tconv.convert.base import Arrays, SourceRequest
from tconv.errors import UsageProblem
from tconv.report import Failed, Passed, Prepared
from tconv.validate.dataset import DataRequest
from tconv.validate.judge import edge_checks, judge
from tconv.validate.reference import prepare
from tconv.validate.samples import SampleStore
from tconv.validate.score import scorer_for, with_score
from tconv.validate.tolerance import Tolerances

pytestmark = pytest.mark.filterwarnings("ignore")

FACTORY = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.roll(1, -1) * 2

def factory():
    return Model(), {"x": torch.randn(2, 5)}
"""
X = np.random.default_rng(1).standard_normal((19, 5)).astype("float32")
Y = np.roll(X, 1, axis=1).argmax(1)
Y[::4] = (Y[::4] + 1) % 5  # one in four is wrong


class Study:
    """What is left of the study of a model with rows of one's own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        (folder / "rolling.py").write_text(FACTORY)
        np.savez(folder / "rows.npz", x=X, y=Y)
        rows = {"rows": str(folder / "rows.npz"), **options}
        request = SourceRequest(f"{folder}/rolling.py:factory", device="cpu")
        built = prepare(
            msgspec.to_builtins(request),
            str(folder),
            None,
            msgspec.to_builtins(DataRequest(**rows)),
        )
        self.prepared = msgspec.convert(built, Prepared)
        self.store = SampleStore(folder / "samples")
        self.index = self.store.read_index()
        self.folder = folder

    def judge(self, function: Callable[[Any], Any], tolerance: float | None = None) -> Any:
        scorer = scorer_for(self.store, self.index)
        assert scorer is not None
        verdict = judge(
            _Runner(function), self.store, self.prepared, Tolerances(tolerance), watch=scorer
        )
        scorer.save(self.folder / "scores.npz")
        return with_score(verdict, scorer.score())


class _Runner:
    device = "cpu"

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, feeds: Arrays) -> dict[str, Any]:
        return {"output": self.function(np.asarray(feeds["x"]))}


def _right(x: Any) -> Any:
    return np.roll(x, 1, axis=1) * 2


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path, labels=f"{tmp_path}/rows.npz:y", metric="top1")


def test_source_and_artifact_are_scored_on_the_same_rows(study: Study) -> None:
    verdict = study.judge(_right)
    assert isinstance(verdict, Passed)
    score = verdict.score
    assert score is not None
    assert score.source == score.artifact == pytest.approx((_right(X).argmax(1) == Y).mean())
    assert (score.metric, score.output, score.rows) == ("top1", "output", 19)
    assert score.data_digest == study.index.data.digest  # type: ignore[union-attr]
    saved = np.load(study.folder / "scores.npz")
    assert saved["row"].tolist() == list(range(19))
    assert np.array_equal(saved["source"], _right(X).argmax(1))
    assert np.array_equal(saved["artifact"], saved["source"])


def test_what_differs_on_the_rows_shows_in_score_and_predictions(study: Study) -> None:
    wrong = Y[5]

    def flip(x: Any) -> Any:
        answer = _right(x)
        for row in np.flatnonzero((x[:, None] == X[5]).all(-1).any(-1)):
            answer[row, (wrong + 1) % 5] = answer[row].max() * 1.1
        return answer

    verdict = study.judge(flip)
    assert isinstance(verdict, Failed)
    assert "rows 0 to 7 of --data" in verdict.problem
    score = verdict.score
    assert score is not None
    assert score.source - score.artifact == pytest.approx(1 / 19)  # type: ignore[operator]
    saved = np.load(study.folder / "scores.npz")
    assert np.flatnonzero(saved["source"] != saved["artifact"]).tolist() == [5]


def test_an_artifact_that_refuses_rows_has_no_score(study: Study) -> None:
    def refuse(x: Any) -> Any:
        if (x == X[18]).all(-1).any():
            raise ValueError("no")
        return _right(x)

    verdict = study.judge(refuse)
    assert isinstance(verdict, Failed)
    assert "rows 16 to 18 of --data" in verdict.problem
    assert verdict.score is not None
    assert verdict.score.artifact is None
    assert verdict.score.source is not None


def test_rows_without_labels_are_judged_all_the_same(tmp_path: Path) -> None:
    studied = Study(tmp_path)
    assert scorer_for(studied.store, studied.index) is None
    assert [pool.rows for pool in studied.index.pools if pool.rows] == [
        tuple(range(8)), tuple(range(8, 16)), (16, 17, 18)
    ]  # fmt: skip
    assert studied.prepared.plan[0].sizes == {"rows": 19}
    assert "Columns of --data that no input takes: y." in studied.prepared.notes


def test_the_server_is_asked_every_row(study: Study) -> None:
    asked = {c.pool for c in edge_checks(study.index) if c.rows is None}
    assert {pool.name for pool in study.index.pools if pool.rows} <= asked


def test_rows_of_one_model_shuffle_within_the_first_batch(study: Study) -> None:
    whys = [check.why for check in study.index.checks if check.pool == "data-0"]
    assert len(whys) == 4
    assert [c.rows for c in study.index.checks if c.pool == "data-1"] == [None]


def test_a_metric_that_is_no_number_of_the_source_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "none.npy", np.full(19, -100))
    with pytest.raises(UsageProblem, match=r"top1 of the source itself .* is no number"):
        Study(tmp_path, labels=str(tmp_path / "none.npy"), metric="top1")


def test_a_budget_leaves_samples_out_and_says_so(tmp_path: Path) -> None:
    studied = Study(tmp_path, bytes=500)
    skipped = [planned for planned in studied.prepared.plan if planned.skipped]
    assert skipped
    assert len(studied.index.pools) == 3 + len(studied.prepared.plan) - 1 - len(skipped)
    note = next(note for note in studied.prepared.notes if "--budget" in note)
    assert f"{len(skipped)} of {len(studied.prepared.plan)} samples were left out" in note
    assert "bytes" in note


def test_more_samples_than_the_sweep_has(tmp_path: Path) -> None:
    few = Study(mkdir(tmp_path / "few"), rows=None)
    many = Study(mkdir(tmp_path / "many"), rows=None, samples=20)
    added = [p.sizes["batch"] for p in many.index.pools if p not in few.index.pools]
    assert added == [8, 8, 4]
    checks = {check.pool for check in many.index.checks}
    assert checks == {pool.name for pool in many.index.pools}


def mkdir(path: Path) -> Path:
    path.mkdir()
    return path
