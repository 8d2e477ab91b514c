"""The steps of a publish that can't be taken by halves: journal, switch, prove, or go back.

One rename of `config.pbtxt` decides which version is served. Before it the journal says what to put
back; after it the server is asked, and the old version is never unloaded first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..errors import PublishError, RollbackError, TconvError
from .config import to_text
from .ledger import Entry, Intent, State, now, who
from .remote import RemoteTriton
from .repository import CONFIG
from .staging import explained
from .verify import verify_config

if TYPE_CHECKING:
    from tritonclient.grpc.model_config_pb2 import ModelConfig


class Site:
    """A server and the repository it serves. Timeouts are in seconds; the state must be locked."""

    def __init__(
        self, server: RemoteTriton, state: State, load_timeout: float, request_timeout: float
    ) -> None:
        self.server, self.state, self.files = server, state, state.files
        self.load_timeout, self.request_timeout = load_timeout, request_timeout

    def reserve(self, model: str, version: int) -> None:
        """Give a number out: it is never used again, whatever becomes of it."""
        ledger = self.state.read(model)
        self.state.write(
            model, msgspec.structs.replace(ledger, highest=max(version, ledger.highest))
        )


class Change(msgspec.Struct, frozen=True):
    """What is to be served: `staged` is what to bring in, if it is not in the repository yet."""

    intent: Intent
    config: bytes
    digest: str
    serves: tuple[int, ...]
    staged: str | None = None

    @property
    def parsed(self) -> ModelConfig:
        """The config as a protobuf."""
        from tritonclient.grpc.model_config_pb2 import ModelConfig

        return ModelConfig.FromString(self.config)


def switch(site: Site, change: Change, prove: Callable[[], int]) -> int:
    """Serve what `change` says and prove it, or bring back what there was; return the checks.

    Raises:
        PublishError: it does not hold; the version before was seen to answer again.
        RollbackError: … and the way back could not be proven.
        TconvError: it does not hold, and there was no version before; it is gone again.
    """
    intent, root = change.intent, site.state.repository
    try:
        with explained(root):
            _open(site, intent)
            _place(site, change)
        _load(site, change)
        checks = prove()
        with explained(root):
            _close(site, intent.model, _entry(change))
    except BaseException as error:
        _give_up(site, intent, error)
        raise
    return checks


def recover(site: Site) -> tuple[str, ...]:
    """Close what a kill left open, and return the models that it was; once more changes nothing.

    Raises:
        RollbackError: what there was could not be shown to answer; the journal stays open.
    """
    closed = []
    for model in site.state.models():
        intent = site.state.read(model).open
        if intent is None:
            continue
        try:
            _go_back(site, intent)
        except Exception as failure:
            raise _needs_person(site, intent, "A publish was cut off", failure) from failure
        closed.append(model)
    return tuple(closed)


def _open(site: Site, intent: Intent) -> None:
    ledger = site.state.read(intent.model)
    highest = max(ledger.highest, intent.version)
    site.state.write(intent.model, msgspec.structs.replace(ledger, highest=highest, open=intent))


def _close(site: Site, model: str, entry: Entry | None = None) -> None:
    ledger = site.state.read(model)
    history = (*ledger.history, entry) if entry else ledger.history
    site.state.write(model, msgspec.structs.replace(ledger, open=None, history=history))


def _entry(change: Change) -> Entry:
    return Entry(change.intent.version, change.digest, now(), who(), change.config, change.serves)


def _place(site: Site, change: Change) -> None:
    intent, text = change.intent, to_text(change.parsed).encode()
    if change.staged is not None:
        staged = Path(change.staged)
        if intent.new_home:  # a new model appears at once, with its config
            site.files.bring(staged.parent, intent.model)
            return
        site.files.bring(staged, f"{intent.model}/{intent.version}")
    site.files.replace(f"{intent.model}/{CONFIG}", text)


def _load(site: Site, change: Change) -> None:
    model = change.intent.model
    site.server.load(model, site.load_timeout)
    for version in change.serves:
        site.server.wait(model, version, site.request_timeout)
    verify_config(site.server, model, change.digest)


def _give_up(site: Site, intent: Intent, error: BaseException) -> None:
    """Bring back what there was, and raise what tells how that went, where more is to be said."""
    said = error.problem if isinstance(error, TconvError) else f"{type(error).__name__}: {error}"
    try:
        _go_back(site, intent)
    except Exception as failure:
        raise _needs_person(site, intent, said, failure) from error
    if intent.previous is not None and isinstance(error, Exception):
        raise PublishError(
            f"{said.rstrip('.')}. Version {intent.previous} answers again.",
            remedy=error.remedy if isinstance(error, TconvError) else "Look at the server's log.",
        ) from error


def _go_back(site: Site, intent: Intent) -> None:
    """Put the old config back, prove that what answered before answers, remove what was added."""
    with explained(site.state.repository):
        _restore(site, intent)
        if intent.previous is not None:
            site.server.load(intent.model, site.load_timeout)
            site.server.wait(intent.model, intent.previous, site.request_timeout)
            verify_config(site.server, intent.model, intent.digest)
        if intent.added and not intent.new_home:
            site.files.remove(f"{intent.model}/{intent.version}")
        _close(site, intent.model)


def _restore(site: Site, intent: Intent) -> None:
    if intent.previous is None:
        with contextlib.suppress(TconvError):
            site.server.unload(intent.model)
    if intent.config is not None:
        site.files.replace(f"{intent.model}/{CONFIG}", intent.config)
    elif intent.new_home:
        site.files.remove(intent.model)
    else:
        site.files.remove(f"{intent.model}/{CONFIG}")


def _needs_person(site: Site, intent: Intent, said: str, failure: Exception) -> RollbackError:
    old = f"version {intent.previous}" if intent.previous else "what there was"
    why = failure.problem if isinstance(failure, TconvError) else str(failure)
    return RollbackError(
        f"{said.rstrip('.')}. {old[0].upper()}{old[1:]} of {intent.model} could not be brought "
        f"back: {why}",
        remedy=f"See that the server at {site.server.address} runs, and then run: tconv publish "
        f"--recover --url {site.server.address} --repository {site.state.repository}",
    )
