"""Task metrics: how good a model's answers are by the user's own labels.

A metric looks at some rows at a time (`observe`) and gives one number in the end (`total`), so the
outputs of a large set are never held together, but for a metric of the user's own.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..convert.base import Array
from ..errors import UsageProblem

IGNORED = -100
"""A label that is not counted: PyTorch's `ignore_index`, as transformers' data collators set it."""
NOTHING = -1
"""The class that is predicted by scores of which any is NaN: none, so it is never right."""
TOP = 5

Evidence = tuple[Array, ...]
"""What `total` needs of some rows: arrays that are concatenated along their first axis."""


class Observed(NamedTuple):
    """What some rows show: a prediction an element, whose first axis are the rows."""

    predictions: Array
    evidence: Evidence


class Metric(NamedTuple):
    """A metric: `observe(output, labels)`, then `total(*evidence)`."""

    observe: Callable[[Array, Array], Observed]
    total: Callable[..., float]
    higher_is_better: bool = True


def find_metric(text: str) -> Metric:
    """Return a metric by its name, or `file.py:function`.

    The function takes the output and the labels of all rows and returns a number; an attribute
    `higher_is_better = False` on it says that less is better.

    Raises:
        UsageProblem: there is no such metric or function.
    """
    if text in METRICS:
        return METRICS[text]
    file, separator, name = text.rpartition(":")
    if not separator or not file.endswith(".py"):
        raise UsageProblem(
            f"{text!r} is no metric.",
            remedy=f"Use one of: {', '.join(METRICS)}, or file.py:function.",
        )
    return _own(_load(Path(file), name), text)


def _load(path: Path, name: str) -> Callable[[Array, Array], Any]:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageProblem(
            f"There is no file {path} for --metric.", remedy="Give file.py:function."
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # the user's own code may raise anything
        raise UsageProblem(
            f"{path} can't be imported: {type(error).__name__}: {error}.",
            remedy="Run it by itself: python " + str(path),
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise UsageProblem(
            f"{path} has no function {name!r}.", remedy="Check the name: file.py:function."
        )
    return function  # type: ignore[no-any-return]


def _own(function: Callable[[Array, Array], Any], text: str) -> Metric:
    def total(output: Array, labels: Array) -> float:
        try:
            return float(function(output, labels))
        except Exception as error:  # the user's own code may raise anything
            raise UsageProblem(
                f"The metric {text} can't be computed: {type(error).__name__}: {error}.",
                remedy=f"It is called with arrays of shape {list(output.shape)} and "
                f"{list(labels.shape)}, and returns one number.",
            ) from error

    def observe(output: Array, labels: Array) -> Observed:
        return Observed(_predictions(output, labels), (output, labels))

    return Metric(observe, total, bool(getattr(function, "higher_is_better", True)))


def _predictions(output: Array, labels: Array) -> Array:
    """Return classes where the labels are classes, otherwise a row's mean value."""
    if labels.dtype.kind in "iu" and (axis := class_axis(output, labels)) is not None:
        return best_class(np.moveaxis(output, axis, -1))
    return np.asarray(_widened(output).reshape(len(output), -1).mean(axis=1))


def class_axis(output: Array, labels: Array) -> int | None:
    """Return the axis of an output that holds a score a class: the last, or PyTorch's second."""
    if output.shape[:-1] == labels.shape:
        return -1
    if output.shape[:1] + output.shape[2:] == labels.shape:
        return 1
    return None


def best_class(scores: Array) -> Array:
    """Return the classes with the highest scores along the last axis; `NOTHING` beside a NaN."""
    wide = _widened(scores)
    return np.where(np.isnan(wide).any(axis=-1), NOTHING, wide.argmax(axis=-1))


def _widened(array: Array) -> Array:
    return array if array.dtype.name in ("float32", "float64") else array.astype(np.float64)


def _class_scores(output: Array, labels: Array) -> tuple[Array, Array]:
    """Return the scores with their classes last, and labels that fit them.

    Raises:
        UsageProblem: the shapes don't fit, or a label is no class.
    """
    labels = _squeezed(labels, output.ndim - 1)
    axis = class_axis(output, labels)
    if axis is None:
        raise UsageProblem(
            f"An output of shape {list(output.shape)} and labels of shape {list(labels.shape)} "
            "don't fit: one label is needed for each set of class scores.",
            remedy="Give class indices with --labels, and name the output: --metric logits=top1.",
        )
    scores = np.moveaxis(output, axis, -1)
    return scores, check_classes(labels, scores.shape[-1])


