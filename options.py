"""Every option that more than one command has, named and explained once."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 366 * 86400.0
"""Seconds that any step may take at most: the system's clocks count no further than some years."""

PERIODS = {"s": 1, "m": 60, "h": 3600}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


class Bytes(click.ParamType):  # type: ignore[type-arg]
    """A number of bytes: `800M`, `4GiB`."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """Return the number of bytes."""
        if isinstance(value, int):
            return value
        text = value.strip().upper().removesuffix("IB").removesuffix("B")
        number, unit = (text[:-1], text[-1:]) if text[-1:].isalpha() else (text, "")
        try:
            size = int(float(number) * UNITS[unit])
        except (KeyError, ValueError, OverflowError):
            size = 0
        if not 0 < size < 1 << 62:
            self.fail(f"{value!r} is no size; write it like 800M or 4GiB", param, ctx)
        return size


class Seconds(click.ParamType):  # type: ignore[type-arg]
    """A time above nothing that ends, in seconds: `600`, `60s`, `10m`, `1h`."""

    name = "seconds"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Return the number of seconds."""
        if isinstance(value, float):
            return value
        number, unit = (value[:-1], value[-1:]) if value[-1:].isalpha() else (value, "s")
        try:
            seconds = float(number) * PERIODS[unit]
        except (KeyError, ValueError):
            seconds = math.nan
        if not 0 < seconds <= LONGEST:
            self.fail(f"{value!r} is no time; write it like 600, 60s or 10m", param, ctx)
        return seconds


class Numbers(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers, separated by commas."""

    name = "n,n,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """Return the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is no list of whole numbers, like 4,8", param, ctx)


class Names(click.ParamType):  # type: ignore[type-arg]
    """Names, separated by commas."""

    name = "name,name,…"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        """Return the names."""
        if isinstance(value, tuple):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator for several options, shown in the order given."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


as_json = click.option("--json", "as_json", is_flag=True, help="Print the whole record as JSON.")
verbose = click.option(
    "-v", "--verbose", is_flag=True, help="Show what the tools underneath print."
)
workspace = click.argument("workspace", type=click.Path(path_type=Path))
repository = click.option(
    "--repository", default="models", show_default=True, help="The Triton model repository."
)
allow_unavailable = click.option(
    "--allow-unavailable",
    is_flag=True,
    help="Exit 0 although a target could not be judged here, for want of a GPU or a package.",
)

source = stacked(
    click.option("--task", help="transformers: what the model is for, like text-generation."),
    click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME:DTYPE[DIMS]",
        help="State an input, like 'tokens:int64[batch,seq=1..128]'. Repeatable.",
    ),
    click.option(
        "--random-weights",
        is_flag=True,
        help="transformers: build from the config alone; needs no hub for a type like gpt2.",
    ),
    click.option(
        "--trust-remote-code", is_flag=True, help="transformers: run the Python the model brings."
    ),
    click.option(
        "--seed",
        type=click.IntRange(0, 2**32 - 1),
        default=0,
        show_default=True,
        help="For samples and random weights.",
    ),
)

conversion = stacked(
    click.option(
        "--targets",
        type=Names(),
        default="onnx",
        show_default=True,
        help="What to make: `tconv targets` lists them.",
    ),
    click.option(
        "--exporter",
        type=click.Choice(["auto", "dynamo", "torchscript"]),
        default="auto",
        show_default=True,
        help="How torch writes ONNX; auto takes the first whose result passes.",
    ),
    click.option("--script", is_flag=True, help="Script TorchScript instead of tracing it."),
    click.option("--opset", type=click.IntRange(min=9), help="The ONNX opset to write."),
    click.option(
        "--timeout",
        type=Seconds(),
        default=1800.0,
        show_default=True,
        help="Seconds that each step of each target may take.",
    ),
    click.option(
        "--memory-limit", type=Bytes(), help="Private memory of each child process, like 4GiB."
    ),
)

validation = stacked(
    click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Where results are checked; auto is the GPU where there is one.",
    ),
    click.option(
        "--tolerance",
        "tolerances",
        multiple=True,
        metavar="[OUTPUT=]SHARE",
        help="Largest error as a share of an output's scale, like logits=1e-3. Repeatable.",
    ),
)

data = stacked(
    click.option(
        "--data",
        metavar="FILE",
        help="Your own rows, .npz, .npy, .parquet or .jsonl: every target is judged by them too.",
    ),
    click.option(
        "--labels",
        metavar="FILE[:COLUMN]",
        help="The rows' labels; the file may be that of the rows.",
    ),
    click.option(
        "--metric",
        metavar="[OUTPUT=]METRIC",
        help="top1, top5, f1, mse, perplexity or file.py:function, by which rows are scored.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(min=1),
        help="Take so many rows of --data; without it, draw so many rows beyond the sweep.",
    ),
    click.option(
        "--budget",
        multiple=True,
        metavar="SECONDS|BYTES",
        help="What the sweep may cost the source, like 60s or 2GB. Repeatable.",
    ),
    click.option(
        "--allow-stochastic",
        is_flag=True,
        help="Compare only names, dtypes and shapes of outputs that vary from run to run.",
    ),
)

config = stacked(
    click.option(
        "--max-batch-size",
        type=click.IntRange(min=0),
        help="Largest batch; 0: the server forms none.  [default: 8 if the model allows it]",
    ),
    click.option(
        "--preferred-batch-size",
        type=Numbers(),
        default=(),
        help="Batches to wait for, like 4,8.  [default: the largest]",
    ),
    click.option(
        "--queue-delay",
        type=click.IntRange(min=0),
        help="Microseconds to wait for a fuller batch.  [default: 100]",
    ),
    click.option(
        "--instance-count",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Copies of the model that run at once.",
    ),
    click.option(
        "--instance-kind",
        type=click.Choice(["auto", "cpu", "gpu"]),
        default="auto",
        show_default=True,
        help="Where the server runs them.",
    ),
    click.option(
        "--template",
        type=click.Path(exists=True, dir_okay=False),
        help="A config.pbtxt to start from.",
    ),
)
