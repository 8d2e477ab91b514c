"""A build judged by rows of one's own, from the command's options to the record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tconv.convert.base import SourceRequest
from tconv.errors import UsageProblem
from tconv.gate.record import read_records
from tconv.report import Passed, Report
from tconv.request import BuildRequest, check_request, data_request

REQUEST = BuildRequest(SourceRequest("models.py:create"), ("onnx",), "model")


def test_every_target_is_scored(build_model: Callable[..., Report], tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((20, 8)).astype("float32")
    np.savez(tmp_path / "rows.npz", input=x, y=np.arange(20) % 2)
    report = build_model(
        "traps:plain_mlp",
        data=f"{tmp_path}/rows.npz",
        labels=f"{tmp_path}/rows.npz:y",
        metric="top1",
    )
    scores = []
    for target in report.targets:
        assert isinstance(target.verdict, Passed)
        scores.append(target.verdict.score)
        saved = np.load(tmp_path / f"build/plain_mlp/scores/{target.target}.npz")
        assert len(saved["row"]) == 20
    assert len(scores) == 2
    assert scores[0] == scores[1]
    assert scores[0] is not None
    assert scores[0].rows == 20
    again = msgspec.json.decode(
        (tmp_path / "build/plain_mlp/report.json").read_bytes(), type=Report
    )
    assert again.targets == report.targets
    for record in read_records(tmp_path / "build/plain_mlp"):
        assert record.measures["accuracy.top1"].value == scores[0].artifact
        assert record.measures["accuracy.top1"].basis == scores[0].data_digest
        assert record.measures["of_source.top1"].value == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"labels": "y.npy"}, "--labels needs --data"),
        ({"data": "x.npy", "labels": "y.npy"}, "--labels needs --metric"),
        ({"data": "x.npy", "metric": "top1"}, "--metric needs --labels"),
        ({"budget": ("soon",)}, "'soon' is no budget"),
        ({"budget": ("1m", "60s")}, "The budget of seconds is given twice"),
    ],
)
def test_options_that_lack_another_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageProblem, match=says):
        check_request(msgspec.structs.replace(REQUEST, **options))


def test_a_budget_is_a_time_or_a_size() -> None:
    data = data_request(msgspec.structs.replace(REQUEST, budget=("2m", "1GiB")))
    assert (data.seconds, data.bytes) == (120.0, 1 << 30)
