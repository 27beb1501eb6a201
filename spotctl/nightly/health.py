"""The problems of a nightly job, for monitoring. Each says how to solve it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from statistics import median
from typing import TypeVar

from pricing_data.units import HOUR, MINUTE, SECOND, age, counted
from spotctl.home.errors import BadRequest
from spotctl.log.outcomes import DONE, STOPPED
from spotctl.nightly.hours import LONGEST_RETRY, Hours, clock_text
from spotctl.nightly.starts import NightStart
from spotctl.nightly.state_dir import NightRecord, StateDir

T = TypeVar("T")

GRACE = 15 * MINUTE
"""How late a timer may be, or the end of a night: the computer may have been busy, or have just woken up."""
LONGEST_NIGHT = 24 * HOUR
"""A night without a deadline that runs longer delays the next one."""
_FACTOR = 2
"""The longest night, in times of the usual length."""
_FIX_AND_RUN = "fix it, then run: spotctl nightly run {name}"


@dataclass(frozen=True, slots=True)
class NightHistory:
    """The starts and the last night of a job, and when it was recorded as reported.

    `locked`: a process attends to the job.
    """

    name: str
    starts: Sequence[NightStart]
    last: NightRecord | None
    reported_at: int
    locked: bool

    @property
    def latest(self) -> NightStart | None:
        return self.starts[-1] if self.starts else None

    @property
    def running_since(self) -> int | None:
        """The begin of the start that is going on (microseconds UTC); None if none is."""
        alive = [start.began_us for start in self.starts if start.is_alive]
        if alive:
            return alive[0]
        if not self.locked:
            return None
        if self.last is not None and not self.last.reported:
            return self.last.since
        return None if self.latest is None else self.latest.began_us

    @property
    def is_running(self) -> bool:
        return self.locked or self.running_since is not None

    @property
    def failed_start(self) -> NightStart | None:
        """The latest start if it failed, or did not end, and the record of the last night does not say how."""
        start = self.latest
        if start is None or start.is_alive or (start.ended is None and self.locked):
            return None
        if self.reported_at > (start.began if start.ended is None else start.ended) * SECOND:
            return None
        unsaid = start.status != 0 and not start.reported
        return start if start.why or unsaid else None


def history(state_dir: StateDir) -> tuple[NightHistory, list[str]]:
    """The history of a job as far as it can be read, and which files are damaged."""
    damaged = list[str]()

    def readable(read: Callable[[], T | None]) -> T | None:
        try:
            return read()
        except BadRequest as error:
            damaged.append(str(error))
            return None

    starts, lines = readable(state_dir.starts.read) or ([], 0)
    if lines:
        cure = "remove the file; the next start makes a new one"
        damaged.append(f"{state_dir.starts.path}: {counted(lines, 'line')} cannot be read; {cure}")
    last, result = readable(lambda: state_dir.last), readable(lambda: state_dir.result)
    reported_at = 0 if result is None else result.end
    return NightHistory(state_dir.name, starts, last, reported_at, state_dir.is_running), damaged


def problems(state_dir: StateDir, hours: Hours, now: int, zone: tzinfo) -> list[str]:
    """The problems of the job's records and of its last nights; empty if all is well."""
    nights, damaged = history(state_dir)
    missed = _not_started(nights, hours, state_dir.installed_at, now, zone)
    last = (_hung(nights, hours, now, zone), missed, _failed(nights, zone))
    return [*damaged, *filter(None, last), *_unsaid(nights, zone)]


def _hung(nights: NightHistory, hours: Hours, now: int, zone: tzinfo) -> str:
    since = nights.running_since
    if since is None or now < (limit := latest_end(nights.starts, hours, since, zone)):
        return ""
    return (
        f"the night of {clock_text(since, zone)} still runs, and should have ended by {clock_text(limit, zone)}; see"
        f" spotctl logs {nights.name}, and stop it with: spotctl stop {nights.name}"
    )


def latest_end(starts: Sequence[NightStart], hours: Hours, since: int, zone: tzinfo) -> int:
    """When a night that began at `since` counts as hung.

    That is after its deadline. Without one, a night may retry for hours and then take twice as long as usual (the
    median of the earlier ones that were done), but not more than a day.
    """
    deadline = hours.from_now(since, zone).deadline
    if deadline is not None:
        return deadline + GRACE
    lengths = [start.ended - start.began for start in starts if start.ended is not None and start.status == 0]
    if not lengths:
        return since + LONGEST_NIGHT
    return since + min(LONGEST_NIGHT, LONGEST_RETRY + _FACTOR * round(median(lengths) * SECOND))


def _not_started(nights: NightHistory, hours: Hours, installed_at: int, now: int, zone: tzinfo) -> str:
    begin, last = hours.night(now, zone).begin, nights.last
    begun = (last is not None and last.begin >= begin) or any(
        start.began_us >= begin - SECOND for start in nights.starts
    )
    if begun or installed_at > begin or now < begin + GRACE:
        return ""
    return (
        f"the night of {clock_text(begin, zone)} did not start: its timer did not run; check the timer with spotctl"
        f" doctor, or run the night now: spotctl nightly run {nights.name}"
    )


def _failed(nights: NightHistory, zone: tzinfo) -> str:
    start, last = nights.failed_start, nights.last
    if start is not None:
        cure = _FIX_AND_RUN if start.ended is not None else "spotctl nightly run {name} resumes it"
        return f"{failure_text(start, zone)}; {cure.format(name=nights.name)}"
    if last is None or nights.is_running:
        return ""
    if not last.reported:
        return f"the night of {last.day.isoformat()} was interrupted; spotctl nightly run {nights.name} resumes it"
    if last.outcome not in (DONE, STOPPED):
        return (
            f"the night of {last.day.isoformat()} ended with: {last.outcome}; see nightly/{nights.name}/logs, then run:"
            f" spotctl nightly run {nights.name}"
        )
    return ""


def _unsaid(nights: NightHistory, zone: tzinfo) -> list[str]:
    """Failures of earlier starts about which no message could be sent."""
    return [
        f"{failure_text(start, zone)}, and no message could be sent; check the webhook of the job file"
        for start in unreported(nights.starts[:-1], nights.reported_at)
    ]


def unreported(starts: Sequence[NightStart], reported_at: int) -> list[NightStart]:
    """The starts that failed, and about which no message was sent.

    One that was killed is resumed by the next one, whose message is about both.
    """
    return [
        start
        for start in starts
        if not (start.reported or start.is_alive or start.status == 0)
        and (start.ended is not None or reported_at < start.began_us)
    ]


def failure_text(start: NightStart, zone: tzinfo) -> str:
    begun = f"the start of {clock_text(start.began_us, zone)}"
    if start.ended is None:
        return f"{begun} did not end: its process {start.pid} does not exist any more (killed, or a power cut)"
    return f"{begun} failed after {age(start.ended - start.began)}: {start.why or f'exit status {start.status}'}"
