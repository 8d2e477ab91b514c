from __future__ import annotations

import numpy as np
import pytest

from tconv.validate.columns import ColumnMeter, scales_of
from tconv.validate.compare import compare
from tconv.validate.samples import Columns

R = np.random.default_rng(0)
BOXES = np.concatenate([R.uniform(0, 600, (50, 4)), R.uniform(0, 1, (50, 1))], 1).astype("float32")


def _seen(values: object, noise: float = 1e-7, axis: int = 1) -> Columns | None:
    value = np.asarray(values)
    meter = ColumnMeter(axis)
    meter.see(value)
    exact = value.astype("float64")
    meter.hear(exact * (1 + noise), exact)
    return meter.columns(value.dtype.name)


def test_a_probability_beside_boxes_has_a_scale_of_its_own() -> None:
    columns = _seen(BOXES)
    assert columns is not None
    assert columns.scales[:4] == (None,) * 4
    assert columns.scales[4] == pytest.approx(BOXES[:, 4].max())
    actual = BOXES.copy()
    actual[7, 4] += 1e-3
    assert not compare(actual, BOXES, 2e-5).problem
    found = compare(actual, BOXES, 2e-5, columns=scales_of(columns, BOXES))
    assert found.where == (7, 4)
    assert found.error == pytest.approx(1e-3, rel=0.1)


def test_parts_may_lie_along_any_axis() -> None:
    columns = _seen(np.moveaxis(BOXES.reshape(10, 5, 5), 2, 1))
    assert columns is not None
    assert columns.axis == 1
    assert columns.scales[4] is not None


def test_a_part_that_holds_the_noise_of_large_terms_has_none() -> None:
    meter = ColumnMeter(1)
    meter.see(BOXES)
    meter.hear(BOXES.astype("float64") + 600 * 1e-7, BOXES.astype("float64"))
    assert meter.columns("float32") is None


@pytest.mark.parametrize("values", [BOXES[:, :4], BOXES * [1, 1, 1, 1, 0], BOXES[:, 4:]])
def test_without_another_order_of_magnitude_there_is_none(values: object) -> None:
    assert _seen(np.asarray(values, "float32")) is None


def test_an_axis_whose_size_varies_is_no_parts() -> None:
    meter = ColumnMeter(1)
    for width in (5, 4, 5):
        meter.see(BOXES[:, :width])
        meter.hear(BOXES[:, :width].astype("float64"), BOXES[:, :width].astype("float64"))
    assert meter.columns("float32") is None


def test_what_is_not_finite_is_no_scale() -> None:
    values = BOXES.copy()
    values[3] = [np.nan, np.inf, -np.inf, np.nan, np.nan]
    columns = _seen(values)
    assert columns is not None
    assert columns.scales[4] is not None
    assert np.isfinite(columns.scales[4])


def test_a_larger_value_is_measured_by_itself() -> None:
    scales = scales_of(Columns(1, (None, 1.0)), np.array([[9.0, 5.0]]))
    assert scales.tolist() == [[np.inf, 5.0]]
