"""What a build is asked for, and what is refused before anything is written."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

import msgspec

from .convert.base import ConvertOptions, SourceRequest
from .convert.gpu import count_gpus
from .convert.registry import find_source, find_target
from .errors import Unavailable, UsageProblem
from .export.config import ConfigOptions, check_options
from .export.names import fit_name, validate_name
from .spec import parse_signature
from .units import parse_seconds, parse_size
from .validate.dataset import DataRequest
from .validate.tolerance import Tolerances, parse_tolerances


class BuildRequest(msgspec.Struct, frozen=True):
    """All that a build is asked for; `request.json` keeps it for the later stages.

    `timeout` is in seconds and `memory_limit` in bytes, both for each child process. `data`,
    `labels` and `metric` are the user's own rows; `budget` holds times and sizes as texts.
    """

    source: SourceRequest
    targets: tuple[str, ...]
    name: str
    output: str = "build"
    repository: str = "models"
    convert: ConvertOptions = ConvertOptions()
    config: ConfigOptions = ConfigOptions()
    tolerances: Tolerances = Tolerances()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    timeout: float = 1800.0
    memory_limit: int | None = None
    allow_unavailable: bool = False
    data: str | None = None
    labels: str | None = None
    metric: str | None = None
    samples: int | None = None
    budget: tuple[str, ...] = ()
    allow_stochastic: bool = False


def default_name(model: str) -> str:
    """Return what a model is called unless the user says otherwise."""
    return fit_name(find_source(model).default_name(model))


def check_request(request: BuildRequest) -> None:
    """Refuse what can't be carried out, before anything is written.

    Raises:
        UsageProblem: a bad name or --input, an unknown target, options that contradict each other.
        Unavailable: a GPU was asked for and there is none.
    """
    validate_name(request.name)
    find_source(request.source.model)
    parse_signature(request.source.inputs)
    targets = [find_target(name) for name in request.targets]
    if not targets:
        raise UsageProblem("There is no target.", remedy="Give --targets onnx, for example.")
    data_request(request)
    check_options(request.config, tuple(target.platform for target in targets))
    for target in targets:
        target.recipes(request.convert)
    for place, option in ((request.output, "--output"), (request.repository, "--repository")):
        if Path(place).exists() and not Path(place).is_dir():
            raise UsageProblem(
                f"{place} is a file, and a folder is needed.",
                remedy=f"Choose another {option}, or move the file away.",
            )
    if request.device == "cuda" and not count_gpus():
        raise Unavailable(
            "--device cuda was asked for, but there is no NVIDIA GPU here.",
            remedy="Use --device cpu, or run this on a machine with a GPU.",
        )


def data_request(request: BuildRequest) -> DataRequest:
    """Return what the sweep is drawn from, and what it may cost.

    Raises:
        UsageProblem: an option lacks another, or a budget is neither a time nor a size.
    """
    for name, needed in (("labels", "data"), ("labels", "metric"), ("metric", "labels")):
        if getattr(request, name) and not getattr(request, needed):
            raise UsageProblem(f"--{name} needs --{needed}.", remedy=f"Give --{needed} too.")
    limits: dict[str, Any] = {}
    for text in request.budget:
        unit, limit = _parse_budget(text)
        if unit in limits:
            raise UsageProblem(
                f"The budget of {unit} is given twice.", remedy="Keep one of the two."
            )
        limits[unit] = limit
    return DataRequest(
        request.data,
        request.labels,
        request.metric,
        request.samples,
        allow_stochastic=request.allow_stochastic,
        **limits,
    )


def _parse_budget(text: str) -> tuple[str, float]:
    for unit, parse in (("seconds", parse_seconds), ("bytes", parse_size)):
        with contextlib.suppress(ValueError):
            return unit, parse(text)
    raise UsageProblem(
        f"{text!r} is no budget.", remedy="Give a time like 60s or 10m, or a size like 2GB."
    )


def request_from(given: dict[str, Any]) -> BuildRequest:
    """Return the request that a command line's options make, by their names in Python.

    Raises:
        UsageProblem: the model can't be named, or a tolerance is none.
    """
    own: dict[str, Any] = {
        "name": given["name"] or default_name(given["model"]),
        "tolerances": parse_tolerances(given["tolerances"]),
    }
    nested: dict[str, Any] = {
        "source": SourceRequest,
        "convert": ConvertOptions,
        "config": ConfigOptions,
    }
    for field, kind in nested.items():
        own[field] = kind(**{n: given[n] for n in _fields(kind) if n in given})
    rest = {n: given[n] for n in _fields(BuildRequest) if n in given and n not in own}
    return BuildRequest(**own, **rest)


def _fields(kind: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind)]
