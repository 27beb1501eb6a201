"""When jobs of a queue begin, grow, take turns and end: the scheduler played forward.

Jobs arrive no more in it, and quotas stay. Where lengths are uncertain it is played three times:
with what is expected, with all jobs as short, and with all as long as they may be. The scheduler
itself never knows these lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bidbrain.queue.order import length_of
from bidbrain.queue.scheduler import next_round
from bidbrain.queue.values import MEAN_COMPLETION, JobQueue, QueueJob, QueueRound

_MAX_ROUNDS = 3000
_FINE_ROUNDS = 150
"""Rounds beyond this number are longer, twice as long after each further `_FINE_ROUNDS`."""
_DONE, _WHOLE = 1e-9, 1e-6


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A time in which a job holds the same machines, in seconds from now."""

    start: float
    end: float
    machines: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobCourse:
    """When a job runs in one play, and when it ends, in seconds from now."""

    turns: tuple[PlannedTurn, ...]
    end: float | None


@dataclass(frozen=True, slots=True)
class JobOutlook:
    """When a job runs, in seconds from now; None where that is not within any bound."""

    name: str
    turns: tuple[PlannedTurn, ...]
    end: float | None
    earliest_start: float | None
    latest_start: float | None
    earliest_end: float | None
    latest_end: float | None

    @property
    def start(self) -> float | None:
        if self.turns:
            return self.turns[0].start
        return None


def outlook(queue: JobQueue, previous: QueueRound | None = None) -> tuple[JobOutlook, ...]:
    """Start, turns and end of each job of the queue, in its order."""
    expected = {job.name: length_of(job, queue) for job in queue.jobs}
    uncertain = [job for job in queue.jobs if job.work is None or job.work_high is not None]
    plays = [played(queue, previous, expected)]
    if uncertain:
        short = {job.name: job.work_low for job in uncertain}
        long = {
            job.name: float("inf") if job.work_high is None else job.work_high for job in uncertain
        }
        plays += [
            played(queue, previous, expected | short),
            played(queue, previous, expected | long),
        ]

    return tuple(_joined(job, plays) for job in queue.jobs)


def played(
    queue: JobQueue, previous: QueueRound | None, lengths: Mapping[str, float]
) -> dict[str, JobCourse]:
    """Each job's course if the lengths are these, which may be infinite."""
    began = queue.now
    left = dict(lengths)
    delay = {job.name: 0.0 for job in queue.jobs}
    turns: dict[str, list[PlannedTurn]] = {job.name: [] for job in queue.jobs}
    ends = {name: 0.0 for name, work in left.items() if work <= 0}
    queue = replace(queue, jobs=tuple(job for job in queue.jobs if job.name not in ends))

    for number in range(_MAX_ROUNDS):
        if not queue.jobs or all(left[job.name] == float("inf") for job in queue.jobs):
            break

        before_that = previous
        previous = next_round(queue, previous)
        length = queue.terms.round_seconds * 2.0 ** max(0, number // _FINE_ROUNDS - 1)
        if before_that is not None and before_that.machines == previous.machines:
            length = max(length, unchanged_seconds(previous))

        jobs = []
        for job in queue.jobs:
            held = previous.machines.get(job.name, {})
            if held and not job.holds():
                delay[job.name] = job.swap_seconds
            since = job.since if bool(held) == bool(job.holds()) else queue.now
            jobs.append(replace(job, held=held, since=since))

        running = [job for job in jobs if job.holds()]
        soonest = [delay[job.name] + left[job.name] / job.speed(job.held) for job in running]
        if not running and all(job.since == queue.now for job in jobs) and number:
            break

        step = min([length, *soonest])
        jobs = [_after(job, step, delay, left, turns, queue.now - began) for job in jobs]
        now = queue.now + step
        for job, seconds in zip(running, soonest, strict=True):
            if seconds <= step * (1 + _DONE):
                ends[job.name] = now - began

        queue = replace(queue, now=now, jobs=tuple(job for job in jobs if job.name not in ends))

    return {name: JobCourse(tuple(_merged(parts)), ends.get(name)) for name, parts in turns.items()}


def unchanged_seconds(decided: QueueRound) -> float:
    """How long further rounds decide the same, if until then no job comes or ends: 0 where that is
    not known.
    """
    queue = decided.queue
    parts = [part for shares in decided.shares.values() for part in shares.values()]
    guessed = any(job.work is None and job.work_high is None for job in queue.jobs)

    if (
        queue.terms.policy != MEAN_COMPLETION
        or guessed
        or any(abs(part - round(part)) > _WHOLE for part in parts)
    ):
        return 0.0

    length = queue.terms.round_seconds
    limit = queue.terms.max_wait_rounds * length
    changes = [job.since + (length if job.holds() else limit) - queue.now for job in queue.jobs]
    changes += [job.paid_until - length - queue.now for job in queue.jobs if job.holds()]
    return min((seconds for seconds in changes if seconds > 0), default=float("inf"))


def _joined(job: QueueJob, plays: list[dict[str, JobCourse]]) -> JobOutlook:
    courses = [play[job.name] for play in plays]
    starts = [course.turns[0].start if course.turns else course.end for course in courses]
    ends = [course.end for course in courses]
    known_starts = [start for start in starts if start is not None]
    known_ends = [end for end in ends if end is not None]

    return JobOutlook(
        job.name,
        courses[0].turns,
        ends[0],
        earliest_start=min(known_starts, default=None),
        latest_start=None if None in starts else max(known_starts),
        earliest_end=min(known_ends, default=None),
        latest_end=None if None in ends else max(known_ends),
    )


def _after(
    job: QueueJob,
    step: float,
    delay: dict[str, float],
    left: dict[str, float],
    turns: dict[str, list[PlannedTurn]],
    begin: float,
) -> QueueJob:
    """The job after it held its machines for a time."""
    if not job.holds():
        return job

    done = max(step - delay[job.name], 0.0) * job.speed(job.held)
    delay[job.name] = max(delay[job.name] - step, 0.0)
    left[job.name] -= done
    turns[job.name].append(PlannedTurn(begin, begin + step, job.held))
    received = {
        kind: job.received.get(kind, 0.0) + job.held.get(kind, 0) * step
        for kind in {*job.received, *job.held}
    }
    work = None if job.work is None else max(job.work - done, _DONE * job.work)
    high = None if job.work_high is None else max(job.work_high - done, 0.0)

    return replace(
        job, received=received, work=work, work_low=max(job.work_low - done, 0.0), work_high=high
    )


def _merged(parts: list[PlannedTurn]) -> list[PlannedTurn]:
    """Turns that follow each other on the same machines as one."""
    merged = list[PlannedTurn]()
    for part in parts:
        if merged and merged[-1].end == part.start and merged[-1].machines == part.machines:
            merged[-1] = PlannedTurn(merged[-1].start, part.end, part.machines)
        else:
            merged.append(part)
    return merged
