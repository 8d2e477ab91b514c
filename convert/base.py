"""What a source and a target must offer.

Protocols, not base classes: an implementation inherits nothing and is one file beside this one,
with its name in `registry.py`. All but the members that say otherwise run in a child process.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from numpy.typing import NDArray

from ..artifact import Artifact
from ..report import Omission, Prepared
from ..spec import Signature

Array = NDArray[Any]
Arrays = Mapping[str, Array]

SIGN, WHOLE, HALF = -1, -2, -3
"""Where numbers are cut into flags or whole numbers: at 0, at whole numbers, halfway between."""


class SourceRequest(msgspec.Struct, frozen=True):
    """Which model, and how to load it. `inputs` are the `--input` texts."""

    model: str
    inputs: tuple[str, ...] = ()
    task: str | None = None
    random_weights: bool = False
    trust_remote_code: bool = False
    seed: int = 0
    device: str = "auto"


class ConvertOptions(msgspec.Struct, frozen=True):
    """What the user may ask of a conversion."""

    exporter: str = "auto"
    script: bool = False
    opset: int | None = None


class Preflight(msgspec.Struct, frozen=True, tag="preflight"):
    """A target that was built and thrown away, since it could not run here."""

    checked: tuple[str, ...]
    reason: str
    remedy: str


class Availability(msgspec.Struct, frozen=True):
    """Whether a target can be built and run here; an empty string means yes, else it says why."""

    build: str = ""
    run: str = ""
    remedy: str = ""


class Runner(Protocol):
    """Something that answers: a loaded artifact, or a model on a server."""

    @property
    def device(self) -> str:
        """Where it really runs: `cpu`, `cuda` or a server's address."""
        ...

    def __call__(self, feeds: Arrays) -> dict[str, Array]:
        """Return the outputs for the inputs, both under the signature's own names."""
        ...


class SourceModel(Protocol):
    """A loaded source: it knows its inputs and can be run as a function of arrays."""

    framework: str
    """What holds it, as targets know it: `torch`."""
    signature: Signature
    """The inputs alone; an axis called `batch` where a batch is declared or likely."""
    batch_declared: bool
    """Whether a batch was asked for, so that its absence is an error and not a finding."""
    examples: Arrays
    """One set of inputs that the source is known to accept; may be empty."""
    frozen: dict[str, str]
    """Arguments that keep their default, as text."""
    padding: int | None
    """The token id that stands where a mask is 0, if there is one."""

    @property
    def omitted(self) -> tuple[Omission, ...]:
        """Outputs that are left out, known after the first run."""
        ...

    @property
    def narrowest(self) -> str:
        """The narrowest floating-point dtype that it computes in."""
        ...

    def run(self, feeds: Arrays) -> dict[str, Array]:
        """Return every output, named and in order, in the source's own precision."""
        ...

    def run_double(self, feeds: Arrays) -> dict[str, Array]:
        """Return every output as computed in float64."""
        ...

    def scores(self, feeds: Arrays) -> dict[str, tuple[Array, int]]:
        """Return, for outputs of indices, the scores they were chosen by, and along which axis.

        For flags and whole numbers: what they were cut from, and `SIGN`, `WHOLE` or `HALF`.
        """
        ...

    def fingerprint(self) -> str:
        """Return a digest that differs where the weights do."""
        ...


class Source(Protocol):
    """One way to name a model."""

    name: str
    preload: tuple[str, ...]
    """Modules the fork server imports ahead."""

    def claims(self, model: str) -> bool:
        """Say whether `model` names one of these. Called in the parent: imports nothing."""
        ...

    def default_name(self, model: str) -> str:
        """Return the last part of the model's own name. Called in the parent."""
        ...

    def load(self, request: SourceRequest, folder: Path) -> SourceModel:
        """Load the model in eval mode. `folder` keeps what a later load needs to be the same.

        Raises:
            UsageProblem: there is no such model, or it cannot be used as asked.
            Unavailable: the hub cannot be reached.
            MissingExtra: its framework is not installed.
        """
        ...


class Target(Protocol):
    """One output format, through its whole life: written, read back, and served."""

    name: str
    extra: str
    """The extra that brings what it needs."""
    filename: str
    """The name Triton expects inside a version folder."""
    platform: str
    """Triton's platform, and the name of the config template."""
    base: str | None
    """The target whose artifact it is made from; None: from the source."""
    preload: tuple[str, ...]

    def recipes(self, options: ConvertOptions, framework: str | None = None) -> tuple[str, ...]:
        """Return the ways to convert a model of `framework`, the one that serves best first.

        None: the framework is not known yet; what is asked for must suit one of them.
        Called in the parent.

        Raises:
            UsageProblem: the options ask for a way that there is not.
            ConversionError: it is not made from models of this framework; says why.
        """
        ...

    def availability(self) -> Availability:
        """Say whether it can be built and run here."""
        ...

    def convert(
        self,
        model: SourceModel | Path,
        prepared: Prepared,
        recipe: str,
        folder: Path,
        options: ConvertOptions,
    ) -> Artifact | Preflight:
        """Write the artifact into the empty `folder`. `model` is the base's folder if there is one.

        Raises:
            ConversionError: the target refuses the model.
            MissingExtra: what it needs is not installed.
        """
        ...

    def open(self, folder: Path, artifact: Artifact, device: str, threads: int = 0) -> Runner:
        """Read the artifact back from disk, ready to run on `device` (`auto`, `cpu`, `cuda`).

        `threads` is how many a CPU computes with; 0: as many as the runtime likes.

        Raises:
            Unavailable: the device is not there.
        """
        ...

    def inspect(self, path: Path) -> Signature:
        """Return what a file of this format declares."""
        ...


def unused_note(name: str) -> str:
    """Return what is said of an input that a target's file takes and does not read."""
    return f"The input {name!r} reaches no output; it is kept, so that every target takes it."
