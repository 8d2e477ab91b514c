"""What there is of a published model, whether it is whole, and the way back to an older version."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..artifact import hash_file
from ..errors import TconvError, UsageProblem
from .ledger import Entry, Intent, State
from .names import validate_name
from .plan import Before, look
from .remote import RemoteTriton, grpc_address
from .repository import pinned, pins_of, read_manifest, versions_of
from .template import DIGEST
from .transaction import Change, Site, switch
from .verify import verify_others

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


class Version(msgspec.Struct, frozen=True):
    """A version of a model. `served` is what the server's index says of it, if it was asked.

    `when` and `by` are of the last time that it was published or rolled back to; `build` is what
    made its files.
    """

    version: int
    on_disk: bool
    pinned: bool
    served: str | None = None
    digest: str = ""
    created: str = ""
    build: str = ""
    when: str = ""
    by: str = ""


class Verified(msgspec.Struct, frozen=True):
    """A version whose files were hashed. `problems` has a sentence on each that is not whole."""

    model: str
    version: int
    files: int
    problems: tuple[str, ...]


class RolledBack(msgspec.Struct, frozen=True):
    """The version that is served again, and the one that was."""

    model: str
    version: int
    previous: int | None
    digest: str


def list_versions(repository: str, model: str, url: str | None) -> list[Version]:
    """Return all versions of a model; with `url`, what the server says of them as well.

    Raises:
        UsageProblem: there is no such model.
        Unavailable: the server cannot be reached.
    """
    home, state = _home(repository, model), State(Path(repository))
    served: dict[int, str] = {}
    if url is not None:
        with RemoteTriton(grpc_address(url)) as server:
            served = {v: s for (name, v), s in server.versions().items() if name == model}
    published = {entry.version: entry for entry in state.read(model).history}
    on_disk = versions_of(home)
    numbers = sorted({*on_disk, *served, *published})
    return [
        _describe(home, n, n in on_disk, published.get(n), served.get(n, "") if url else None)
        for n in numbers
    ]


def verify_files(repository: str, model: str) -> list[Verified]:
    """Hash the files of every version that is pinned, and compare them with their manifest.

    Raises:
        UsageProblem: there is no such model, or it has no manifest.
    """
    home = _home(repository, model)
    return [_verify(home, version) for version in pins_of(home)]


def roll_back(site: Site, model: str, to: int | None = None) -> RolledBack:
    """Serve an older version again; what serves now comes back if that does not answer.

    Raises:
        UsageProblem: there is no such version.
        PublishError: it does not load; what was served before answers again.
        RollbackError: … and that does not answer either.
    """
    home = _home(str(site.state.repository), model)
    before = look(site, model)
    if before.config is None:
        raise UsageProblem(f"{model} has no config.", remedy="Publish it first.")
    version = to or _older(site, home, before)
    entry, manifest = _entry(site, model, version), read_manifest(home / str(version))
    config = _config(before, entry, version, manifest.digest)
    ready = site.server.ready()
    intent = Intent(model, version, before.version, before.text, before.digest, added=False)
    change = Change(intent, config.SerializeToString(), manifest.digest, (version,))

    def prove() -> int:
        verify_others(site.server, model, ready)
        return 0

    switch(site, change, prove)
    return RolledBack(model, version, before.version, manifest.digest)


def _older(site: Site, home: Path, before: Before) -> int:
    """Return the version that was published last before the one that is served."""
    live = before.version or max(pins_of(home), default=0)
    there = set(versions_of(home)) - {live}
    history = [e.version for e in site.state.read(home.name).history if e.version in there]
    older = history or sorted(v for v in there if v < live)
    if not older:
        raise UsageProblem(
            f"{home.name} has no version to go back to.",
            remedy=f"Look at `tconv versions {home.name}`, and publish what you want served.",
        )
    return older[-1]


def _entry(site: Site, model: str, version: int) -> Entry | None:
    entries = [e for e in site.state.read(model).history if e.version == version]
    return entries[-1] if entries else None


def _config(before: Before, entry: Entry | None, version: int, digest: str) -> ModelConfig:
    """Return what the version was served by; of one that tconv never published, what is there."""
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    config = ModelConfig.FromString(entry.config) if entry else before.parsed
    config = pinned(config, version)
    config.parameters[DIGEST].string_value = digest
    return config


def _home(repository: str, model: str) -> Path:
    home = Path(repository) / validate_name(model)
    if not home.is_dir():
        raise UsageProblem(
            f"There is no model {model} in {repository}.",
            remedy="Give the folder that the server serves with --repository.",
        )
    return home


def _describe(
    home: Path, version: int, on_disk: bool, entry: Entry | None, served: str | None
) -> Version:
    digest, created, build = (entry.digest if entry else ""), "", ""
    if on_disk:
        try:
            manifest = read_manifest(home / str(version))
        except UsageProblem:  # somebody else's
            pass
        else:
            digest, created = manifest.digest, manifest.created
            build = f"tconv {manifest.tconv}, {manifest.artifact.recipe}"
    when, by = (entry.when, entry.by) if entry else ("", "")
    pins = version in pins_of(home)
    return Version(version, on_disk, pins, served, digest, created, build, when, by)


def _verify(home: Path, version: int) -> Verified:
    folder = home / str(version)
    files = read_manifest(folder).artifact.files
    problems = []
    for file in files:
        path = folder / file.name
        try:
            if hash_file(path) != file.sha256:
                problems.append(f"{path} is not the file that was published.")
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror}.")
    return Verified(home.name, version, len(files), tuple(problems))


def check_whole(found: list[Verified]) -> None:
    """Raise where a version is not whole.

    Raises:
        TconvError: says which file.
    """
    problems = [problem for one in found for problem in one.problems]
    if problems:
        raise TconvError(
            " ".join(problems), remedy="Publish the model again: it gets a new version."
        )
