"""The output of a run's machines: kept beyond their lives, in full for `spotctl logs`, and the last
lines for messages about failures."""

import os
import re
import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from pathlib import Path

from pricing_data.units import DAY, SECOND
from spotctl.agent.link.output import parse_times, read_from, times_file
from spotctl.clouds.errors import NotFound, ProviderError, Unanswered
from spotctl.clouds.provider import CloudProvider
from spotctl.clouds.wiring import provider_of
from spotctl.files.job.reader import restored
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import KEPT_DAYS, Paths
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.environment import RunEnvironment

FOLLOW_SECONDS = 0.2
_LONGEST_QUOTE = 300
"""Characters of output that a message quotes."""

EVERY_SECONDS = 2.0
"""How often a machine is asked for new output."""

CLUSTER = "ray"
"""The name, in the place of a machine's, under which the output of a training on a Ray cluster is
kept."""

_AT_A_TIME = 1 << 18
"""Bytes of kept output that are read at a time: a machine may have printed any amount, and lines
that are empty."""
_MAX_TIMES = 1 << 20
"""Times of one machine: those of twelve days, one for each second."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line that a machine printed; `at` is its clock's time, None if that was not noted."""

    machine: str
    text: str
    at: int | None


def output_lines(job: str, settings: Settings, *, follow: bool) -> Iterator[OutputLine]:
    """The output of a job's latest run, the oldest line first; with `follow` until the run has
    ended.

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
        self._source = (
            provider_of(settings, spec) if asked else KeptOutput(Paths(settings.home).output(run))
        )
        self._on_ray = spec.on_ray
        self._readings = dict[str, _Reading]()

    def new_lines(self, state: RunState, *, last: bool) -> Iterator[OutputLine]:
        """The lines since the last call, the oldest first; with `last` also those that have not
        ended.
        """
        is_gone_of = {CLUSTER: False} if self._on_ray else {}
        for held in sorted(state.machines.values(), key=attrgetter("started")):
            is_gone_of[held.id] = not held.alive

        lines = list[Iterator[OutputLine]]()
        for machine, is_gone in is_gone_of.items():
            reading = self._readings.setdefault(machine, _Reading(machine, self._source))
            lines.append(reading.new_lines(last=last or is_gone, gone=is_gone))
        return merge(*lines, key=lambda line: line.at or 0)


class _Reading:
    """How far the output of one machine was read."""

    def __init__(self, machine: str, source: "CloudProvider | KeptOutput") -> None:
        self._machine = machine
        self._source = source
        self._at = self._times_at = 0
        self._ends = array("q")
        self._times = array("q")
        self._over = False

    def new_lines(self, *, last: bool, gone: bool = False) -> Iterator[OutputLine]:
        """The lines since the last call; a line that has not ended waits, unless this call is the
        `last` one.
        """
        is_all = self._over
        while not is_all:
            text = self._read(self._source.output, self._at)
            is_all = len(text) < _AT_A_TIME
            if not last or not is_all:
                # A `\\r` at the end may be half of a line's end. A line that is longer than a part
                # is shown in parts.
                ended = max(text.rfind(b"\n"), text.rfind(b"\r", 0, -1)) + 1
                text = text[: ended if ended or is_all else _AT_A_TIME]
            if text:
                self._note_times()
            for line in text.splitlines(keepends=True):
                printed_at = None
                if self._times:
                    # The latest time known, if that of the line was not noted yet.
                    printed_at = self._times[
                        min(bisect_right(self._ends, self._at), len(self._times) - 1)
                    ]
                yield OutputLine(
                    self._machine, line.decode(errors="replace").rstrip("\r\n"), printed_at
                )
                self._at += len(line)

        # A machine that is gone prints no more; without this, its cloud would be asked in every
        # round.
        self._over = self._over or gone

    def _note_times(self) -> None:
        while new := self._read(self._source.output_times, self._times_at):
            new = new[: new.rfind(b"\n") + 1 or len(new) // _AT_A_TIME * _AT_A_TIME]
            if not new:
                return
            self._times_at += len(new)
            for end, at in parse_times(new):
                if len(self._ends) < _MAX_TIMES:
                    self._ends.append(end)
                    self._times.append(at)

    def _read(self, read: Callable[[str, int], bytes], after: int) -> bytes:
        """The output that the source has of the machine from an offset on; none while the machine
        boots.
        """
        try:
            return read(self._machine, after)
        except (NotFound, Unanswered):
            return b""


def last_lines(environment: RunEnvironment, machine: str) -> str:
    """The last lines of a machine's output as one line, with secrets hidden; says so if there is
    none.
    """
    if environment.output is not None:
        kept = KeptOutput(environment.output)
        kept.fetch(environment.provider, machine, now=True)
        printed = kept.output(machine, -_AT_A_TIME)
    else:
        try:
            printed = environment.provider.output(machine)
        except ProviderError:
            return "its output is no longer available"

    text = printed[-_AT_A_TIME:].decode(errors="replace")
    last = [line.strip() for line in text.splitlines() if line.strip()][-3:]
    return environment.redacted(" | ".join(last))[-_LONGEST_QUOTE:] or "it printed nothing"


class KeptOutput:
    """Two files per machine in a folder of the run: the output, and its times.

    There is one writer, the run's process, and any number of readers.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._due: dict[str, float] = {}

    def fetch(self, provider: CloudProvider, machine: str, *, now: bool = False) -> None:
        """Adds what the machine has printed since the last time, if that was long enough ago, or
        `now`.

        A machine that does not answer is asked again the next time. A full disk loses output, and
        must not keep a machine from being returned.
        """
        if not now and time.monotonic() < self._due.get(machine, 0.0):
            return
        self._due[machine] = time.monotonic() + EVERY_SECONDS
        path = self._path(machine)
        with suppress(ProviderError, OSError):
            if new := provider.output(machine, _size(path)):
                self._add(path, new)
                self._add(times_file(path), provider.output_times(machine, _size(times_file(path))))

    def _add(self, path: Path, new: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as file:
            file.write(new)

    def output(self, machine: str, after: int = 0) -> bytes:
        """A part of the kept output of a machine, from a byte offset on; below 0, from as far
        before its end.
        """
        path = self._path(machine)
        return read_from(path, after if after >= 0 else max(_size(path) + after, 0), _AT_A_TIME)

    def output_times(self, machine: str, after: int = 0) -> bytes:
        """A part of the times of the kept output; see `CloudProvider`."""
        return read_from(times_file(self._path(machine)), after, _AT_A_TIME)

    def _path(self, machine: str) -> Path:
        return self._folder / _NOT_IN_NAMES.sub("_", machine)


def delete_old(runs: Path, now: float) -> None:
    """Deletes the output that machines of earlier runs printed more than `KEPT_DAYS` ago, but no
    results.
    """
    for times in runs.glob("*/output/*.times"):
        with suppress(OSError):
            if times.stat().st_mtime < now - KEPT_DAYS * DAY / SECOND:
                times.with_suffix("").unlink(missing_ok=True)
                times.unlink()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
