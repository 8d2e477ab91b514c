"""Every step of a publish that touches a repository, behind one short protocol.

A path is relative to the root, with `/`. Each call that changes something is durable when it
returns, and whole or absent to a reader: a store without rename may fulfil that in its own way.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Protocol

from ..errors import UsageProblem
from .staging import flush_folder, flush_tree, write_flushed


class RepositoryFiles(Protocol):
    """What a transaction asks of a store."""

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        ...

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None where there is no such file."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Make a file have this content, at one moment."""
        ...

    def bring(self, staged: Path, path: str) -> None:
        """Bring a folder in, from this machine; there is nothing at `path` yet."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file or a folder, if it is there; a folder that is left empty stays."""
        ...


class LocalFiles:
    """A folder of this machine; nothing outside it is touched, and no link in it is followed.

    `scratch` is a folder outside the root, on the same filesystem, for what is not yet whole.
    """

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root, self.scratch = root, scratch

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where there is no such folder."""
        folder = self._at(path)
        return tuple(sorted(entry.name for entry in folder.iterdir())) if folder.is_dir() else ()

    def is_folder(self, path: str) -> bool:
        """Whether there is a folder."""
        return self._at(path).is_dir()

    def read(self, path: str) -> bytes | None:
        """Return a file's content, or None where there is no such file."""
        try:
            return self._at(path).read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        """Write beside the root, flush, and rename."""
        target = self._at(path)
        if self.read(path) == content:
            return
        part = self.scratch / f"{target.name}.part"
        part.unlink(missing_ok=True)
        write_flushed(part, content)
        if not target.parent.is_dir():
            target.parent.mkdir()
            flush_folder(target.parent.parent)
        os.replace(part, target)
        flush_folder(target.parent)

    def bring(self, staged: Path, path: str) -> None:
        """Flush everything below `staged`, and rename it."""
        target = self._at(path)
        flush_tree(staged)
        staged.rename(target)
        flush_folder(target.parent)

    def remove(self, path: str) -> None:
        """Take the name away with one rename, then what it named."""
        target = self._at(path)
        if not target.exists():
            return
        if target.is_dir():
            gone = self.scratch / f"removed-{target.name}"
            shutil.rmtree(gone, ignore_errors=True)
            target.rename(gone)
            flush_folder(target.parent)
            shutil.rmtree(gone, ignore_errors=True)
        else:
            target.unlink()
            flush_folder(target.parent)

    def _at(self, path: str) -> Path:
        """Return where `path` is.

        Raises:
            UsageProblem: it leaves the root, or goes through a link.
        """
        parts = PurePosixPath(path).parts
        if path.startswith("/") or ".." in parts:
            raise UsageProblem(
                f"{path!r} is outside the repository.", remedy="Name a model of the repository."
            )
        place = self.root
        for part in parts:
            place = place / part
            if place.is_symlink():
                raise UsageProblem(
                    f"{place} is a link, which tconv does not follow out of the repository.",
                    remedy="Put the folder itself there, or give its own place with --repository.",
                )
        return place
