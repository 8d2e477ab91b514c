"""What lies in a repository that Triton does not read as it looks."""

from __future__ import annotations

import re

from ..errors import UsageProblem
from .files import RepositoryFiles

_VERSION = re.compile(r"[1-9][0-9]{0,17}")


def warn_of_neighbours(files: RepositoryFiles, model: str) -> tuple[str, ...]:
    """Return a sentence on each entry that Triton passes over, misreads, or takes for a model.

    Triton reads the leading digits of a version folder's name, so `3.tmp` is version 3, and takes
    every folder in the root for a model, hidden and empty ones too.
    """
    versions = [
        f"{model}/{name} is no version, but Triton may take it for one."
        for name in files.list(model)
        if name[:1].isdigit() and not _VERSION.fullmatch(name)
    ]
    models = (_warn_of_model(files, name) for name in files.list("") if name != model)
    return tuple(versions + [warning for warning in models if warning])


def _warn_of_model(files: RepositoryFiles, name: str) -> str:
    try:
        if not files.is_folder(name):
            return ""
        if name.startswith("."):
            return f"{name} is hidden, but Triton takes it for a model."
        if "config.pbtxt" not in files.list(name):
            return f"{name} has no config.pbtxt, and Triton may fail to load it."
    except UsageProblem:
        return f"{name} is a link out of the repository."
    return ""
