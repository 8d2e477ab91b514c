"""What a module's forward takes, and which of the examples belongs to which argument."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from ..errors import UsageProblem
from .base import Array
from .torch_tensors import to_array

Parameters = dict[str, inspect.Parameter]
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
CONSTANTS = (bool, int, float, str, type(None))
"""What an example may be that is no input: it is kept as it is."""


class Examples(msgspec.Struct, frozen=True):
    """The examples by argument: what becomes an input, and what is kept fixed."""

    inputs: dict[str, Any] = {}
    constants: dict[str, Any] = {}


def parameters_of(module: Any) -> Parameters:
    """Return the arguments of `module.forward`, by name; TorchScript's has a schema instead."""
    import torch

    if not isinstance(module, torch.jit.ScriptModule):
        return dict(inspect.signature(module.forward).parameters)
    found = {}
    schema: Any = module.forward
    for argument in schema.schema.arguments[1:]:
        default = argument.default_value if argument.has_default_value() else inspect._empty
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        found[argument.name] = inspect.Parameter(argument.name, kind, default=default)
    return found


def sort_examples(parameters: Parameters, given: Any) -> Examples:
    """Return the examples that a factory gave, in the order of the arguments.

    Args:
        parameters: what forward takes.
        given: a mapping by name, a sequence by position, one tensor, or None.

    Raises:
        UsageProblem: an example has no argument, an argument has no example, or a wrong kind.
    """
    if given is None:
        return Examples()
    if not isinstance(given, Mapping):
        positional = given if isinstance(given, tuple | list) else (given,)
        given = dict(
            zip(_names_by_place(parameters, len(positional)), positional, strict=True),
        )
    check_names(parameters, given, "Give the examples of")
    ordered = [name for name in parameters if name in given]
    ordered += [name for name in given if name not in parameters]
    inputs: dict[str, Array] = {}
    constants = {}
    for name in ordered:
        if isinstance(given[name], CONSTANTS):
            constants[name] = given[name]
        else:
            inputs[name] = _example(name, given[name])
    return Examples(inputs, constants)


def _example(name: str, value: Any) -> Array:
    import torch

    if isinstance(value, np.ndarray):
        value = torch.from_numpy(value)
    if isinstance(value, torch.Tensor):
        return to_array(value, f"The example input {name!r}")
    raise UsageProblem(
        f"The example input {name!r} is no tensor but {type(value).__name__}.",
        remedy="A server takes plain tensors: wrap the model in a module that takes those.",
    )


def _names_by_place(parameters: Parameters, count: int) -> list[str]:
    names = [name for name, p in parameters.items() if p.kind in BY_PLACE]
    if (rest := _variadic(parameters)) is not None:
        names += [f"{rest}_{place}" for place in range(count - len(names))]
    if count > len(names):
        raise UsageProblem(
            f"The factory gives {count} example inputs, but the model takes {len(names)}.",
            remedy="Give the examples as a dict from argument name to tensor.",
        )
    return names[:count]


def _variadic(parameters: Parameters) -> str | None:
    """Return what forward calls its `*args`; the inputs in it are named `args_0` ..."""
    names = [name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL]
    return names[0] if names else None


def check_names(parameters: Parameters, given: Iterable[str], ask: str) -> None:
    """Refuse names that are no arguments, and arguments without default that are not among them.

    Args:
        parameters: what forward takes.
        given: the names.
        ask: how the remedy for a missing one begins.

    Raises:
        UsageProblem: there is one.
    """
    given = list(given)
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = [name for name, p in parameters.items() if p.kind in (*BY_PLACE, p.KEYWORD_ONLY)]
    unknown = [n for n in given if n not in named and not _in_variadic(parameters, n)]
    if unknown and not open_ended:
        raise UsageProblem(
            f"The model takes no input called {unknown[0]!r}.",
            remedy=f"It takes: {', '.join(map(str, parameters.values()))}.",
        )
    needed = [n for n in named if parameters[n].default is inspect._empty and n not in given]
    if needed:
        raise UsageProblem(
            f"The model needs the input {needed[0]!r} too.",
            remedy=f"{ask} {', '.join(needed)} as well.",
        )


def _in_variadic(parameters: Parameters, name: str) -> bool:
    rest = _variadic(parameters)
    return rest is not None and re.fullmatch(rf"{re.escape(rest)}_\d+", name) is not None


def given_by_place(parameters: Parameters, given: Iterable[str]) -> tuple[str, ...]:
    """Return which of the names must be given by position, in this order."""
    given = list(given)
    rest = [name for name in given if _in_variadic(parameters, name) and name not in parameters]
    kinds = BY_PLACE if rest else (inspect.Parameter.POSITIONAL_ONLY,)
    first = [name for name, p in parameters.items() if p.kind in kinds and name in given]
    return (*first, *rest)


def frozen_arguments(
    parameters: Parameters, inputs: Iterable[str], constants: Mapping[str, Any]
) -> dict[str, str]:
    """Return the arguments that are no inputs, with the value that they keep, as text."""
    inputs = list(inputs)
    defaults = {
        name: repr(parameter.default)
        for name, parameter in parameters.items()
        if name not in inputs and parameter.default is not parameter.empty
    }
    return defaults | {name: repr(value) for name, value in constants.items()}
