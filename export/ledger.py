"""What tconv remembers of a repository: the journal of a publish, the history, the highest number.

It lies beside the root, as `.NAME.tconv/`, since Triton takes every folder in the root for a model.
A model's record is one file, so that a publish is opened and closed by one rename each.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import getpass
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .. import __version__
from ..errors import Unavailable, UsageProblem
from .files import LocalFiles
from .staging import explained

_SUFFIX = ".json"


class Entry(msgspec.Struct, frozen=True):
    """A version that was published, or rolled back to, and answered. `config` is a protobuf."""

    version: int
    digest: str
    when: str
    by: str
    config: bytes
    serves: tuple[int, ...] = ()
    tconv: str = __version__


class Intent(msgspec.Struct, frozen=True):
    """A publish that is under way, and what there was before.

    `previous` is the version that answered, `config` what to put back (a protobuf; None: there was
    no file), `digest` what the server's config was made for, `added` whether the folder is new.
    """

    model: str
    version: int
    previous: int | None
    config: bytes | None
    digest: str
    added: bool
    new_home: bool = False


class Ledger(msgspec.Struct, frozen=True):
    """All that is remembered of one model. `highest` is the last number that was given out."""

    highest: int = 0
    open: Intent | None = None
    history: tuple[Entry, ...] = ()
    schema: int = 1


class State:
    """The folder beside a repository."""

    def __init__(self, repository: Path) -> None:
        self.repository = repository.resolve()
        parent = self.repository.parent
        self.folder = parent / f".{self.repository.name}.tconv"
        self.staging = self.folder / "staging"
        self.records = LocalFiles(self.folder, self.staging)
        self.files = LocalFiles(self.repository, self.staging)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other publishers out, and clear what a killed one left unfinished beside the root.

        Raises:
            Unavailable: one is at work already.
            UsageProblem: nothing can be kept beside the root.
        """
        self._check_place()
        with explained(self.folder):
            self.folder.mkdir(exist_ok=True)
            lock = (self.folder / "lock").open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(
                    f"Another tconv is publishing to {self.repository}.",
                    remedy="Wait until it is done, and try again.",
                ) from error
            with explained(self.folder):
                shutil.rmtree(self.staging, ignore_errors=True)
                self.staging.mkdir(exist_ok=True)
            try:
                yield
            finally:
                shutil.rmtree(self.staging, ignore_errors=True)

    def models(self) -> tuple[str, ...]:
        """Return the models that something is remembered of."""
        names = self.records.list("models")
        return tuple(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))

    def read(self, model: str) -> Ledger:
        """Return what is remembered of a model.

        Raises:
            UsageProblem: the record can't be read.
        """
        content = self.records.read(f"models/{model}{_SUFFIX}")
        try:
            return msgspec.json.decode(content, type=Ledger) if content else Ledger()
        except msgspec.DecodeError as error:
            raise UsageProblem(
                f"The record of {model} in {self.folder} can't be read: {error}.",
                remedy="Was it written by another version of tconv? Move it away to start anew.",
            ) from error

    def write(self, model: str, ledger: Ledger) -> None:
        """Remember it from this moment on."""
        content = msgspec.json.format(msgspec.json.encode(ledger), indent=1)
        self.records.replace(f"models/{model}{_SUFFIX}", content + b"\n")

    def _check_place(self) -> None:
        parent = self.repository.parent
        same = parent.stat().st_dev == self.repository.stat().st_dev
        if not same or not os.access(parent, os.W_OK | os.X_OK):
            why = "may not be written to" if same else "is on another filesystem"
            raise UsageProblem(
                f"The folder around {self.repository} {why}, and versions are staged there.",
                remedy=f"Serve a folder inside it, like {self.repository / 'live'}.",
            )


def who() -> str:
    """Return who publishes: user and host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def now() -> str:
    """Return the time, in UTC."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
