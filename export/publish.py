"""Bring an exported version to a running server: it answers right, or it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from ..errors import PublishError, TconvError, Unavailable, UsageProblem
from ..report import Prepared
from ..validate.tolerance import Tolerances
from .candidate import try_candidate
from .config import to_text
from .contract import check_contract
from .ledger import Intent, State
from .names import validate_name
from .neighbours import warn_of_neighbours
from .plan import Before, Plan, look, make_plan
from .remote import RemoteTriton, grpc_address, http_address
from .repository import CONFIG, fill_version, read_config, read_manifest, versions_of
from .staging import explained, write_flushed
from .transaction import Change, Site, recover, switch
from .verify import Served, Truth, verify_answers, verify_others

CLIENTS = 3
"""That ask at once, in the end."""


class PublishRequest(msgspec.Struct, frozen=True):
    """What to publish, and where.

    `source` is a version folder as `build` exports it, `samples` the folder of the build's samples,
    `repository` the folder that the server at `url` serves. Timeouts are in seconds. `keep` is how
    many versions beside those that are served stay on disk; None: all.
    """

    source: str
    samples: str
    prepared: Prepared
    repository: str
    url: str = "localhost:8001"
    http_url: str | None = None
    tolerances: Tolerances = Tolerances()
    load_timeout: float = 300.0
    request_timeout: float = 60.0
    also_serve: tuple[int, ...] = ()
    keep: int | None = None
    allow_contract_change: bool = False
    dry_run: bool = False


class Published(msgspec.Struct, frozen=True):
    """A version that answers right. `previous` is the one it took the place of.

    `unchanged`: it was served already. `plan`: what would be done; nothing was.
    """

    model: str
    version: int
    previous: int | None
    digest: str
    checks: int
    folder: str
    unchanged: bool = False
    serves: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()
    plan: tuple[str, ...] = ()


@contextmanager
def opened(
    repository: str,
    url: str,
    load_timeout: float,
    request_timeout: float,
    *,
    lock: bool = True,
    recovering: bool = True,
    model: str = "",
) -> Iterator[Site]:
    """Give a server and its repository, locked, and nothing in it left open by a kill.

    Raises:
        UsageProblem: there is no such folder, or the server takes no orders.
        Unavailable: the server cannot be reached, or another tconv publishes.
    """
    if not Path(repository).is_dir():
        raise UsageProblem(
            f"There is no folder {repository}.",
            remedy="Give the folder that the server serves with --repository.",
        )
    state = State(Path(repository))
    with RemoteTriton(grpc_address(url)) as server:
        server.require_control()
        site = Site(server, state, load_timeout, request_timeout)
        if not lock:
            yield site
            return
        with ExitStack() as stack:
            with _explained_by_old(site, model):
                stack.enter_context(state.locked())
            if recovering:
                recover(site)
            yield site


@contextmanager
def _explained_by_old(site: Site, model: str) -> Iterator[None]:
    """Where the disk fails before anything was looked at, see that the old version answers."""
    try:
        yield
    except Unavailable as error:
        disk = isinstance(error.__cause__, OSError)
        if not disk or isinstance(error.__cause__, BlockingIOError):
            raise
        if (version := site.server.ready().get(model)) is None:
            raise
        raise _nothing_replaced(error, version) from error


def _nothing_replaced(error: TconvError, version: int) -> PublishError:
    return PublishError(
        f"{error.problem.rstrip('.')}. Nothing was replaced; version {version} answers.",
        remedy=error.remedy,
    )


def recover_all(
    repository: str, url: str, load_timeout: float, request_timeout: float
) -> tuple[str, ...]:
    """Close what a kill left open, and return the models that it was.

    Raises:
        TconvError: as `opened` and `transaction.recover` do.
    """
    with opened(repository, url, load_timeout, request_timeout, recovering=False) as site:
        return recover(site)


def publish(request: PublishRequest, say: Callable[[str], None] = lambda _: None) -> Published:
    """Load a version on the server and check its answers, or bring back what was there before.

    Raises:
        UsageProblem: the request cannot be carried out; nothing was changed.
        Unavailable: the server cannot be reached or does not answer; nothing is served that was
            not served before.
        TconvError: the version would break clients; or it does not answer right, and there was none
            before, and it is gone again.
        PublishError: the version does not answer right; the one before was seen to answer again.
        RollbackError: … and the one before was not.
    """
    source = Path(request.source)
    manifest = read_manifest(source)
    validate_name(manifest.model)
    with opened(
        request.repository,
        request.url,
        request.load_timeout,
        request.request_timeout,
        lock=not request.dry_run,
        model=manifest.model,
    ) as site:
        warnings = warn_of_neighbours(site.files, manifest.model)
        for warning in warnings:
            say(f"warning: {warning}")
        before = look(site, manifest.model)
        plan = make_plan(site, source, before, request.also_serve)
        if before.config is not None and not request.allow_contract_change:
            check_contract(before.parsed, plan.parsed, before.version)
        done = _carry_out(site, request, plan, before)
        return msgspec.structs.replace(done, warnings=warnings)


def _carry_out(site: Site, request: PublishRequest, plan: Plan, before: Before) -> Published:
    result = Published(
        plan.model,
        plan.version,
        before.version if before.version != plan.version else None,
        plan.artifact.digest,
        0,
        str(site.state.repository / plan.model / str(plan.version)),
        plan.unchanged,
        plan.serves,
    )
    if request.dry_run:
        return msgspec.structs.replace(result, plan=plan.steps(request.keep))
    if plan.unchanged:
        return msgspec.structs.replace(result, checks=_prove(site, request, plan))
    ready = site.server.ready()
    with _untouched(site, plan.model, before):
        staged = _stage(site, plan)
        _try(site, request, plan, staged)
    intent = Intent(
        plan.model,
        plan.version,
        before.version,
        before.text,
        before.digest,
        plan.added,
        plan.new_home,
    )
    change = Change(
        intent,
        plan.config,
        plan.artifact.digest,
        plan.serves,
        None if staged is None else str(staged),
    )

    def prove() -> int:
        verify_others(site.server, plan.model, ready)
        return _prove(site, request, plan)

    checks = switch(site, change, prove)
    removed = prune(site, plan.model, request.keep)
    return msgspec.structs.replace(result, checks=checks, removed=removed)


@contextmanager
def _untouched(site: Site, model: str, before: Before) -> Iterator[None]:
    """See that the old version answers still, where it fails before anything was replaced."""
    try:
        yield
    except TconvError as error:
        if before.version is None:
            raise
        try:
            site.server.wait(model, before.version, site.request_timeout)
        except TconvError:
            raise error from None
        raise _nothing_replaced(error, before.version) from error


def _stage(site: Site, plan: Plan) -> Path | None:
    """Copy what is to be brought in to the state folder, hashed and flushed."""
    if not plan.added:
        return None
    with explained(site.state.repository):
        site.reserve(plan.model, plan.version)
        folder = site.state.staging / "new" / plan.model / str(plan.version)
        fill_version(folder, plan.model, plan.version, plan.artifact, Path(plan.source))
        write_flushed(folder.parent / CONFIG, to_text(plan.parsed).encode())
    return folder


def _try(site: Site, request: PublishRequest, plan: Plan, staged: Path | None) -> None:
    truth = Truth(request.samples, request.prepared, request.tolerances)
    folder = staged or site.state.repository / plan.model / str(plan.version)
    alone = plan.pinned_alone()
    try_candidate(
        site.server,
        alone,
        plan.version,
        folder,
        plan.artifact,
        truth,
        request.load_timeout,
        request.request_timeout,
    )


def _prove(site: Site, request: PublishRequest, plan: Plan) -> int:
    """Ask through both protocols, and from several clients at once; return the checks."""
    served = Served(plan.model, plan.version, plan.artifact, plan.parsed.max_batch_size)
    truth = Truth(request.samples, request.prepared, request.tolerances)
    http = http_address(request.http_url, site.server.address)

    def ask(_: int) -> int:
        return verify_answers(site.server.address, "grpc", served, truth, request.request_timeout)

    checks = ask(0) + verify_answers(http, "http", served, truth, request.request_timeout)
    with ThreadPoolExecutor(CLIENTS) as pool:
        return checks + sum(pool.map(ask, range(CLIENTS)))


def prune(site: Site, model: str, keep: int | None) -> tuple[int, ...]:
    """Remove all versions of tconv's that are not served, but the newest `keep`."""
    if keep is None:
        return ()
    home = site.state.repository / model
    pins = set(read_config(home / CONFIG).version_policy.specific.versions)
    old = [
        v for v in versions_of(home) if v not in pins and (home / str(v) / "tconv.json").exists()
    ]
    gone = tuple(old[: max(0, len(old) - keep)])
    with explained(site.state.repository):
        for version in gone:
            site.files.remove(f"{model}/{version}")
    return gone
