from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tconv.errors import UsageProblem
from tconv.validate.score import Tally, Task, choose_output, parse_task

R = np.random.default_rng(0)
LOGITS = R.standard_normal((40, 6)).astype("float32")
LABELS = R.integers(0, 6, 40)
TOKENS = R.standard_normal((8, 5, 6)).astype("float32")
TOKEN_LABELS = R.integers(0, 6, (8, 5))


def _score(metric: str, output: Any, labels: Any, pieces: int = 3) -> float | None:
    """Score rows in several pieces, as a sweep does."""
    tally = Tally(Task(metric, "y"))
    for rows in np.array_split(np.arange(len(output)), pieces):
        tally.add(tuple(map(int, rows)), output[rows], np.asarray(labels)[rows])
    return tally.score()


def _f1(predicted: Any, true: Any) -> float:
    scores = []
    for label in range(6):
        right = ((predicted == label) & (true == label)).sum()
        precision = right / max((predicted == label).sum(), 1)
        recall = right / max((true == label).sum(), 1)
        scores.append(2 * precision * recall / (precision + recall) if right else 0.0)
    return float(np.mean(scores))


def _losses(logits: Any, labels: Any) -> Any:
    share = np.exp(logits.astype(float)) / np.exp(logits.astype(float)).sum(-1, keepdims=True)
    return -np.log(np.take_along_axis(share, labels[..., None], -1)[..., 0])


@pytest.mark.parametrize(
    ("metric", "output", "labels", "expected"),
    [
        ("top1", LOGITS, LABELS, (LOGITS.argmax(1) == LABELS).mean()),
        ("top1", LOGITS, LABELS[:, None], (LOGITS.argmax(1) == LABELS).mean()),
        ("top1", LOGITS, LABELS.astype(float), (LOGITS.argmax(1) == LABELS).mean()),
        ("top1", LOGITS.argmax(1), LABELS, (LOGITS.argmax(1) == LABELS).mean()),
        ("top1", TOKENS, TOKEN_LABELS, (TOKENS.argmax(2) == TOKEN_LABELS).mean()),
        (
            "top1",
            np.moveaxis(TOKENS, 2, 1),
            TOKEN_LABELS,
            (TOKENS.argmax(2) == TOKEN_LABELS).mean(),
        ),
        ("top5", LOGITS, LABELS, 1 - (LOGITS.argmin(1) == LABELS).mean()),
        ("f1", LOGITS, LABELS, _f1(LOGITS.argmax(1), LABELS)),
        ("mse", LOGITS, np.zeros((40, 6)), (LOGITS.astype(float) ** 2).mean()),
        ("mse", LOGITS[:, :1], np.ones(40), ((LOGITS[:, 0].astype(float) - 1) ** 2).mean()),
        ("perplexity", LOGITS, LABELS, np.exp(_losses(LOGITS, LABELS).mean())),
        (
            "perplexity",
            TOKENS,
            TOKEN_LABELS,
            np.exp(_losses(TOKENS[:, :-1], TOKEN_LABELS[:, 1:]).mean()),
        ),
    ],
)
def test_a_metric_is_what_its_definition_says(
    metric: str, output: Any, labels: Any, expected: float
) -> None:
    for pieces in (1, 3):
        assert _score(metric, output, labels, pieces) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("metric", ["top1", "top5", "f1", "perplexity"])
def test_minus_100_is_not_counted(metric: str) -> None:
    labels = np.where(np.arange(40) % 2, LABELS, -100)
    odd = np.arange(1, 40, 2)
    assert _score(metric, LOGITS, labels) == pytest.approx(_score(metric, LOGITS[odd], LABELS[odd]))
    assert _score(metric, LOGITS, np.full(40, -100)) is None


@pytest.mark.parametrize("metric", ["top1", "top5"])
def test_scores_that_are_nan_are_never_right(metric: str) -> None:
    output = LOGITS.copy()
    output[:, 3] = np.nan
    assert _score(metric, output, LABELS) == 0


def test_a_mean_that_is_nan_is_no_number() -> None:
    assert _score("mse", LOGITS * np.nan, LOGITS) is None


@pytest.mark.parametrize("label", [6, -1, 1.5])
@pytest.mark.parametrize("metric", ["top1", "top5", "f1", "perplexity"])
def test_a_label_that_is_no_class_is_refused(metric: str, label: float) -> None:
    labels = LABELS.astype(float)
    labels[17] = label
    said = f"In row 17 of the labels the label {label:.1f} is out of range: the classes are 0 to 5"
    with pytest.raises(UsageProblem, match=said):
        _score(metric, LOGITS, labels)


@pytest.mark.parametrize(
    ("metric", "labels"),
    [("top1", TOKEN_LABELS), ("mse", LABELS), ("perplexity", np.zeros((40, 2), int))],
)
def test_labels_of_another_shape_are_refused(metric: str, labels: Any) -> None:
    with pytest.raises(UsageProblem, match="don't fit"):
        Tally(Task(metric, "y")).add(tuple(range(40)), LOGITS, labels)


def test_a_metric_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "def far(output, labels):\n"
        "    assert output.shape == (40, 6) and labels.shape == (40,)\n"
        "    return abs(output.argmax(1) - labels).mean()\n"
        "far.higher_is_better = False\n"
    )
    expected = abs(LOGITS.argmax(1) - LABELS).mean()
    assert _score(f"{path}:far", LOGITS, LABELS) == pytest.approx(expected)
    assert not Tally(Task(f"{path}:far", "y")).metric.higher_is_better


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accuracy", "'accuracy' is no metric"),
        ("gone.py:f", "There is no file .*gone.py"),
        ("mine.py:f", "has no function 'f'"),
        ("broken.py:f", "can't be imported: ZeroDivisionError"),
    ],
)
def test_what_is_no_metric_is_refused(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("")
    Path("broken.py").write_text("1 / 0")
    with pytest.raises(UsageProblem, match=says):
        parse_task(text)


def test_what_a_metric_of_ones_own_raises_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def f(output, labels):\n    return labels['x']\n")
    with pytest.raises(UsageProblem, match=r"f can't be computed: IndexError"):
        _score(f"{path}:f", LOGITS, LABELS)


def test_the_output_that_is_scored() -> None:
    outputs = {"hidden": LOGITS, "logits": LOGITS}
    assert parse_task("hidden=top1") == ("hidden", "top1")
    assert choose_output("", outputs) == "logits"
    assert choose_output("", {"y": LOGITS, "z": LOGITS}) == "y"
    assert choose_output("hidden", outputs) == "hidden"
    with pytest.raises(UsageProblem, match="'other', which is no output"):
        choose_output("other", outputs)
