from __future__ import annotations

import inspect
import json

import pytest

from tconv import errors
from tconv.errors import BUG, TconvError, UsageProblem, from_json, to_json

KINDS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, TconvError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_crosses_a_process_boundary(kind: type[TconvError]) -> None:
    error = kind("Größe → 3.", remedy="Do 'this'.")
    back = from_json(json.loads(json.dumps(to_json(error))))
    assert type(back) is kind
    assert (back.problem, back.remedy, back.exit_code) == (
        error.problem,
        error.remedy,
        error.exit_code,
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_docstring_draws_every_kind_with_its_code(kind: type[TconvError]) -> None:
    assert errors.__doc__ is not None
    line = next(line for line in errors.__doc__.splitlines() if f" {kind.__name__} " in f" {line}")
    assert line.split(kind.__name__)[1].split()[0] == str(kind.exit_code)


def test_a_bug_has_a_code_of_its_own() -> None:
    assert BUG not in {kind.exit_code for kind in KINDS}


def test_problem_and_remedy_are_both_shown() -> None:
    assert str(UsageProblem("It broke.", remedy="Mend it.")) == "It broke.\nMend it."


def test_an_error_needs_a_remedy() -> None:
    with pytest.raises(TypeError):
        TconvError("It broke.")  # type: ignore[call-arg]
