"""The checks of `spotctl doctor`: this computer, its runs, the buckets of its data, and each
configured cloud.
"""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pricing_data.errors import CloudError, PricingDataError
from pricing_data.library import STALE
from pricing_data.units import SECOND, age, counted
from spotctl.agent.data.sets import gigabytes
from spotctl.agent.data.stores import StoreRefused, StoreUnavailable
from spotctl.clouds.doctor import Finding, Level, all_found, exit_code, refused
from spotctl.clouds.errors import Answers, ProviderError
from spotctl.clouds.wiring import cloud_provider, doctor_of
from spotctl.files.job.reader import load
from spotctl.home.callbacks import unheard
from spotctl.home.cloud import cloud_of, rented_clouds
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.home.paths import Paths
from spotctl.run.environment import LAUNCHER
from spotctl.run.notify import Message, deliver
from spotctl.run.stored_data.removing import DataUses, missing_sets
from spotctl.show.columns import Column, if_any

if TYPE_CHECKING:
    from spotctl.agent.data.locations import StoreIdentity
    from spotctl.home.config import Settings

OLDEST_PYTHON = (3, 11)
MIN_FREE = 1 << 30

_MARKS = {
    Level.GOOD: ("good", "green"),
    Level.NOTE: ("note", "cyan"),
    Level.FAILS: ("FAILS", "red"),
    Level.NO_ACCESS: ("FAILS", "red"),
}

_CURE = "allow listing, reading, writing and deleting below spotctl-data/ there"


def of_addresses(file: Path, now: int) -> Iterator[Finding]:
    """Whether each address that a job file names takes a test message."""
    spec = load(file)
    if not spec.notify.has_receivers:
        raise BadRequest(
            f"{file}: names no address; add notify: {{webhook: https://...}}, or notify: {{to: [$NAME]}}"
        )

    lines = {"What happened": "nothing: this is the test message of spotctl doctor"}
    facts = {"event": "test", "job": spec.name}
    message = Message(f"{spec.name}-test-{now}", f"{spec.name}: a test message", True, lines, facts)
    for delivery in deliver(message, spec.notify):
        if delivery.failure:
            reason, _, cure = delivery.failure.partition("; ")
            yield Finding(
                "messages",
                delivery.receiver,
                Level.FAILS,
                reason,
                cure or "set it, or correct the address",
            )
        else:
            yield Finding("messages", delivery.receiver, Level.GOOD, "took a test message")


FINDING: tuple[Column[Finding], ...] = (
    Column("about", "what it belongs to: here, runs, prices, data, messages, or a cloud"),
    Column("what", "what was checked"),
    Column(
        "level", "`good`, `note`, `fails`, or `no access` (to a cloud)", attrgetter("level.value")
    ),
    Column("told", "what was found", attrgetter("detail")),
    Column(
        "cure",
        "how to fix it; null if there is nothing to fix",
        form=if_any,
    ),
)
FINDINGS: tuple[Column[Sequence[Finding]], ...] = (
    Column("exit_code", "exit code of the command", exit_code),
    Column("findings", "the checks", list, each=FINDING),
)
"""The JSON of `spotctl doctor`."""


def report(findings: Sequence[Finding]) -> Group:
    """The findings by group, each followed by its cure."""
    parts: list[RenderableType] = []
    for about, group in groupby(findings, key=attrgetter("about")):
        table = Table.grid(padding=(0, 2, 0, 0))
        for finding in group:
            word, style = _MARKS[finding.level]
            table.add_row(Text(f"  {word}", style=style), Text(f"{finding.what}: {finding.detail}"))
            if finding.cure:
                table.add_row("", Text(f"-> {finding.cure}"))
        parts += [Text(about, style="bold"), table]

    return Group(*parts)


