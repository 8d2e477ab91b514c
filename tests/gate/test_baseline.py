"""The baseline's file: stable, readable in a review, and never written where no person is."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tconv.errors import TconvError, UsageProblem
from tconv.gate.baseline import (
    Baseline,
    Entry,
    accept,
    in_ci,
    new_file,
    propose,
    read_baseline,
    to_text,
    write_baseline,
)
from tconv.gate.threshold import Better, Measure

MEASURED = {
    "accuracy.top1": Measure(0.97, Better.HIGHER, "rows"),
    "error.logits": Measure(3.1e-6, Better.LOWER, "samples"),
    "signature": Measure("x:float32[batch,8]", Better.SAME),
    "size": Measure(1234, Better.LOWER),
}


@pytest.fixture(autouse=True)
def _desk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


def _first() -> Baseline:
    entries = accept({}, propose({}, MEASURED), MEASURED, "the first", "2026-12-03")
    return Baseline(models={"digits/onnx": entries, "digits/torchscript": entries})


def _moved(before: str, after: str) -> list[str]:
    changes = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    return [line for line in changes if line.startswith("+ ")]


def test_it_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "tconv-baseline.json"
    write_baseline(path, _first())
    assert read_baseline(path) == _first()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_update_without_change_is_byte_identical() -> None:
    before = _first()
    entries = before.models["digits/onnx"]
    again = accept(entries, propose(entries, MEASURED), MEASURED, "another day", "2027-01-01")
    models = {**before.models, "digits/onnx": again}
    assert to_text(Baseline(models=models)) == to_text(before)


def test_two_accepted_metrics_change_two_lines() -> None:
    before = _first()
    entries = before.models["digits/onnx"]
    measured = {
        metric: Measure(0.5 if metric != "signature" else "other", measure.better, measure.basis)
        for metric, measure in MEASURED.items()
    }
    again = accept(
        entries, propose(entries, measured), ["size", "accuracy.top1"], "smaller", "2027-01-01"
    )
    after = Baseline(models={**before.models, "digits/onnx": again})
    moved = _moved(to_text(before), to_text(after))
    assert len(moved) == 2
    assert all('"smaller"' in line for line in moved)


def test_loosening_is_recorded() -> None:
    entries = _first().models["digits/onnx"]
    worse = {
        "accuracy.top1": Measure(0.9, Better.HIGHER, "rows"),
        "size": Measure(1000, Better.LOWER),
    }
    again = accept(entries, propose(entries, worse), worse, "a smaller model", "2027-01-01")
    assert again["accuracy.top1"].was == 0.97
    assert again["size"].was is None


def test_a_metric_that_is_gone_can_be_accepted() -> None:
    entries = _first().models["digits/onnx"]
    assert "size" not in accept(entries, {}, ["size"], "not measured any more", "2027-01-01")


@pytest.mark.parametrize("value", ["true", "1", "yes"])
def test_ci_never_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    assert in_ci()
    with pytest.raises(UsageProblem, match="CI writes no baseline"):
        write_baseline(tmp_path / "b.json", _first())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("value", ["", "0", "false", "False"])
def test_a_desk_is_no_ci(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    assert not in_ci()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "it is empty", id="empty"),
        pytest.param("{", "truncated", id="truncated"),
        pytest.param("[]", "no schema", id="a list"),
        pytest.param("{}", "no schema", id="no schema"),
        pytest.param('{"schema": 7}', "schema 7", id="another schema"),
        pytest.param('{"schema": 1, "models": 3}', "models", id="no models"),
        pytest.param('{"schema": 1, "model": {}}', "unknown field `model`", id="unknown field"),
        pytest.param(
            '{"schema": 1, "models": {"a/onnx": {"size": {"value": 1, "better": "blue"}}}}',
            "blue",
            id="unknown direction",
        ),
        pytest.param("\x00\x01", "malformed", id="binary"),
    ],
)
def test_what_is_no_baseline(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(UsageProblem, match=message):
        read_baseline(path)


def test_none_there(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="can't be read") as caught:
        read_baseline(tmp_path / "b.json")
    assert "tconv baseline init" in caught.value.remedy


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TconvError, match="can't be written"):
        write_baseline(tmp_path / "none" / "b.json", _first())


def test_the_new_file_lies_beside_it() -> None:
    assert new_file(Path("a/b.json")) == Path("a/b.json.new")


_VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**53), 2**53),
    st.text(max_size=20),
)
_ENTRIES = st.dictionaries(
    st.text(min_size=1, max_size=10),
    st.builds(
        Entry,
        _VALUES,
        st.sampled_from(Better),
        basis=st.text(max_size=8),
        reason=st.text(max_size=20),
        was=st.none() | _VALUES,
    ),
    max_size=4,
)


@given(st.dictionaries(st.text(min_size=1, max_size=10), _ENTRIES, max_size=4))
def test_anything_survives_being_written(models: dict[str, dict[str, Entry]]) -> None:
    import msgspec

    baseline = Baseline(models=models)
    text = to_text(baseline)
    again = msgspec.json.decode(text.encode(), type=Baseline)
    assert again == baseline
    assert to_text(again) == text
