"""What the machines of a run print: all of it for `spotctl logs`, and its end for messages about failures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from spotctl.errors import BadRequest
from spotctl.files.job.reader import restored
from spotctl.machines.base import CloudProvider, NotFound, ProviderError, Unanswered
from spotctl.machines.link import printed
from spotctl.paths import Paths
from spotctl.run.environment import RunEnvironment
from spotctl.run.kept_output import KeptOutput
from spotctl.runlog.state import fold
from spotctl.runlog.statuses import latest_run
from spotctl.runlog.store import EventLog
from spotctl.wiring import provider_of

if TYPE_CHECKING:
    from spotctl.config import Settings

FOLLOW_SECONDS = 0.2
_LONGEST_QUOTE = 300
"""Characters of output that a message quotes."""


def output_lines(job: str, settings: Settings, *, follow: bool) -> Iterator[str]:
    """The output of a job's latest run, machine by machine, the oldest first; with `follow` until the run has ended."""
    paths = Paths(settings.home)
    read, ended = dict[str, int](), set[str]()
    with EventLog(paths.log) as log:
        state = latest_run(log, job)
        if state is None or state.began is None:
            raise BadRequest(f"no job named {job!r} was launched ('spotctl status' lists all jobs)")
        spec = restored(state.began.spec, paths.home)
        read_from = _reader(provider_of(settings, spec)) if spec.is_local else KeptOutput(paths.output(state.run)).read
        while True:
            for held in sorted(state.machines.values(), key=lambda held: held.started):
                machine = held.id
                if machine in ended:
                    continue
                text = read_from(machine, read.get(machine, 0))
                read[machine] = read.get(machine, 0) + len(text)
                yield from (f"{machine}: {line}\n" for line in text.decode(errors="replace").splitlines())
                if not held.alive:
                    # It prints no more, and its cloud would be asked for it in every round.
                    ended.add(machine)
            if not follow or state.ended is not None:
                return
            time.sleep(FOLLOW_SECONDS)
            state = fold(log.of_run(state.run, state.last_row), state)


def last_lines(environment: RunEnvironment, machine: str, lines: int = 3) -> str:
    """The last lines of a machine's output as one line, with secrets hidden; says so if there is none."""
    try:
        text = printed(environment.provider, machine).decode(errors="replace")
    except ProviderError:
        if environment.output is None:
            return "its output is no longer available"
        text = KeptOutput(environment.output).read(machine).decode(errors="replace")
    last = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return environment.redacted(" | ".join(last))[-_LONGEST_QUOTE:] or "it printed nothing"


def _reader(provider: CloudProvider) -> Callable[[str, int], bytes]:
    def read(machine: str, after: int) -> bytes:
        try:
            return printed(provider, machine, after)
        except (NotFound, Unanswered):
            # The provider keeps the output of machines that are gone for some days. One that boots has none yet.
            return b""

    return read