def of_this_computer(settings: Settings, now: int) -> Iterator[Finding]:
    """Checks that need no other computer: versions, the home folder, prices, nights and runs."""
    yield _python()

    try:
        sdks = [sdk for cloud in rented_clouds() for sdk in cloud_of(cloud).packages[:1]]
        detail = ", ".join(f"{name} {version(name)}" for name in ("spotctl", *sdks))
        yield Finding("here", "versions", Level.GOOD, detail)
    except PackageNotFoundError as error:
        yield Finding(
            "here", "versions", Level.FAILS, f"{error.name} is not installed", "pip install spotctl"
        )
    for module, extra, used_for in (
        optional for cloud in rented_clouds() for optional in cloud_of(cloud).extras
    ):
        if not _is_installed(module):
            detail = f"not installed; for {used_for}"
            cure = f"pip install 'spotctl[{extra}]'"
            yield Finding("here", f"extra {extra}", Level.NOTE, detail, cure)

    yield _home(settings.home)
    yield _disk(settings.home)
    yield _scheduler()

    from spotctl.nightly.health import job_answer
    from spotctl.nightly.install import Timers
    from spotctl.nightly.state_dir import state_dirs

    for state_dir in state_dirs(settings.home.resolve()):
        job = job_answer(state_dir, Timers.of_this_user(), now)
        levels = [*((text, Level.FAILS) for text in job["problems"]), (job["renew"], Level.NOTE)]
        for text, level in levels:
            detail, _, cure = text.rpartition("; ")
            if not detail:
                detail = text
                cure = "fix it, then run spotctl nightly ls --check"
            if text:
                yield Finding("here", f"nightly {state_dir.name}", level, detail, cure)

    yield from _prices(settings, now)
    yield from _runs(settings)


def _python() -> Finding:
    detail = f"Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Finding("here", "python", Level.FAILS, detail, f"install Python {oldest} or newer")
    if sys.platform != "linux":
        return Finding(
            "here", "python", Level.NOTE, f"{detail}: the local market is tested on Linux only"
        )

    return Finding("here", "python", Level.GOOD, detail)


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _home(home: Path) -> Finding:
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home):
            return Finding("here", "home", Level.GOOD, f"{home} is writable")
    except OSError as error:
        detail = f"{home} is not writable: {error.strerror or error}"
        return Finding(
            "here",
            "home",
            Level.FAILS,
            detail,
            "change its owner, or name another folder with --home or SPOTCTL_HOME",
        )


def _disk(home: Path) -> Finding:
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    detail = f"{free / (1 << 30):,.1f} GiB free in {there}"
    if free < MIN_FREE:
        return Finding(
            "here",
            "disk",
            Level.FAILS,
            detail,
            "free some space: the event log is written before each rental",
        )

    return Finding("here", "disk", Level.GOOD, detail)


def _scheduler() -> Finding:
    from spotctl.nightly.schedulers import Crontab, UserManager, daemon_runs

    if UserManager.of_this_user().is_running():
        return Finding("here", "nightly", Level.GOOD, "systemd user manager")
    if Crontab().is_there() and daemon_runs() is not False:
        return Finding("here", "nightly", Level.GOOD, "cron")

    detail = (
        "neither cron nor a systemd user manager is running, so spotctl nightly cannot be installed"
    )
    return Finding(
        "here", "nightly", Level.NOTE, detail, "install and start cron, or log in with systemd"
    )


def _prices(settings: Settings, now: int) -> Iterator[Finding]:
    from spotctl.clouds import wiring

    try:
        newest: dict[str, int] = {}
        for series in wiring.price_store(settings).table():
            newest[series.market.cloud] = max(newest.get(series.market.cloud, 0), series.last)
    except PricingDataError as error:
        yield Finding(
            "prices",
            "stored",
            Level.FAILS,
            str(error),
            "run spotctl lab prices ls --check, which lists cures",
        )
        return

    if not newest:
        detail = "only the shipped prices of the local market"
        yield Finding(
            "prices",
            "stored",
            Level.NOTE,
            detail,
            "run spotctl prices fetch, or spotctl prices import FILE",
        )

    for cloud, last in sorted(newest.items()):
        detail = f"newest {age((now - last) / SECOND)} old"
        if now - last > STALE:
            yield Finding(
                "prices", cloud, Level.NOTE, detail, f"run spotctl prices fetch --cloud {cloud}"
            )
        else:
            yield Finding("prices", cloud, Level.GOOD, detail)


