"""What a target wrote: its files with their digests, its interface, and what made it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from .spec import Signature


class File(msgspec.Struct, frozen=True):
    """One file of an artifact. `size` is in bytes."""

    name: str
    size: int
    sha256: str


class Artifact(msgspec.Struct, frozen=True):
    """A converted model in its folder.

    `signature` has the dtypes and shapes as the file itself declares them, under the model's own
    names. `wire_names` maps such a name to the one a server must use, where the two differ.
    """

    target: str
    recipe: str
    files: tuple[File, ...]
    signature: Signature
    wire_names: dict[str, str] = {}
    versions: dict[str, str] = {}
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    @property
    def digest(self) -> str:
        """A sha256 over the names and contents of all files."""
        listing = "\n".join(f"{file.sha256}  {file.name}" for file in self.files)
        return hashlib.sha256(listing.encode()).hexdigest()

    def wire(self, name: str) -> str:
        """Return what a server calls the tensor `name`."""
        return self.wire_names.get(name, name)


def hash_file(path: Path) -> str:
    """Return the sha256 of a file as hexadecimal digits."""
    with path.open("rb") as stream:
        if hasattr(hashlib, "file_digest"):  # Python 3.11
            return hashlib.file_digest(stream, "sha256").hexdigest()
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
        return digest.hexdigest()


def list_files(folder: Path) -> tuple[File, ...]:
    """Return every file below `folder`, by name, hashed."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple(
        File(path.relative_to(folder).as_posix(), path.stat().st_size, hash_file(path))
        for path in paths
    )
