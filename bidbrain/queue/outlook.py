"""When jobs of a queue begin, grow, take turns and end: the scheduler played forward.

Jobs arrive no more in it, and quotas stay. Where lengths are uncertain it is played three times:
with what is expected, with all jobs as short, and with all as long as they may be. The scheduler
itself never knows these lengths.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bidbrain.queue.order import length_of
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
class JobOutlook:
    """When a job runs and ends, in seconds from now; a bound is None where there is none, and in
    the outlook of a single play.
    """

    name: str
    turns: tuple[PlannedTurn, ...]
    end: float | None
    earliest_start: float | None = None
    latest_start: float | None = None
    earliest_end: float | None = None
    latest_end: float | None = None

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
        soon = played(queue, previous, expected | short)
        late = played(queue, previous, expected | long)
        plays += [soon, late]

    return tuple(_joined([play[job.name] for play in plays]) for job in queue.jobs)


def played(
    queue: JobQueue, previous: QueueRound | None, lengths: Mapping[str, float]
) -> dict[str, JobOutlook]:
    """Each job's outlook if the lengths are these, which may be infinite."""
    # The Gavel policies are loaded for it; the plan of one job has no use for them.
    from bidbrain.queue.scheduler import next_round

    began = queue.now
    left = dict(lengths)
    delay = {job.name: 0.0 for job in queue.jobs}
    turns: dict[str, list[PlannedTurn]] = {job.name: [] for job in queue.jobs}
    ends = {name: 0.0 for name, work in left.items() if work <= 0}
    others = tuple(job for job in queue.jobs if job.name not in ends)
    queue = replace(queue, jobs=others)

    for number in range(_MAX_ROUNDS):
        if not queue.jobs or all(left[job.name] == float("inf") for job in queue.jobs):
            break

        before_that = previous
        previous = next_round(queue, previous)
        doublings = number // _FINE_ROUNDS - 1
        factor = 2.0 ** max(0, doublings)
        length = queue.terms.round_seconds * factor
        if before_that is not None and before_that.machines == previous.machines:
            length = max(length, unchanged_seconds(previous))

        jobs = []
        for job in queue.jobs:
            held = previous.machines.get(job.name, {})
            if held and not job.holds():
                delay[job.name] = job.swap_seconds
            same_state = bool(held) == bool(job.holds())
            since = job.since if same_state else queue.now
            jobs.append(replace(job, held=held, since=since))

        running = [job for job in jobs if job.holds()]
        soonest = []
        for job in running:
            speed = job.speed(job.held)
            soonest.append(delay[job.name] + left[job.name] / speed)
        if not running and all(job.since == queue.now for job in jobs) and number:
            break

        step = min([length, *soonest])
        jobs = [_after(job, step, delay, left, turns, queue.now - began) for job in jobs]
        now = queue.now + step
        for job, seconds in zip(running, soonest, strict=True):
            if seconds <= step * (1 + _DONE):
                ends[job.name] = now - began

        still_queued = tuple(job for job in jobs if job.name not in ends)
        queue = replace(queue, now=now, jobs=still_queued)

    merged = {name: tuple(_merged(parts)) for name, parts in turns.items()}
    return {name: JobOutlook(name, parts, ends.get(name)) for name, parts in merged.items()}


def unchanged_seconds(decided: QueueRound) -> float:
    """How long further rounds decide the same, if until then no job comes or ends: 0 where that is
    not known.
    """
    queue = decided.queue
    parts = [part for shares in decided.shares.values() for part in shares.values()]
    any_guess = (job.work is None and job.work_high is None for job in queue.jobs)
    guessed = any(any_guess)

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
    positive = (seconds for seconds in changes if seconds > 0)
    return min(positive, default=float("inf"))


def _joined(courses: list[JobOutlook]) -> JobOutlook:
    """The first of a job's plays, with the bounds of all."""
    starts = [course.turns[0].start if course.turns else course.end for course in courses]
    ends = [course.end for course in courses]
    known_starts = [start for start in starts if start is not None]
    known_ends = [end for end in ends if end is not None]

    first_start = min(known_starts, default=None)
    last_start = None if None in starts else max(known_starts)
    first_end = min(known_ends, default=None)
    last_end = None if None in ends else max(known_ends)
    return replace(
        courses[0],
        earliest_start=first_start,
        latest_start=last_start,
        earliest_end=first_end,
        latest_end=last_end,
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

    after_delay = step - delay[job.name]
    working = max(after_delay, 0.0)
    speed = job.speed(job.held)
    done = working * speed
    delay[job.name] = max(delay[job.name] - step, 0.0)
    left[job.name] -= done
    planned = PlannedTurn(begin, begin + step, job.held)
    turns[job.name].append(planned)
    kinds = {*job.received, *job.held}
    received = {}
    for kind in kinds:
        before = job.received.get(kind, 0.0)
        machines = job.held.get(kind, 0)
        received[kind] = before + machines * step
    work = None
    if job.work is not None:
        work = max(job.work - done, _DONE * job.work)
    high = None
    if job.work_high is not None:
        high = max(job.work_high - done, 0.0)

    work_low = max(job.work_low - done, 0.0)
    return replace(job, received=received, work=work, work_low=work_low, work_high=high)


def _merged(parts: list[PlannedTurn]) -> list[PlannedTurn]:
    """Turns that follow each other on the same machines as one."""
    merged = list[PlannedTurn]()
    for part in parts:
        if merged and merged[-1].end == part.start and merged[-1].machines == part.machines:
            last = merged[-1]
            merged[-1] = PlannedTurn(last.start, part.end, part.machines)
        else:
            merged.append(part)
    return merged