def _runs(settings: Settings) -> Iterator[Finding]:
    from spotctl.log.ledger_reader import present_of
    from spotctl.log.state import RunState
    from spotctl.log.statuses import read_log
    from spotctl.run.orphans import orphans
    from spotctl.show.runs.run_view import status_word

    try:
        words = list[tuple[RunState, str]]()
        log = read_log(settings)
        for state in log.latest:
            _, attended = present_of(state, settings)
            words.append((state, status_word(state, attended=attended)))
        searched = orphans(settings, unheard, ("local", *log.clouds))
    except (SpotctlError, PricingDataError) as error:
        yield Finding("runs", "log", Level.FAILS, str(error), "run spotctl --debug status")
        return

    interrupted = [state for state, word in words if word == "interrupted"]
    for state in interrupted:
        job = "" if state.began is None else state.began.job
        detail = f"interrupted, with {len(state.alive)} machines"
        yield Finding(
            "runs", job, Level.FAILS, detail, f"run spotctl resume {job}, or spotctl stop {job}"
        )

    for cloud in searched:
        if cloud.failure is not None:
            yield Finding(
                "runs",
                cloud.cloud,
                Level.FAILS,
                f"not searched for orphans: {cloud.failure}",
                "run spotctl gc",
            )

    unowned = [thing for cloud in searched for thing in cloud.resources]
    for thing in unowned:
        yield Finding(
            "runs",
            thing.id,
            Level.FAILS,
            f"a {thing.kind} that belongs to no run",
            "run spotctl gc",
        )

    if not interrupted and not unowned:
        running = sum(word in ("running", "stopping", "waiting") for _, word in words)
        yield Finding(
            "runs",
            "orphans",
            Level.GOOD,
            f"no orphaned resources; {counted(running, 'active run')}",
        )


def of_buckets(settings: Settings, identity: StoreIdentity = LAUNCHER) -> Iterator[Finding]:
    """Whether each bucket is in reach, and still has the data."""
    try:
        uses = DataUses(Paths(settings.home).data).all()
    except BadRequest as error:
        yield Finding("data", "record", Level.FAILS, str(error), "remove the file")
        return
    for bucket in dict.fromkeys(use.location.bucket for use in uses):
        inside = [use for use in uses if use.location.bucket == bucket]
        expected = [use.location for use in inside if not use.may_lack]
        try:
            missing = missing_sets(bucket, expected, identity)
        except StoreRefused as error:
            level = Level.FAILS if isinstance(error, StoreUnavailable) else Level.NO_ACCESS
            yield Finding("data", bucket, level, f"not in reach: {error}", _CURE)
            continue

        size = gigabytes(sum(use.size for use in inside))
        detail = f"{counted(len(inside), 'data set')} of {size} in all"
        if missing:
            gone = f"{detail}, {missing} of them gone"
            yield Finding("data", bucket, Level.NOTE, gone, "launch the job to store it again")
        else:
            yield Finding("data", bucket, Level.GOOD, detail)


def of_clouds(settings: Settings, clouds: Sequence[str]) -> Iterator[Finding]:
    """Cloud by cloud; an error ends the checks of that cloud, not of the others."""
    for cloud in clouds:
        doctor = doctor_of(cloud)
        if not doctor.is_configured(settings):
            yield Finding(
                cloud, "credentials", Level.NOTE, "not configured, so not checked", doctor.SETUP
            )
            continue
        answers = Answers()
        with ThreadPoolExecutor(1, f"{cloud}-orders") as pool:
            try:
                of_account = doctor.findings(settings, answers)
                # The first one says that the cloud answers, and lets us in.
                yield from islice(of_account, 1)
                orders = pool.submit(_of_orders, settings, cloud, answers)
                yield from of_account
                yield from orders.result()
            except CloudError as error:
                yield refused(cloud, "access", error)
            except ProviderError as error:
                yield Finding(cloud, "orders", Level.NOTE, f"not checked: {error}")


def _of_orders(settings: Settings, cloud: str, answers: Answers) -> list[Finding]:
    with closing(cloud_provider(settings, (cloud,), answers=answers)) as provider:
        request = provider.usual_request()
        return [] if request is None else all_found(cloud, provider.checks(request))
