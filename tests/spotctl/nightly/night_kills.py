"""Kills scheduled nights by SIGKILL at every point, and sees that none is silent.

    python -m tests.spotctl.nightly.night_kills [--every 10]

The points are the lines of `spotctl.nightly`, Python's audit events (files of the home, locks,
connections), and the programs that `supervise.sh` calls. After a kill, and with the script killed
too, a message was sent or monitoring names the night. The next start then runs, and monitoring is
content. The runs of the job are scripted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import spotctl.nightly
from pricing_data.units import HOUR, SECOND
from spotctl.cli.app import main as run_command
from spotctl.files.job.reader import load, written
from spotctl.files.job.spec import Notify
from spotctl.home.wall_clock import wall_us
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.nightly.environment import keep_addresses
from spotctl.nightly.health import problems
from spotctl.nightly.hours import Hours, local_zone
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.run.start import runs
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.timers import SCRIPT, program, without

_OURS = str(Path(spotctl.nightly.__file__).parent)
_PASSES = 2
"""How often the line of a loop counts as a point."""
_EVENTS = ("socket.connect", "sqlite3.connect", "fcntl.flock")
_AFTER = 40 * 60 * SECOND
"""When monitoring looks: later than the timer may be late."""
PROGRAMS = ("date", "dd", "sed", "tr", "cut", "tail", "curl", "logger", "mv", "rm")


class FatalPoint:
    """Counts points, and kills its own process at the fatal one."""

    def __init__(self, home: Path, fatal: int | None = None) -> None:
        self.count, self.active, self._home, self._fatal = 0, True, str(home), fatal
        self._passed = Counter[tuple[str, int]]()

    def met(self) -> None:
        if self.active and self.count == self._fatal:
            self.active = False
            os.kill(os.getpid(), signal.SIGKILL)
        self.count += self.active

    def on_event(self, event: str, about: tuple[object, ...]) -> None:
        if event in _EVENTS or (about and str(about[0]).startswith(self._home)):
            self.met()

    # As Python calls it.
    def on_line(self, frame: FrameType, event: str, _: Any) -> Any:  # noqa: ANN401
        if not frame.f_code.co_filename.startswith(_OURS):
            return None
        if event == "line":
            place = frame.f_code.co_filename, frame.f_lineno
            self._passed[place] += 1
            if self._passed[place] <= _PASSES:
                self.met()
        return self.on_line


def job(home: Path, receiver: Hook, secret: str) -> StateDir:
    """An installed job whose night began a moment ago."""
    home.mkdir(parents=True)
    path = home.parent / "job.yaml"
    notify = f"notify: {{webhook: '{receiver.url}', heartbeat: '{receiver.url}/beat'}}\n{secret}"
    path.write_text(COMMAND.format(run="'true'") + notify)
    state_dir = StateDir(home, "small")
    began = (datetime.now(local_zone()[0]) - timedelta(seconds=2)).time().replace(microsecond=0)
    state_dir.install(Installed("small", path, Hours(began), "cron", os.environ["PATH"]))
    days_ago = (datetime.now(UTC) - timedelta(days=2)).timestamp()
    os.utime(state_dir.folder / "installed.json", (days_ago, days_ago))
    state_dir.starts.create()
    keep_addresses(state_dir.addresses, Notify(receiver.url, f"{receiver.url}/beat"))
    return state_dir


@contextmanager
def scripted_runs(home: Path) -> Iterator[None]:
    """Runs that end at once; a killed one is resumed."""

    def launch(*_: object) -> tuple[RunState, RunEnded]:
        with EventLog(home / "log.sqlite") as log:
            run = f"small-{len(log.beginnings())}"
            log.append(
                run,
                0,
                RunBegan("small", "local", written(load(home.parent / "job.yaml")), "", wall_us()),
            )
        return resume()

    def resume(*_: object) -> tuple[RunState, RunEnded]:
        with EventLog(home / "log.sqlite") as log:
            run = log.beginnings()[-1].run
            ended = RunEnded(
                "done", "", wall_us(), {"spent": 3600 * 10**9, "on_demand": 7200 * 10**9}
            )
            log.append(run, 1, ended)
            return fold(log.of_run(run)), ended

    with patch.object(runs, "launch", launch), patch.object(runs, "resume", resume):
        yield


@contextmanager
def silence() -> Iterator[None]:
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def night(state_dir: StateDir, point: FatalPoint) -> int:
    """Forks a start that has its line from the script, which does not outlive it. Returns what
    waitpid says.
    """
    start = state_dir.starts.begin(wall_us())
    pid = os.fork()
    if pid == 0:
        os.environ["SPOTCTL_NIGHT_START"] = str(start.number)
        code = 1
        with silence(), scripted_runs(state_dir.home):
            sys.addaudithook(point.on_event)
            sys.settrace(point.on_line)
            try:
                run_command(
                    ["--home", str(state_dir.home), "nightly", "run", "small", "--scheduled"]
                )
            except SystemExit as left:
                code = int(left.code or 0)
            finally:
                sys.settrace(None)
                point.active = False
                (state_dir.home / "points").write_text(str(point.count))
                os._exit(code)
    status = os.waitpid(pid, 0)[1]
    # The pid is that of this process, which goes on.
    lines = state_dir.starts.path.read_bytes()
    gone = b"pid=%d " % (2**22 + 1)
    own = b"pid=%d " % os.getpid()
    state_dir.starts.path.write_bytes(
        b"".join(
            lines[at : at + 256].replace(own, gone).rstrip().ljust(255) + b"\n"
            for at in range(0, len(lines), 256)
        )
    )
    if not os.WIFSIGNALED(status):
        (latest,) = (each for each in state_dir.starts.read()[0] if each.number == start.number)
        state_dir.starts.note(
            start.number,
            wall_us(),
            os.waitstatus_to_exitcode(status),
            reported=latest.reported,
            why=latest.why,
        )
    return status


def silent(state_dir: StateDir, receiver: Hook) -> bool:
    """Whether neither a message nor monitoring speaks of the night."""
    hours = _hours(state_dir)
    return not receiver.got and not problems(state_dir, hours, wall_us() + _AFTER, local_zone()[0])


def _hours(state_dir: StateDir) -> Hours:
    nightly = state_dir.installed
    assert nightly is not None
    return nightly.hours


def kill_nights(folder: Path, every: int, secret: str) -> Iterator[str]:
    """Kills nights at every `every`-th point; yields what went wrong, and a summary."""
    good = not secret
    with hook() as receiver:
        state_dir = job(folder / "counted", receiver, secret)
        # Everything is imported before the first fork.
        with scripted_runs(state_dir.home), silence(), suppress(SystemExit):
            run_command(["--home", str(state_dir.home), "nightly", "run", "small"])
        shutil.rmtree(state_dir.home)
        state_dir = job(folder / "counted", receiver, secret)
        night(state_dir, FatalPoint(state_dir.home))
        points = int((state_dir.home / "points").read_text())
        killed = 0
        for point in range(0, points, every):
            receiver.got.clear()
            state_dir = job(folder / f"{point}", receiver, secret)
            ended = night(state_dir, FatalPoint(state_dir.home, point))
            killed += os.WIFSIGNALED(ended)
            if silent(state_dir, receiver):
                yield f"killed at point {point}: silent"
            night(state_dir, FatalPoint(state_dir.home))
            if not receiver.got:
                yield f"killed at point {point}: no message after the next start"
            said = problems(state_dir, _hours(state_dir), wall_us() + HOUR, local_zone()[0])
            if bool(said) == good:
                yield f"killed at point {point}: after the next start monitoring says {said}"
            shutil.rmtree(state_dir.home)
        yield f"{'a good' if good else 'a failed'} night: {points} points, {killed} nights killed"


def kill_scripts(folder: Path, every: int) -> Iterator[str]:
    """Kills the script, with all its processes, in every `every`-th program that it calls."""
    with hook() as receiver:
        for call in count(step=every):
            receiver.got.clear()
            home = folder / f"script-{call}"
            state_dir = job(home, receiver, "")
            state_dir.supervisor.write_bytes(SCRIPT.read_bytes())
            met = _run_script(state_dir, home / "programs", call)
            if silent(state_dir, receiver):
                yield f"script killed in call {call} of a program: silent"
            shutil.rmtree(home)
            if not met:
                break
        yield f"a script: {call} programs called"


def _run_script(state_dir: StateDir, programs: Path, fatal: int) -> bool:
    """Whether the script reached the fatal call of a program."""
    path = without(programs, *PROGRAMS)
    calls = programs / "calls"
    calls.touch()
    for name in PROGRAMS:
        real = shutil.which(name)
        if real is not None:
            text = f'echo >> {calls}; [ $(/usr/bin/wc -l < {calls}) -le {fatal} ] || kill -9 -$GROUP; exec {real} "$@"'
            program(programs / name, text)
    broken = program(programs / "python", "exit 1")
    line = f'GROUP=$$ exec /bin/sh "{state_dir.supervisor}" "{broken}" nightly run'
    ended = subprocess.run(
        ["/bin/sh", "-c", line],
        env={"PATH": path},
        capture_output=True,
        check=False,
        start_new_session=True,
    )
    return ended.returncode == -signal.SIGKILL


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--every", type=int, default=1)
    every = parser.parse_args().every
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for lines in (
            kill_nights(root / "good", every, ""),
            kill_nights(root / "failed", every, "secrets: [A_TOKEN]\n"),
            kill_scripts(root, max(1, every // 10)),
        ):
            for line in lines:
                wrong += ": " in line and "killed " in line.split(":")[0]
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{wrong} surprises\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
