"""The output of a run's machines: in full for `spotctl logs`, and the last lines for messages about failures."""

import time
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from spotctl.agent.output_times import parse_times
from spotctl.clouds.base import CloudProvider
from spotctl.clouds.capabilities import KeepsOutput
from spotctl.clouds.errors import NotFound, ProviderError, Unanswered
from spotctl.clouds.link import printed, printed_at
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.environment import RunEnvironment
from spotctl.run.kept_output import CLUSTER, KeptOutput

FOLLOW_SECONDS = 0.2
_LONGEST_QUOTE = 300
"""Characters of output that a message quotes."""


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a machine printed; `at` is its clock's time, None if that was not noted."""

    machine: str
    text: str
    at: int | None


def output_lines(job: str, settings: Settings, *, follow: bool) -> Iterator[OutputLine]:
    """The output of a job's latest run, the oldest line first; with `follow` until the run has ended.

    Lines without a time come first, machine by machine.
    """
    paths = Paths(settings.home)
    with EventLog(paths.log) as log:
        state = latest_run(log, job)
        if state is None or state.began is None:
            raise BadRequest(f"no job named {job!r} was launched ('spotctl status' lists all jobs)")
        output = RunOutput(restored(state.began.spec, paths.home), state.run, settings)
        while True:
            yield from output.new_lines(state, last=not follow or state.ended is not None)
            if not follow or state.ended is not None:
                return
            time.sleep(FOLLOW_SECONDS)
            state = fold(log.of_run(state.run, state.last_row), state)


class RunOutput:
    """The output of the machines of a run, as far as it was read."""

    def __init__(self, spec: JobSpec, run: str, settings: Settings) -> None:
        asked = spec.is_local and not spec.on_ray
        self._source: KeepsOutput = (
            _Asked(provider_of(settings, spec)) if asked else KeptOutput(Paths(settings.home).output(run))
        )
        self._on_ray = spec.on_ray
        self._readings = dict[str, _Reading]()

    def new_lines(self, state: RunState, *, last: bool) -> list[OutputLine]:
        """The lines since the last call, the oldest first; with `last` also those that have not ended."""
        lines = list[OutputLine]()
        if self._on_ray:
            lines += self._reading(CLUSTER).new_lines(last=last)
        for held in sorted(state.machines.values(), key=lambda held: held.started):
            reading = self._reading(held.id)
            lines += reading.new_lines(last=last or not held.alive)
            # A machine that is gone prints no more; without this, its cloud would be asked in every round.
            reading.over = reading.over or not held.alive
        return sorted(lines, key=lambda line: line.at or 0)

    def _reading(self, machine: str) -> "_Reading":
        return self._readings.setdefault(machine, _Reading(machine, self._source))


class _Reading:
    """How far the output of one machine has been read."""

    def __init__(self, machine: str, source: KeepsOutput) -> None:
        self._machine, self._source = machine, source
        self._at = self._times_at = 0
        self._ends, self._times = list[int](), list[int]()
        self.over = False

    def new_lines(self, *, last: bool) -> Iterator[OutputLine]:
        """The lines since the last call; a line that has not ended waits, unless this call is the `last` one."""
        text = b"" if self.over else self._source.output(self._machine, self._at)
        if not last:
            # A `\\r` at the end may be half of a line's end.
            text = text[: max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1]
        if text:
            self._read_times()
        for line in text.splitlines(keepends=True):
            yield OutputLine(self._machine, line.decode(errors="replace").rstrip("\r\n"), self._time_of(self._at))
            self._at += len(line)

    def _read_times(self) -> None:
        new = self._source.output_times(self._machine, self._times_at)
        new = new[: new.rfind(b"\n") + 1]
        self._times_at += len(new)
        for end, at in parse_times(new):
            self._ends.append(end)
            self._times.append(at)

    def _time_of(self, byte: int) -> int | None:
        """When the byte at this offset had been printed; the latest time known, if that was not noted yet."""
        if not self._times:
            return None
        return self._times[min(bisect_right(self._ends, byte), len(self._times) - 1)]


def last_lines(environment: RunEnvironment, machine: str) -> str:
    """The last lines of a machine's output as one line, with secrets hidden; says so if there is none."""
    try:
        text = printed(environment.provider, machine).decode(errors="replace")
    except ProviderError:
        if environment.output is None:
            return "its output is no longer available"
        text = KeptOutput(environment.output).output(machine).decode(errors="replace")
    last = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    return environment.redacted(" | ".join(last))[-_LONGEST_QUOTE:] or "it printed nothing"


class _Asked:
    """Asks a provider, which keeps the output of machines that are gone for some days. A booting machine has none."""

    def __init__(self, provider: CloudProvider) -> None:
        self._provider = provider

    def output(self, machine: str, after: int = 0) -> bytes:
        try:
            return printed(self._provider, machine, after)
        except (NotFound, Unanswered):
            return b""

    def output_times(self, machine: str, after: int = 0) -> bytes:
        try:
            return printed_at(self._provider, machine, after)
        except (NotFound, Unanswered):
            return b""
