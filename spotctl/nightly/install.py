"""Installs nightly jobs in a timer and removes them. Both are idempotent."""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from agileml.runtime.ground import replaced
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest
from spotctl.nightly import environment, schedulers
from spotctl.nightly.hours import Hours, local_zone
from spotctl.nightly.schedulers import Crontab, UserManager
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.run.start.admission import check_launchable

CRON_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
"""The environment that cron gives a command, apart from the user's names."""


_SCRIPT = Path(__file__).with_name("supervise.sh")


class Scheduler(Enum):
    """The timer that starts a job."""

    SYSTEMD = "systemd"
    CRON = "cron"
    AUTO = "auto"
    """systemd if the user's manager is running, else cron."""


@dataclass(frozen=True, slots=True)
class Timers:
    """The timers of this computer."""

    crontab: Crontab
    manager: UserManager

    @staticmethod
    def of_this_user() -> "Timers":
        return Timers(Crontab(), UserManager.of_this_user())

    def chosen(self, preferred: Scheduler) -> Scheduler:
        """The scheduler to use; `AUTO` is resolved here."""
        if preferred is not Scheduler.AUTO:
            return preferred
        if self.manager.is_running():
            return Scheduler.SYSTEMD
        if self.crontab.is_there():
            return Scheduler.CRON
        raise BadRequest("no timer found: neither a systemd user manager nor crontab; install cron")

    def is_supervised(self, nightly: Installed, home: Path) -> bool:
        """Whether the timer starts the script, as it does since nights are supervised."""
        script = str(StateDir(home, nightly.name).supervisor)
        if nightly.scheduler == Scheduler.SYSTEMD.value:
            return schedulers.quoted(script) in self.manager.service_text(nightly.name)
        # The marks of a job's block name no script.
        lines = schedulers.block_of(self.crontab.read(), f"{nightly.name} of {home}")
        return os.fsencode(shlex.quote(script).replace("%", r"\%")) in lines

    def has(self, nightly: Installed, home: Path) -> bool:
        if nightly.scheduler == Scheduler.SYSTEMD.value:
            return self.manager.has(nightly.name)
        if not self.crontab.is_there():
            return False
        table = self.crontab.read()
        return any(
            schedulers.block_of(table, label) for label in _labels(table, nightly.name, home)
        )

    def add(self, nightly: Installed, home: Path, now: int) -> None:
        argv = command(home, nightly.name)
        supervisor = StateDir(home, nightly.name).supervisor
        if nightly.scheduler == Scheduler.SYSTEMD.value:
            times = nightly.hours.timer_times(now, local_zone()[0])
            words = ["/bin/sh", str(supervisor), *argv]
            texts = schedulers.service(nightly.name, words), schedulers.timer(nightly.name, times)
            self.manager.install(nightly.name, *texts)
        else:
            before = self.crontab.read()
            label, *former = _labels(before, nightly.name, home)
            after = before
            for old in former:
                after = schedulers.without_block(after, old)
            line = schedulers.supervised(nightly.name, supervisor, argv)
            lines = schedulers.block(label, nightly.hours.at, line)
            self.crontab.write(before, schedulers.with_block(after, label, lines))

    def remove(self, name: str, scheduler: str, home: Path) -> None:
        if scheduler == Scheduler.SYSTEMD.value:
            self.manager.remove(name)
        elif self.crontab.is_there():
            before = after = self.crontab.read()
            for label in _labels(before, name, home):
                after = schedulers.without_block(after, label)
            self.crontab.write(before, after)


def _labels(table: bytes, name: str, home: Path) -> list[str]:
    """The name of a job's block, and the former one, without the home, if that block is this
    home's.
    """
    former = os.fsencode(f"--home {shlex.quote(str(home))} nightly run {name} ").replace(
        b"%", rb"\%"
    )
    own = schedulers.block_of(table, name) and former in table
    return [f"{name} of {home}", *([name] if own else [])]


@dataclass(frozen=True, slots=True)
class InstallResult:
    """The change that an installation made, and the steps left to the user."""

    nightly: Installed
    done: str
    to_do: tuple[str, ...]
    missing: tuple[str, ...]


def command(home: Path, name: str) -> list[str]:
    """The command of a timer. Paths are absolute, and -P keeps modules in the current folder from
    being imported.
    """
    start = [sys.executable, "-P", "-m", "spotctl"]
    return [*start, "--home", str(home), "nightly", "run", name, "--scheduled"]


