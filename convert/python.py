"""The source that is Python: `file.py:factory` or `package.module:factory`.

The factory returns a `torch.nn.Module`, or `(module, example_inputs)` where the examples are a dict
by argument name, a tuple by position, or one tensor.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import random
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ..errors import UsageProblem
from ..extras import needs
from ..spec import BATCH, Axis, Domain, Signature, TensorSpec, parse_signature
from .base import Array, SourceRequest
from .torch_arguments import (
    check_names,
    frozen_arguments,
    parameters_of,
    sort_examples,
)
from .torch_model import PRELOAD, TorchModel
from .tracer import is_user_code

_FACTORY = re.compile(r"(?P<place>.+):(?P<name>[A-Za-z_]\w*)")


class _Python:
    name = "python"
    preload = PRELOAD

    def claims(self, model: str) -> bool:
        return _FACTORY.fullmatch(model) is not None or model.partition(":")[0].endswith(".py")

    def default_name(self, model: str) -> str:
        return Path(model).stem if model.endswith(".py") else model.rpartition(":")[2]

    def load(self, request: SourceRequest, folder: Path) -> TorchModel:
        with needs("torch"):
            import torch
        # The same seed in every process, so that a factory that draws weights draws the same ones.
        torch.manual_seed(request.seed)
        np.random.seed(request.seed)
        random.seed(request.seed)
        _ignore_compiling()
        module, given = _split(_call(_find_factory(request.model), request.model), request.model)
        parameters = parameters_of(module)
        found = sort_examples(parameters, given)
        examples, constants = found.inputs, found.constants
        if request.inputs:
            signature = parse_signature(request.inputs)
            # What is stated to be an input is none of the constants: mask=None, say.
            constants = {n: v for n, v in constants.items() if n not in signature.input_names}
            check_names(parameters, [*signature.input_names, *constants], "Add --input for")
        else:
            signature = _signature_of(examples, request.model)
        return TorchModel(
            module,
            _with_domains(signature, examples),
            examples=examples if _fits(signature, examples) else {},
            batch_declared=bool(request.inputs)
            and any(spec.is_batched for spec in signature.inputs),
            constants=constants,
            frozen=frozen_arguments(parameters, signature.input_names, constants),
            device=request.device,
        )


def _ignore_compiling() -> None:
    """Leave models as they are where they ask for torch.compile: exporters refuse the result.

    Only this process is changed, which loads this one model.
    """
    import torch

    def leave(model: Any = None, **_options: Any) -> Any:
        return model if model is not None else leave

    torch.compile = leave
    torch.nn.Module.compile = lambda *_, **_options: None  # type: ignore[method-assign]


def _find_factory(model: str) -> Callable[[], Any]:
    match = _FACTORY.fullmatch(model)
    if match is None:
        raise UsageProblem(
            f"{model} names a file, but no function in it.",
            remedy=f"Say which one makes the model: {model.partition(':')[0]}:create.",
        )
    module = _import(match["place"])
    factory = getattr(module, match["name"], None)
    if factory is None or not callable(factory):
        offered = [n for n, value in vars(module).items() if inspect.isfunction(value)]
        public = sorted(name for name in offered if not name.startswith("_"))
        raise UsageProblem(
            f"{match['place']} has no function called {match['name']!r}.",
            remedy=f"It has: {', '.join(public) or 'none'}.",
        )
    return factory  # type: ignore[no-any-return]


def _import(place: str) -> Any:
    if place.endswith(".py") and not Path(place).is_file():
        raise UsageProblem(f"There is no file {place}.", remedy="Check the path before the colon.")
    try:
        if place.endswith(".py"):
            return _import_file(Path(place).resolve())
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(place)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            raise UsageProblem(
                f"There is no module {error.name}.",
                remedy="Install it, run this from the folder it is in, or give file.py:factory.",
            ) from error
        raise UsageProblem(
            f"{place} can't be imported: {_say(error)}",
            remedy="Make Python import it by itself first.",
        ) from error


def _import_file(path: Path) -> Any:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered as imports do, for dataclasses and pickles that look their module up.
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _call(factory: Callable[[], Any], model: str) -> Any:
    try:
        return factory()
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageProblem(
            f"The factory {model} raised {_say(error)}",
            remedy="Make it run by itself, without arguments.",
        ) from error


def _say(error: BaseException) -> str:
    """Return what was raised, and the line of the user's that did."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_user_code(f.filename)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def _split(result: Any, model: str) -> tuple[Any, Any]:
    import torch

    is_pair = isinstance(result, tuple) and len(result) == len(("module", "examples"))
    module, given = result if is_pair else (result, None)
    if not isinstance(module, torch.nn.Module):
        raise UsageProblem(
            f"The factory {model} returned a {type(module).__name__}.",
            remedy="Let it return a torch.nn.Module, or (module, example_inputs).",
        )
    return module, given


def _signature_of(examples: dict[str, Array], model: str) -> Signature:
    """Return the examples' shapes; their first axis is taken for the batch if all share its size.

    Whether it really is one shows when the source is run with other sizes.
    """
    if not examples:
        raise UsageProblem(
            f"It is not known what {model} takes.",
            remedy="Return (module, example_inputs), or add --input 'x:float32[batch,8]'.",
        )
    sizes = {array.shape[:1] for array in examples.values()}
    shared = len(sizes) == 1 and sizes != {()}
    first = (Axis(BATCH),) if shared else ()
    return Signature(
        tuple(
            TensorSpec(name, array.dtype.name, (*first, *array.shape[len(first) :]))
            for name, array in examples.items()
        )
    )


def _with_domains(signature: Signature, examples: dict[str, Array]) -> Signature:
    return Signature(
        tuple(
            msgspec.structs.replace(spec, domain=_domain_of(examples[spec.name]))
            if spec.name in examples
            else spec
            for spec in signature.inputs
        )
    )


def _domain_of(example: Array) -> Domain | None:
    """Return the range that an example shows: its own values are all that is known to be right."""
    values = example.astype(np.float64)
    values = values[np.isfinite(values)]
    if values.size == 0 or example.dtype == bool:
        return None
    low, high = float(values.min()), float(values.max())
    if example.dtype == np.uint8 and not values.any():  # a black image stands for any
        return Domain("integer", 0, 255)
    if np.isin(values, (0.0, 1.0)).all():
        # torch.zeros(…) and torch.ones(…) stand for any number.
        is_filler = example.dtype.kind not in "iu" and low == high
        return None if is_filler else Domain("binary", 0, 1)
    return Domain("integer" if example.dtype.kind in "iu" else "real", low, high)


def _fits(signature: Signature, examples: dict[str, Array]) -> bool:
    """Whether the examples are samples of the signature."""
    return tuple(examples) == signature.input_names and all(
        array.dtype.name == spec.dtype
        and array.ndim == len(spec.shape)
        and all(isinstance(d, Axis) or d == s for d, s in zip(spec.shape, array.shape, strict=True))
        for spec, array in zip(signature.inputs, examples.values(), strict=True)
    )


SOURCE = _Python()
