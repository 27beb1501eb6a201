"""What there is to look at on this computer: versions, the home, stored prices, runs, the scheduler."""

from __future__ import annotations

import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from pricing_data.errors import PricingDataError
from pricing_data.units import DAY, SECOND, age
from spotctl.doctor.findings import Finding, Level
from spotctl.errors import SpotctlError

if TYPE_CHECKING:
    from spotctl.config import Settings

OLDEST_PYTHON = (3, 11)
LEAST_FREE = 1 << 30
STALE = 7 * DAY
"""Spot prices drift by the day; a plan on older ones is a guess."""

_EXTRAS = (("textual", "tui", "spotctl top"), ("google.cloud.billing", "gcp-pricing", "on-demand prices of gcp"))
_SDKS = ("boto3", "google-cloud-compute", "azure-mgmt-compute")


def findings(settings: Settings, now: int) -> Iterator[Finding]:
    """All of them; nothing outside of this computer is asked."""
    yield _python()
    yield from _packages()
    yield _home(settings.home)
    yield _disk(settings.home)
    yield _scheduler()
    yield from _prices(settings, now)
    yield from _runs(settings)


def _python() -> Finding:
    told = f"Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        return Finding("here", "python", Level.FAILS, told, f"install Python {wanted} or newer")
    if sys.platform != "linux":
        return Finding("here", "python", Level.NOTE, f"{told}: the local market is tested on Linux only")
    return Finding("here", "python", Level.GOOD, told)


def _packages() -> Iterator[Finding]:
    try:
        told = ", ".join(f"{name} {version(name)}" for name in ("spotctl", *_SDKS))
        yield Finding("here", "versions", Level.GOOD, told)
    except PackageNotFoundError as error:
        yield Finding("here", "versions", Level.FAILS, f"{error.name} is not installed", "pip install spotctl")
    for module, extra, what in _EXTRAS:
        if not _is_there(module):
            install = f"pip install 'spotctl[{extra}]'"
            yield Finding("here", f"extra {extra}", Level.NOTE, f"not installed; {what} needs it", install)


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _home(home: Path) -> Finding:
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=home):
            return Finding("here", "home", Level.GOOD, f"{home} can be written")
    except OSError as error:
        told = f"{home} cannot be written: {error.strerror or error}"
        return Finding("here", "home", Level.FAILS, told, "make it yours, or name another by --home or SPOTCTL_HOME")


def _disk(home: Path) -> Finding:
    there = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(there).free
    told = f"{free / (1 << 30):,.1f} GiB free in {there}"
    if free < LEAST_FREE:
        return Finding("here", "disk", Level.FAILS, told, "make room: the event log must be written before a rent")
    return Finding("here", "disk", Level.GOOD, told)


def _scheduler() -> Finding:
    from spotctl.nightly.crontab import Crontab, daemon_runs
    from spotctl.nightly.systemd import UserManager

    if UserManager.of_this_user().is_running():
        return Finding("here", "nightly", Level.GOOD, "systemd of this user")
    if Crontab().is_there() and daemon_runs() is not False:
        return Finding("here", "nightly", Level.GOOD, "cron")
    told = "neither cron nor a systemd of this user runs: spotctl nightly cannot be installed"
    return Finding("here", "nightly", Level.NOTE, told, "install and start cron, or log in with systemd")


def _prices(settings: Settings, now: int) -> Iterator[Finding]:
    from spotctl import wiring

    try:
        newest: dict[str, int] = {}
        for series in wiring.price_store(settings).table():
            newest[series.market.cloud] = max(newest.get(series.market.cloud, 0), series.last)
    except PricingDataError as error:
        yield Finding("prices", "stored", Level.FAILS, str(error), "restore prices/ in the home, or remove it")
        return
    if not newest:
        told = "none but those that spotctl ships, of its local market"
        yield Finding("prices", "stored", Level.NOTE, told, "spotctl prices fetch, or spotctl prices import FILE")
    for cloud, last in sorted(newest.items()):
        told = f"the newest is {age((now - last) / SECOND)} old"
        if now - last > STALE:
            yield Finding("prices", cloud, Level.NOTE, told, f"spotctl prices fetch --cloud {cloud}")
        else:
            yield Finding("prices", cloud, Level.GOOD, told)


def _runs(settings: Settings) -> Iterator[Finding]:
    from spotctl.run import runs
    from spotctl.runlog.statuses import statuses

    try:
        standings = statuses(settings)
        _, unowned = runs.orphaned_resources(settings)
    except (SpotctlError, PricingDataError) as error:
        yield Finding("runs", "log", Level.FAILS, str(error), "see spotctl --debug status")
        return
    left = [one for one in standings if one.word == "interrupted"]
    for one in left:
        job = "" if one.state.began is None else one.state.began.job
        told = f"interrupted, with {len(one.state.alive)} machines"
        yield Finding("runs", job, Level.FAILS, told, f"spotctl resume {job}, or spotctl down {job}")
    for thing in unowned:
        yield Finding("runs", thing.id, Level.FAILS, f"a {thing.kind} that no run owns", "spotctl gc")
    if not left and not unowned:
        running = sum(one.word in ("running", "stopping") for one in standings)
        yield Finding("runs", "left over", Level.GOOD, f"nothing; {running} go on")
