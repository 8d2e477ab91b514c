"""Accepted artifacts by their digest: what a baseline's latency is measured with again.

STORE/<digest>/artifact.json      the last file that is written: without it there is nothing
STORE/<digest>/files/model.onnx   …
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..artifact import Artifact, hash_file
from ..errors import TconvError, Unavailable

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_RECORD, _FILES = "artifact.json", "files"


class ArtifactStore:
    """A folder, or an object store that fsspec knows by its address (`s3://bucket/path`).

    Raises:
        Unavailable: fsspec does not know it, or lacks the package for it.
    """

    def __init__(self, place: str) -> None:
        from fsspec.core import url_to_fs

        self.place = place
        with _reaching(place):
            found: tuple[AbstractFileSystem, str] = url_to_fs(place, auto_mkdir=True)
        self._files, self._root = found

    def put(self, folder: Path, artifact: Artifact) -> None:
        """Keep an artifact; does nothing if it is there.

        Raises:
            Unavailable: the store can't be written.
        """
        home = f"{self._root}/{artifact.digest}"
        with _reaching(self.place):
            if self._files.exists(f"{home}/{_RECORD}"):
                return
            for file in artifact.files:
                self._files.put_file(str(folder / file.name), f"{home}/{_FILES}/{file.name}")
            self._files.pipe_file(f"{home}/{_RECORD}", msgspec.json.encode(artifact))

    def fetch(self, digest: str, folder: Path) -> Artifact:
        """Bring an artifact into the empty `folder`, and check every byte of it.

        Raises:
            Unavailable: it is not there, or is not what it was.
        """
        home = f"{self._root}/{digest}"
        with _reaching(self.place):
            if not self._files.exists(f"{home}/{_RECORD}"):
                raise _lost(f"{self.place} holds no artifact {digest[:12]}.")
            artifact = msgspec.json.decode(self._files.cat_file(f"{home}/{_RECORD}"), type=Artifact)
            for file in artifact.files:
                path = folder / file.name
                path.parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(f"{home}/{_FILES}/{file.name}", str(path))
                if hash_file(path) != file.sha256:
                    raise _lost(f"{file.name} of {digest[:12]} in {self.place} was changed.")
        if artifact.digest != digest:
            raise _lost(f"The artifact {digest[:12]} in {self.place} was changed.")
        return artifact


def _lost(problem: str) -> Unavailable:
    return Unavailable(
        problem,
        remedy="Build the baseline again and accept it, or give the store it lies in: --store.",
    )


@contextmanager
def _reaching(place: str) -> Iterator[None]:
    """Say that a store can't be used, whatever its library raises."""
    try:
        yield
    except TconvError:
        raise
    except Exception as error:
        raise Unavailable(
            f"The store {place} can't be used: {type(error).__name__}: {error}.",
            remedy="Check --store and what it needs: a folder that you may write to, "
            "credentials, the network.",
        ) from error
