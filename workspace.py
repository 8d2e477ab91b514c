"""Where a build keeps what it makes: one folder a model, that every later stage reads.

build/NAME/request.json           what was asked for
build/NAME/source.json            what is known of the source          (report.Prepared)
build/NAME/source/                random weights, kept so that every load gets the same
build/NAME/samples/               the sweep, with the source's answers
build/NAME/artifacts/onnx/        an artifact's files
build/NAME/artifacts/onnx.json    what is known of it                  (report.TargetReport)
build/NAME/scores/onnx.npz        what it and the source predicted for labelled rows
build/NAME/logs/                  a log a child process, and the job that runs it again
build/NAME/.lock               held by who works in it
build/NAME/report.json            the whole record                     (report.Report)
build/NAME/report.html            the same, to look at
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .errors import FULL_DISK, TconvError, Unavailable, UsageProblem
from .report import Prepared, Report, TargetReport

T = TypeVar("T")

LOCK = ".lock"
"""Empty; who works in the folder holds it, and the kernel lets go of it when they end."""
FULL = 1 << 20
"""A disk with fewer bytes left is full."""


class Workspace:
    """The folder of one build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def samples(self) -> Path:
        """The folder of the samples."""
        return self.folder / "samples"

    def artifact(self, target: str) -> Path:
        """Return the folder of a target's files."""
        return self.folder / "artifacts" / target

    def predictions(self, target: str) -> Path:
        """Return the file of what a target and the source predicted for labelled rows."""
        return self.folder / "scores" / f"{target}.npz"

    def log(self, name: str) -> Path:
        """Return the log of one job."""
        return self.folder / "logs" / f"{name}.log"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from working in the folder.

        Raises:
            Unavailable: one does already.
        """
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("w")
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(
                    f"Another tconv is at work in {self.folder}.",
                    remedy="Wait until it is done, or choose another --name or --output.",
                ) from error
            except OSError:  # a file system without locks
                pass
            yield

    def clear(self) -> None:
        """Remove what an earlier build left, but not what the source needs to be the same."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in ("source.json", "report.json", "report.html"):
                (self.folder / name).unlink(missing_ok=True)
            for name in ("samples", "artifacts", "scores", "logs"):
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def write(self, name: str, value: Any) -> None:
        """Write one record, whole or not at all."""
        self._write(name, msgspec.json.format(msgspec.json.encode(value), indent=2))

    def write_text(self, name: str, text: str) -> None:
        """Write a text, whole or not at all."""
        self._write(name, text.encode())

    def _write(self, name: str, content: bytes) -> None:
        path = self.folder / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            scratch = path.with_name(f"{path.name}.part")
            try:
                scratch.write_bytes(content)
                scratch.replace(path)
            finally:
                scratch.unlink(missing_ok=True)

    def read(self, name: str, kind: type[T]) -> T:
        """Read one record.

        Raises:
            UsageProblem: it is not there, or of another version of tconv.
        """
        path = self.folder / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except OSError as error:
            raise UsageProblem(
                f"{self.folder} is no finished workspace: it has no {name}.",
                remedy="Run `tconv build` first, or check the folder's name.",
            ) from error
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise UsageProblem(
                f"{path} can't be read: {error}.", remedy="Run `tconv build` again."
            ) from error

    def prepared(self) -> Prepared:
        """Return what is known of the source."""
        return self.read("source.json", Prepared)

    def target(self, name: str) -> TargetReport:
        """Return what is known of a target's artifact."""
        return self.read(f"artifacts/{name}.json", TargetReport)

    def report(self) -> Report:
        """Return the record of the last build."""
        return self.read("report.json", Report)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Explain what keeps `path` from being written.

    Raises:
        UsageProblem: the place can't be written to.
        Unavailable: the disk is full.
    """
    try:
        yield
    except OSError as error:
        if not _is_about(error, path):
            raise
        raise explain_write(error, path) from error


def _is_about(error: OSError, path: Path) -> bool:
    """Whether an error is of the file system, and not of a file that lies elsewhere."""
    if error.errno is None:
        return False
    if not isinstance(error.filename, str):
        return True
    place = Path(error.filename).absolute()
    return str(place).startswith(str(path)) or path.is_relative_to(place)


def check_room(folder: Path) -> None:
    """Say so where what failed may have failed for want of room: few libraries do.

    Raises:
        Unavailable: the disk is full.
    """
    with contextlib.suppress(OSError):
        if shutil.disk_usage(folder).free < FULL:
            raise explain_write(OSError(errno.ENOSPC, ""), folder)


def explain_write(error: OSError, path: Path) -> TconvError:
    """Return what a failed write means to a person."""
    if error.errno in FULL_DISK:
        return Unavailable(
            f"The disk is full: {path} could not be written.",
            remedy="Make room, or choose another folder with --output or --repository.",
        )
    return UsageProblem(
        f"{path} can't be written: {error.strerror or error}.",
        remedy="Choose a folder that you may write to, with --output or --repository.",
    )