def _squeezed(labels: Array, ndim: int) -> Array:
    return labels[..., 0] if labels.ndim == ndim + 1 and labels.shape[-1] == 1 else labels


def check_classes(labels: Array, classes: int | None) -> Array:
    """Return labels as whole numbers.

    Raises:
        UsageProblem: one is no whole number, or no class below `classes`; says in which row.
    """
    whole = labels.astype(np.int64)
    wrong = (whole != labels) | ((whole < 0) & (whole != IGNORED))
    if classes is not None:
        wrong |= whole >= classes
    if wrong.any():
        where = np.argwhere(wrong)[0]
        known = f"0 to {classes - 1}" if classes is not None else "whole numbers from 0"
        raise LabelError(
            int(where[0]),
            f"the label {labels[tuple(where)]} is out of range: the classes are {known}",
        )
    return whole


class LabelError(Exception):
    """A label is wrong; `row` is its place among the rows that were looked at."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


def _classes(output: Array, labels: Array) -> tuple[Array, Array]:
    """Return what was predicted, and the true classes: an output may be classes already."""
    if output.dtype.kind in "iub":
        labels = _squeezed(labels, output.ndim)
        if output.shape == labels.shape:
            return output.astype(np.int64), check_classes(labels, None)
    scores, true = _class_scores(output, labels)
    return best_class(scores), true


def _top1(output: Array, labels: Array) -> Observed:
    predicted, true = _classes(output, labels)
    return Observed(predicted, ((predicted == true)[true != IGNORED],))


def _top5(output: Array, labels: Array) -> Observed:
    scores, true = _class_scores(output, labels)
    predicted = best_class(scores)
    first = np.argsort(-_widened(scores), axis=-1, kind="stable")[..., :TOP]
    hits = (first == true[..., None]).any(axis=-1) & (predicted != NOTHING)
    return Observed(predicted, (hits[true != IGNORED],))


def _f1(output: Array, labels: Array) -> Observed:
    predicted, true = _classes(output, labels)
    counted = true != IGNORED
    return Observed(predicted, (predicted[counted], true[counted]))


def _macro_f1(predicted: Array, true: Array) -> float:
    """Return the mean over the classes that occur: scikit-learn's `average="macro"`."""
    scores = []
    for label in np.union1d(predicted, true):
        right = np.sum((predicted == label) & (true == label))
        scores.append(2 * right / (np.sum(predicted == label) + np.sum(true == label)))
    return float(np.mean(scores))


def _mse(output: Array, labels: Array) -> Observed:
    labels = _squeezed(labels, output.ndim)
    output = _squeezed(output, labels.ndim)
    if output.shape != labels.shape:
        raise UsageProblem(
            f"An output of shape {list(output.shape)} and labels of shape {list(labels.shape)} "
            "don't fit: mse needs one label for each number.",
            remedy="Give labels of the output's shape, and name the output: --metric y=mse.",
        )
    values = output.astype(np.float64)
    error = (values - labels) ** 2
    return Observed(
        values.reshape(len(values), -1).mean(axis=1), (error.reshape(len(error), -1).mean(axis=1),)
    )


def _perplexity(output: Array, labels: Array) -> Observed:
    """Observe the loss of every token but the first: its scores stand one place before it.

    Labels are a text's own ids, as transformers' language models take them.
    """
    scores, true = _class_scores(output, labels)
    if true.ndim > 1:
        scores, true = scores[:, :-1], true[:, 1:]
    predicted = best_class(scores)
    wide = scores.astype(np.float64)
    highest = wide.max(axis=-1, keepdims=True)
    total = np.log(np.exp(wide - highest).sum(axis=-1)) + highest[..., 0]
    counted = true != IGNORED
    chosen = np.take_along_axis(wide, np.where(counted, true, 0)[..., None], axis=-1)[..., 0]
    return Observed(predicted, ((total - chosen)[counted],))


def _mean(values: Array) -> float:
    return float(np.mean(values))


METRICS: Mapping[str, Metric] = {
    "top1": Metric(_top1, _mean),
    "top5": Metric(_top5, _mean),
    "f1": Metric(_f1, _macro_f1),
    "mse": Metric(_mse, _mean, higher_is_better=False),
    "perplexity": Metric(
        _perplexity, lambda losses: float(np.exp(np.mean(losses))), higher_is_better=False
    ),
}
"""The metrics that come with tconv; `f1` is the mean over the classes."""
