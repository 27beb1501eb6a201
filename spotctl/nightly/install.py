"""Nightly jobs put into a timer and taken out again. Doing either twice changes nothing more."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from spotctl.errors import BadRequest
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.nightly import crontab, environment, systemd
from spotctl.nightly.crontab import Crontab
from spotctl.nightly.hours import Hours, clocks_of_this_computer
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.nightly.systemd import Units, UserManager
from spotctl.run.runs import check_launchable

BARE = {"PATH": "/usr/bin:/bin", "SHELL": "/bin/sh"}
"""What cron gives a command, beside its user's names."""


class Scheduler(Enum):
    """Who starts a job at night."""

    SYSTEMD = "systemd"
    CRON = "cron"
    AUTO = "auto"
    """systemd if the user's answers, or else cron."""


@dataclass(frozen=True, slots=True)
class Timers:
    """The timers of this computer."""

    crontab: Crontab
    manager: UserManager

    @staticmethod
    def of_this_user() -> Timers:
        """Those of whoever runs this."""
        return Timers(Crontab(), UserManager.of_this_user())

    def chosen(self, wanted: Scheduler) -> Scheduler:
        """Which is used."""
        if wanted is not Scheduler.AUTO:
            return wanted
        if self.manager.answers():
            return Scheduler.SYSTEMD
        if self.crontab.is_there():
            return Scheduler.CRON
        raise BadRequest("this computer has no timer: neither a systemd of this user nor crontab; install cron")

    def has(self, nightly: Installed) -> bool:
        """Whether a job's timer is there."""
        if nightly.scheduler == Scheduler.SYSTEMD.value:
            return self.manager.has(Units(nightly.name))
        return self.crontab.is_there() and crontab.has_block(self.crontab.read(), nightly.name)

    def add(self, nightly: Installed, home: Path, now: int) -> None:
        """Puts a job in, or changes what is there."""
        words = command(home, nightly.name)
        if nightly.scheduler == Scheduler.SYSTEMD.value:
            faces = nightly.hours.faces(now, clocks_of_this_computer()[0])
            texts = systemd.service(nightly.name, words), systemd.timer(nightly.name, faces)
            self.manager.install(Units(nightly.name), *texts)
        else:
            before = self.crontab.read()
            lines = crontab.block(nightly.name, nightly.hours.at, words)
            self.crontab.write(before, crontab.with_block(before, nightly.name, lines))

    def remove(self, name: str, scheduler: str) -> None:
        """Takes a job out, and nothing else."""
        if scheduler == Scheduler.SYSTEMD.value:
            self.manager.remove(Units(name))
        elif self.crontab.is_there():
            before = self.crontab.read()
            self.crontab.write(before, crontab.without_block(before, name))


@dataclass(frozen=True, slots=True)
class Added:
    """What an installation came to, and what is left for a person to do."""

    nightly: Installed
    done: str
    to_do: tuple[str, ...]
    missing: tuple[str, ...]


def command(home: Path, name: str) -> list[str]:
    """What a timer starts: by absolute paths, because it looks nowhere; -P: nothing in its folder is imported."""
    start = [sys.executable, "-P", "-m", "spotctl"]
    return [*start, "--home", str(home), "nightly", "run", name, "--scheduled"]


def install(file: Path, hours: Hours, wanted: Scheduler, home: Path, timers: Timers, now: int) -> Added:
    """Installs a job, or changes how it is installed."""
    spec = load(file)
    # What a secret's value is matters at night, not now.
    check_launchable(replace(spec, secrets=()))
    room = StateDir(home.resolve(), spec.name)
    before = room.installed
    if before is not None and before.file != file.resolve():
        raise BadRequest(
            f"{file}: a nightly job {spec.name!r} is installed already, from {before.file}; give this one another name,"
            f" or first: spotctl nightly rm {spec.name}"
        )
    scheduler = timers.chosen(wanted).value
    nightly = Installed(spec.name, file.resolve(), hours, scheduler, os.environ.get("PATH", os.defpath), spec.webhook)
    _check_bare(room.home)
    was_there = before is not None and timers.has(before)
    room.install(nightly)
    environment.begin_file(room.environment, spec.name, spec.secrets)
    if before is not None and before.scheduler != scheduler:
        timers.remove(spec.name, before.scheduler)
    try:
        timers.add(nightly, room.home, now)
    except BadRequest:
        _undo(room, before)
        raise
    done = "unchanged" if was_there and before == nightly else "changed" if before is not None else "installed"
    given = environment.provided(room.environment)
    return Added(nightly, done, _to_do(spec, nightly, room, given), tuple(environment.missing(spec.secrets, given)))


def remove(room: StateDir, nightly: Installed, timers: Timers) -> None:
    """Takes a job out of its timer, and forgets that it was installed."""
    timers.remove(nightly.name, nightly.scheduler)
    room.uninstall()


def trouble(room: StateDir, nightly: Installed, timers: Timers) -> str:
    """What would keep the next night from being run, seen from here; nothing if all is well."""
    try:
        if not timers.has(nightly):
            again = f"spotctl nightly install {nightly.file} --at {nightly.hours.at:%H:%M}"
            return f"its {nightly.scheduler} timer is gone; {again}"
        spec = load(nightly.file)
        absent = environment.missing(spec.secrets, environment.provided(room.environment))
    except BadRequest as error:
        return str(error)
    return f"{', '.join(absent)} not set; write it into {room.environment}" if absent else ""


def _undo(room: StateDir, before: Installed | None) -> None:
    if before is None:
        room.uninstall()
    else:
        room.install(before)


def _check_bare(home: Path) -> None:
    """Starts spotctl as a timer will."""
    line = shlex.join([sys.executable, "-P", "-m", "spotctl", "--home", str(home), "--version"])
    ran = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False, cwd="/", env=BARE)
    if ran.returncode:
        last = (ran.stderr.strip() or "it says nothing").splitlines()[-1]
        raise BadRequest(
            f"without your shell's environment spotctl does not start ({last}); install it into {sys.prefix} (pip"
            " install), so that a timer can start it"
        )


def _to_do(spec: JobSpec, nightly: Installed, room: StateDir, given: Mapping[str, str]) -> tuple[str, ...]:
    """What a person has to do before the first night."""
    said = []
    if absent := environment.missing(spec.secrets, given):
        said.append(f"write {', '.join(f'{name}=...' for name in absent)} into {room.environment}")
    if not spec.is_local and (here := environment.only_here(os.environ, given)):
        said.append(
            f"your shell sets {', '.join(here)}, a timer does not; what is needed belongs in {room.environment}"
        )
    if nightly.scheduler == Scheduler.CRON.value and crontab.daemon_runs() is False:
        said.append("cron does not run on this computer; start it: sudo service cron start")
    if nightly.scheduler == Scheduler.SYSTEMD.value and (asked := systemd.linger()):
        said.append(asked)
    if spec.webhook is None:
        said.append("nobody is told of failures unless the job file has notify: {webhook: https://...}")
    return tuple(said)
