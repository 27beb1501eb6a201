"""A month of nights on a fast clock, with every failure in turn: `python -m
tests.spotctl.nightly.month [--nights 31]`.

The timer's ticks, the state of the nights, their messages and health checks are real; the runs are
scripted, and so are kills: of the runner, and between the end of a run and its message. It prints
the messages in order, and fails if a night has not had exactly the one that it should have.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from pathlib import Path
from unittest.mock import patch
from zoneinfo import ZoneInfo

from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.files.job.reader import load as load_job, written
from spotctl.home.config import load
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock
from spotctl.log.outcomes import AlreadyRunning
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.nightly.health import problems
from spotctl.nightly.hours import Hours, moment_of
from spotctl.nightly.night_runner import NightRunner
from spotctl.nightly.reporting import NightReporter
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.run.start import runs
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import Hook, hook

ZONE = ZoneInfo("Europe/Berlin")
FIRST = date(2026, 3, 1)
HOURS = Hours(time(2, 30), time(6))
"""On 29 March 2026 there is no 02:30."""

FAILURES = {
    "all is well": "done",
    "the job fails": "failed",
    "the runner is killed": "done",
    "no capacity all night": "no capacity",
    "no capacity for a while": "done",
    "a secret is missing": "a secret is missing",
    "credentials are expired": "not permitted",
    "the budget is reached": "budget reached",
    "the computer is off": "missed",
    "the job runs by hand": "skipped",
    "the job file is damaged": "could not begin",
    "killed before the message": "done",
    "killed until the deadline": "not in time",
}
"""What goes wrong, and the outcome that the message must have."""


ENDS = {
    "the job fails": ["failed"],
    "the runner is killed": ["killed"],
    "killed until the deadline": ["killed"],
    "no capacity all night": ["no capacity"] * 99,
    "no capacity for a while": ["no capacity", "no capacity", "done"],
    "credentials are expired": ["not permitted"],
    "the budget is reached": ["budget reached"],
}
"""How the runs that a night launches end, where it is not with "done"."""

SAID = {
    "failed": "exit status 1: ModuleNotFoundError: No module named 'torch'",
    "not permitted": "ExpiredToken: the security token is expired",
}


class Killed(BaseException):
    """Ends a start as SIGKILL does: nothing that catches errors sees it."""


@dataclass
class Month:
    """One installed job, and its clock."""

    home: Path
    receiver: Hook
    now: int = 0
    script: Iterator[str] = field(default_factory=lambda: iter(()))

    def __post_init__(self) -> None:
        self.job = self.home.parent / "job.yaml"
        notify = (
            f"notify: {{webhook: '{self.receiver.url}', heartbeat: '{self.receiver.url}/beat'}}\n"
        )
        self.text = COMMAND.format(run="'true'") + notify + "secrets: [A_TOKEN]\n"
        self.job.write_text(self.text)
        self.state_dir = StateDir(self.home, "small")
        beat = f"{self.receiver.url}/beat"
        self.nightly = Installed(
            "small", self.job, HOURS, "cron", os.environ["PATH"], self.receiver.url, beat
        )
        self.state_dir.install(self.nightly)
        # A night before the installation is not missed.
        before = moment_of(FIRST, time(0), ZONE) / 1e6
        os.utime(self.state_dir.folder / "installed.json", (before, before))

    # -- scripted runs -----------------------------------------------------------------------------

    def launch(self, *_: object) -> tuple[RunState, RunEnded]:
        with EventLog(self.home / "log.sqlite") as log:
            run = f"small-{len(log.beginnings())}"
            log.append(
                run, 0, RunBegan("small", "local", written(load_job(self.job)), "", self.now)
            )
        return self._end(run, next(self.script))

    def resume(
        self, _: str, __: object, ___: object, stop: object = None
    ) -> tuple[RunState, RunEnded]:
        with EventLog(self.home / "log.sqlite") as log:
            run = log.beginnings()[-1].run
        return self._end(run, "done" if stop is None else "not in time")

    def _end(self, run: str, outcome: str) -> tuple[RunState, RunEnded]:
        self.now += 20 * MINUTE
        if outcome == "killed":
            raise Killed
        said = SAID.get(outcome, "")
        with EventLog(self.home / "log.sqlite") as log:
            log.append(
                run,
                1,
                RunEnded(
                    outcome, said, self.now, {"spent": 3600 * 10**9, "on_demand": 7200 * 10**9}
                ),
            )
            state = fold(log.of_run(run))
        assert state.ended is not None
        return state, state.ended

    # -- the fast clock ----------------------------------------------------------------------------

    def wait(self, seconds: float) -> bool:
        """In place of the event that ends a pause early: the clock jumps, and no signal comes."""
        self.now += round(seconds * SECOND)
        return False

    def is_set(self) -> bool:
        return False

    def tick(self, *, dies_before_message: bool = False) -> None:
        """The timer starts the night, or notices that it has been reported."""
        runner = NightRunner(
            self.nightly, self.state_dir, load(os.environ, self.home), ZONE, True, lambda: self.now
        )
        runner.stopped = self  # type: ignore[assignment]
        dies: AbstractContextManager[object] = nullcontext()
        if dies_before_message:
            dies = patch.object(NightReporter, "send", side_effect=Killed)
        with dies, suppress(Killed, AlreadyRunning):
            runner.run()

    def night(self, day: date, failure: str) -> str:
        """Ticks through one night; returns what monitoring says in the morning."""
        self.now = moment_of(day, HOURS.at, ZONE)
        self.script = iter(ENDS.get(failure, ["done"]))
        if failure == "the computer is off":
            self.now += 5 * HOUR
        by_hand: AbstractContextManager[object] = nullcontext()
        if failure == "the job runs by hand":
            by_hand = JobLock(self.state_dir.folder, "small")
        with self._broken(failure), by_hand:
            self.tick(dies_before_message=failure == "killed before the message")
            if failure == "killed until the deadline":
                self.now += 5 * HOUR
            # The timer is started again after a kill, or by a cautious user; more starts change
            # nothing.
            for _ in range(2):
                self.now += MINUTE
                self.tick()
        self.now = moment_of(day, time(9), ZONE)
        return "; ".join(problems(self.state_dir, HOURS, self.now, ZONE))

    @contextmanager
    def _broken(self, failure: str) -> Iterator[None]:
        variables = {} if failure == "a secret is missing" else {"A_TOKEN": "s3cr3t"}
        if failure == "the job file is damaged":
            self.job.write_text("name: small\nkind: nothing\n")
        with (
            patch.dict(os.environ, variables),
            patch.object(runs, "launch", self.launch),
            patch.object(runs, "resume", self.resume),
        ):
            yield
        self.job.write_text(self.text)


def play(home: Path, failures: list[str], show: Callable[[str], object]) -> list[str]:
    """Plays a night for each failure; what is wrong with the messages and the health check."""
    wrong = list[str]()
    with hook() as receiver:
        month = Month(home, receiver)
        for number, failure in enumerate(failures):
            day = FIRST + timedelta(days=number)
            receiver.got.clear()
            receiver.beats.clear()
            checked = month.night(day, failure)
            outcomes = [message["facts"]["outcome"] for message in receiver.got]
            ends = [
                path.rpartition("/beat")[2]
                for path in receiver.beats
                if not path.endswith("/start")
            ]
            show(f"--- {day:%a %d %b}: {failure} (monitoring: {checked or 'all is well'})")
            for message in receiver.got:
                show(f"{message['text']}; {message['facts']['message']}")
            good = FAILURES[failure] == "done"
            if outcomes != [FAILURES[failure]]:
                wrong.append(f"{day}: {failure}: messages {outcomes}")
            if ends != [""] * good + ["/fail"] * (not good):
                wrong.append(f"{day}: {failure}: health check {ends}")
            if bool(checked) == good:
                wrong.append(f"{day}: {failure}: monitoring says {checked!r}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nights", type=int, default=31)
    nights = parser.parse_args().nights
    names = list(FAILURES)
    with tempfile.TemporaryDirectory() as folder:
        failures = [names[i % len(names)] for i in range(nights)]
        wrong = play(Path(folder) / "home", failures, lambda line: sys.stdout.write(f"{line}\n"))
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    sys.stdout.write(f"{nights} nights, {len(wrong)} surprises\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
