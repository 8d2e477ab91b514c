from __future__ import annotations

from pathlib import Path

import pytest

from tconv import convert
from tconv.convert.registry import (
    SOURCE_NAMES,
    TARGET_NAMES,
    find_source,
    find_target,
    source_named,
)
from tconv.errors import UsageProblem


@pytest.mark.parametrize("name", TARGET_NAMES)
def test_a_target_is_found_by_its_name(name: str) -> None:
    assert find_target(name).name == name


@pytest.mark.parametrize("name", SOURCE_NAMES)
def test_a_source_is_found_by_its_name(name: str) -> None:
    assert source_named(name).name == name


@pytest.mark.parametrize("name", ["", "ONNX", "onnx ", "base", "../onnx", "python"])
def test_an_unknown_target_is_told_what_there_is(name: str) -> None:
    with pytest.raises(UsageProblem, match="no target called") as caught:
        find_target(name)
    assert all(known in caught.value.remedy for known in TARGET_NAMES)


def test_a_target_stands_after_the_one_it_is_made_from() -> None:
    for place, name in enumerate(TARGET_NAMES):
        base = find_target(name).base
        assert base is None or base in TARGET_NAMES[:place]


@pytest.mark.parametrize(
    ("model", "source"),
    [
        pytest.param("model.py:build", "python", id="file"),
        pytest.param("dir/my model.py:build", "python", id="file in a folder"),
        pytest.param("package.module:build", "python", id="module"),
        pytest.param("gpt2", "transformers", id="id"),
        pytest.param("org/name", "transformers", id="id with its owner"),
    ],
)
def test_what_a_model_names(model: str, source: str) -> None:
    assert find_source(model).name == source


@pytest.mark.parametrize("model", ["", "nonsense:", "no/such/file.onnx"])
def test_what_no_source_knows_is_explained(model: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        find_source(model)
    assert caught.value.remedy


def test_every_module_with_a_target_or_source_is_registered() -> None:
    """A new target is one file and one line: this is the line."""
    folder = Path(convert.__path__[0])
    found: dict[str, set[str]] = {"TARGET": set(), "SOURCE": set()}
    for path in folder.glob("*.py"):
        for kind, names in found.items():
            if f"\n{kind} = " in path.read_text():
                names.add(path.stem)
    assert found == {"TARGET": set(TARGET_NAMES), "SOURCE": set(SOURCE_NAMES)}
