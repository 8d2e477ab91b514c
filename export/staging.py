"""Writing that is whole or absent: copies that are hashed and flushed, then renamed into place."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..artifact import File
from ..errors import FULL_DISK, TconvError, Unavailable, UsageProblem

_BLOCK = 4 << 20
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_NO_FSYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}
_NO_FOLDER = {errno.ENOTDIR, errno.EEXIST}


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn what the operating system says about writing below `folder` into an error with a remedy.

    Raises:
        UsageProblem: it is read-only, or no folder.
        Unavailable: the disk is full, or fails.
    """
    try:
        yield
    except OSError as error:
        raise _explain(error, folder) from error


def _explain(error: OSError, folder: Path) -> TconvError:
    where, reason = error.filename or folder, error.strerror or str(error)
    if error.errno in FULL_DISK:
        return Unavailable(
            f"There is no space left for {folder}.",
            remedy="Free some space, or choose another --repository.",
        )
    if error.errno in _FORBIDDEN:
        return UsageProblem(
            f"{where} cannot be written: {reason}.",
            remedy="Choose a --repository that you may write to.",
        )
    if error.errno in _NO_FOLDER:
        return UsageProblem(
            f"{where} is a file, and a folder is needed.",
            remedy="Choose another --repository, or move the file away.",
        )
    return Unavailable(
        f"{where} cannot be written: {reason}.",
        remedy="Check the disk, or choose another --repository.",
    )


@contextlib.contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and remove what was made if a failure leaves it empty."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def staging_folder(repository: Path, model: str) -> Iterator[Path]:
    """Give an empty folder on the filesystem of the model's folder; it is removed at the end.

    Triton takes every folder in a repository's root for a model, hidden ones too, so it lies beside
    the root. Where that is another filesystem, or closed, it lies in the model's folder: there
    Triton passes over what is no number.
    """
    with contextlib.ExitStack() as stack:
        place, prefix = repository.parent, f".{repository.name}.staging-"
        if not _may_stage_in(place, repository, repository / model):
            place, prefix = repository / model, ".staging-"
            stack.enter_context(made_folder(place))
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def _may_stage_in(place: Path, *targets: Path) -> bool:
    device = place.stat().st_dev
    same = all(path.stat().st_dev == device for path in targets if path.exists())
    return same and os.access(place, os.W_OK | os.X_OK)


def copy_file(file: File, source: Path, target: Path) -> None:
    """Copy one file of an artifact and flush it, proving that it is what the artifact says.

    It is never linked: ONNX Runtime refuses external data that is a link out of the model's folder.

    Raises:
        TconvError: the file has changed since the artifact was made, or is gone.
    """
    origin = source / file.name
    written = target / file.name
    written.parent.mkdir(parents=True, exist_ok=True)
    try:
        reading = origin.open("rb")
    except OSError as error:
        raise _changed(origin, f"cannot be read: {error.strerror}") from error
    digest = hashlib.sha256()
    with reading, written.open("xb") as writing:
        while block := reading.read(_BLOCK):
            digest.update(block)
            writing.write(block)
        writing.flush()
        os.fsync(writing.fileno())
    if digest.hexdigest() != file.sha256:
        raise _changed(origin, "is not the file that was validated")


def _changed(path: Path, how: str) -> TconvError:
    return TconvError(f"{path} {how}.", remedy="Build the model again.")


def write_flushed(path: Path, content: bytes) -> None:
    """Write a new file and flush it to the disk."""
    with path.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def flush_folder(folder: Path) -> None:
    """Make the folder's entries last; filesystems that cannot are left to themselves."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FSYNC:
            raise
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Make all folders below `folder` last, and itself."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            flush_folder(path)
    flush_folder(folder)