def install(
    file: Path,
    hours: Hours,
    preferred: Scheduler,
    home: Path,
    timers: Timers,
    now: int,
    metrics: str = "",
) -> InstallResult:
    """Installs a job, or updates an installed one."""
    spec = load(file, home=home, to_launch=True)
    # The values of secrets matter at night, not now.
    check_launchable(replace(spec, secrets=()))
    state_dir = StateDir(home.resolve(), spec.name)
    before = state_dir.installed

    if before is not None and before.file != file.resolve():
        raise BadRequest(
            f"{file}: a nightly job {spec.name!r} is already installed from {before.file}; use "
            f"another name, or remove it first: spotctl nightly rm {spec.name}"
        )

    scheduler = timers.chosen(preferred).value
    path = os.environ.get("PATH", os.defpath)
    nightly = Installed(
        spec.name,
        file.resolve(),
        hours,
        scheduler,
        path,
        spec.notify.webhook,
        spec.notify.heartbeat,
        metrics,
    )

    _check_startup(state_dir.home)
    was_there = before is not None and timers.has(before, state_dir.home)
    state_dir.install(nightly)

    # The script that starts the nights, and what it needs; it must not need free space later.
    with replaced(state_dir.supervisor) as script:
        script.write_text(_SCRIPT.read_text("utf-8"), "utf-8")
    state_dir.starts.create()
    environment.keep_addresses(state_dir.addresses, spec.notify)

    environment.create_file(state_dir.environment, spec.name, _variables(spec))
    if before is not None and before.scheduler != scheduler:
        timers.remove(spec.name, before.scheduler, state_dir.home)
    try:
        timers.add(nightly, state_dir.home, now)
    except BadRequest:
        if before is None:
            state_dir.uninstall()
        else:
            state_dir.install(before)
        raise

    done = (
        "unchanged"
        if was_there and before == nightly
        else "changed"
        if before is not None
        else "installed"
    )

    variables = environment.read_file(state_dir.environment)
    missing = tuple(environment.missing(_variables(spec), variables))
    return InstallResult(nightly, done, _to_do(spec, nightly, state_dir, variables), missing)


def trouble(state_dir: StateDir, nightly: Installed, timers: Timers) -> str:
    """The reason why the next night would not run; empty if it would."""
    try:
        if not timers.has(nightly, state_dir.home):
            return (
                f"its {nightly.scheduler} timer is gone; install it again: "
                f"{install_command(nightly)}"
            )
        spec = load(nightly.file, home=state_dir.home)
        missing = environment.missing(
            _variables(spec), environment.read_file(state_dir.environment)
        )
    except BadRequest as error:
        return str(error)
    return f"{', '.join(missing)} not set; add it to {state_dir.environment}" if missing else ""


def renewal(state_dir: StateDir, nightly: Installed, timers: Timers) -> str:
    """How to renew a timer that an older version installed; empty if it is up to date."""
    try:
        is_supervised = timers.is_supervised(nightly, state_dir.home)
    except BadRequest as error:
        return str(error)

    # A script that is gone must be renewed as well.
    with suppress(OSError):
        if is_supervised and state_dir.supervisor.read_bytes() == _SCRIPT.read_bytes():
            return ""

    return (
        "installed by an older version, so a night that cannot start Python is not reported; renew "
        f"it with: {install_command(nightly)}"
    )


def install_command(nightly: Installed) -> str:
    """The command that installs a job again as it is."""
    words = [
        "spotctl",
        "nightly",
        "install",
        str(nightly.file),
        "--at",
        f"{nightly.hours.at:%H:%M}",
    ]

    if nightly.hours.deadline is not None:
        words += ["--deadline", f"{nightly.hours.deadline:%H:%M}"]
    words += ["--scheduler", nightly.scheduler]
    return shlex.join([*words, "--metrics", nightly.metrics] if nightly.metrics else words)


def _variables(spec: JobSpec) -> tuple[str, ...]:
    """The variables that a night needs: secrets, and addresses of `notify` that are kept out of the
    job file.
    """
    addresses = (spec.notify.webhook, *spec.notify.to, spec.notify.heartbeat)
    named = (
        address[1:] for address in addresses if address is not None and address.startswith("$")
    )
    return tuple(dict.fromkeys((*spec.secrets, *named)))


def _check_startup(home: Path) -> None:
    """Starts spotctl with the environment of a timer."""
    line = shlex.join([sys.executable, "-P", "-m", "spotctl", "--home", str(home), "--version"])
    ran = subprocess.run(
        ["/bin/sh", "-c", line],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env=CRON_ENVIRONMENT,
    )

    if ran.returncode:
        last = (ran.stderr.strip() or "no message").splitlines()[-1]
        raise BadRequest(
            f"spotctl does not start without the environment of your shell ({last}); install it "
            f"into {sys.prefix} with pip, so that a timer can start it"
        )


def _to_do(
    spec: JobSpec, nightly: Installed, state_dir: StateDir, variables: Mapping[str, str]
) -> tuple[str, ...]:
    """The steps that the user has to take before the first night."""
    steps = []
    if missing := environment.missing(_variables(spec), variables):
        steps.append(
            f"add {', '.join(f'{name}=...' for name in missing)} to {state_dir.environment}"
        )

    if not spec.is_local and (names := environment.only_in_shell(os.environ, variables)):
        steps.append(
            f"{', '.join(names)} is set in your shell but not for timers; if the job needs it, add "
            f"it to {state_dir.environment}"
        )

    if nightly.scheduler == Scheduler.CRON.value and schedulers.daemon_runs() is False:
        steps.append("cron is not running; start it: sudo service cron start")
    if nightly.scheduler == Scheduler.SYSTEMD.value and (step := schedulers.linger()):
        steps.append(step)

    if not spec.notify.has_receivers:
        steps.append(
            "to get a message after each night, add `notify: {webhook: https://...}` to the job "
            "file"
        )

    return tuple(steps)
