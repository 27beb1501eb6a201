"""Plays a cluster round by round: time, steps and accounts. A dispatcher decides what runs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.gavel.rounds import NO_JOB, RoundCandidates
from bidbrain.lab.gavel.simulator.dispatch import Dispatcher
from bidbrain.lab.gavel.workload import ClusterSimulation

ReportFinished = Callable[[int], None]
# Rounds without any running job after which a dispatcher is taken to be stuck.
_MAX_IDLE_ROUNDS = 10_000
# The seat of a job that has not run.
_NEVER = -1


class Stalled(BidBrainError):
    """Jobs wait, and none of them will ever run."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Result per job and per round. `finish` is infinite where a job was not done at the end.

    `held_seconds` is the time a job held its workers, by type; where two jobs share workers, each counts half of it.
    """

    scenario: ClusterSimulation
    finish: Floats
    held_seconds: Floats
    moves: Ints
    round_start: Floats
    round_end: Floats
    busy_worker_seconds: Floats
    allocations: int

    @property
    def end(self) -> float:
        return float(self.round_end[-1])


def simulate(
    scenario: ClusterSimulation, dispatcher: Dispatcher, progress: ReportFinished | None = None
) -> SimulationOutcome:
    """Plays a workload until all measured jobs are done; `progress` receives the number of finished jobs."""
    run = _SimulationRun(scenario, dispatcher)
    while run.waiting:
        run.next_round()
        if progress is not None:
            progress(run.ended)
    return run.outcome()


class _SimulationRun:
    """The state of a simulation between two rounds."""

    def __init__(self, scenario: ClusterSimulation, dispatcher: Dispatcher) -> None:
        workload = scenario.workload
        jobs, types = workload.rates.shape
        self._scenario, self._dispatcher = scenario, dispatcher
        self._rates, self._together = workload.rates, workload.throughputs.together
        self._left = workload.steps.copy()
        self._now = float(workload.arrival[0])
        self._active, self._arrived, self._changed = np.zeros(0, dtype=np.int64), 0, False
        self._finish = np.full(jobs, np.inf)
        self._types = types
        # When and where a job last ran.
        self._seats, self._seat = _Seats(types, jobs), np.full(jobs, _NEVER)
        self._whole = np.maximum(np.floor(self._rates * scenario.round_seconds), 1.0)
        self._nobody = np.zeros(0, dtype=np.int64)
        self._rounds: list[tuple[float, float]] = []
        self._accounts = _Accounts(self._seats)
        self._idle = 0
        self.waiting, self.ended = len(scenario.measured), 0

    def next_round(self) -> None:
        """Admits arrivals and plays one round; if no job can run, waits for the next arrival."""
        arrival = self._scenario.workload.arrival
        if self._arrived < len(arrival) and arrival[self._arrived] <= self._now:
            here = int(np.searchsorted(arrival, self._now, side="right"))
            self._active = np.concatenate([self._active, np.arange(self._arrived, here)])
            self._arrived, self._changed = here, True
        self._changed, changed = False, self._changed
        chosen = self._dispatcher.dispatch(self._now, self._active, self._left, changed=changed)
        if len(chosen.first):
            self._play(chosen)
            return

        # Skips to the next arrival, or to when the dispatcher may decide differently.
        self._idle += 1
        until = self._now + self._dispatcher.patience
        if self._arrived < len(arrival):
            until = min(until, float(arrival[self._arrived]))
        if not np.isfinite(until) or self._idle > _MAX_IDLE_ROUNDS:
            name = self._scenario.workload.names[int(self._active[0])]
            raise Stalled(
                f"the policy gives no time to job {name} and {len(self._active) - 1} more: use another policy"
            )
        self._now = until

    def outcome(self) -> SimulationOutcome:
        start, end = np.array(self._rounds).T
        held, moves, busy = self._accounts.totals()
        return SimulationOutcome(
            self._scenario, self._finish, held, moves, start, end, busy, self._dispatcher.allocations
        )

    def _play(self, chosen: RoundCandidates) -> None:
        """One round: each job does whole steps within its length; it lasts until the last of them is done."""
        job, type_, mate = chosen.first, chosen.type, chosen.second
        scenario = self._scenario
        paired = self._nobody if scenario.believed is None else np.flatnonzero(mate != NO_JOB)
        if paired.size:
            seat = np.concatenate([np.arange(len(job)), paired])
            job, type_, mate = np.concatenate([job, mate[paired]]), type_[seat], np.concatenate([mate, job[paired]])
        seats = self._seats.of(len(self._rounds), type_, mate)
        left = self._left.take(job)
        if paired.size or scenario.checkpoint_seconds:
            rate = self._rate(chosen, paired)
            lost = self._seats.moved(self._seat[job], seats) * scenario.checkpoint_seconds
            self._seat[job] = seats
            steps = np.minimum(np.maximum(np.floor(rate * (scenario.round_seconds - lost)), 1.0), left)
            seconds = lost + steps / rate
        else:
            at = job * self._types + type_
            steps = np.minimum(self._whole.take(at), left)
            seconds = steps / self._rates.take(at)
        left -= steps
        self._left[job] = left
        finished = job[left <= 0]
        if finished.size:
            self._finish[finished] = self._now + seconds[left <= 0]
        of_seat, held = seconds, seconds
        if paired.size:
            of_seat = seconds[: len(chosen.first)].copy()
            np.maximum.at(of_seat, paired, seconds[len(chosen.first) :])
            held = (of_seat / np.where(chosen.second != NO_JOB, 2, 1))[seat]
        self._accounts.book(job, seats, held, of_seat * chosen.scale, chosen.type)
        self._close(of_seat, finished)

    def _rate(self, chosen: RoundCandidates, paired: Ints) -> Floats:
        """Steps per second: of all first jobs, then of their partners."""
        rate = self._rates[chosen.first, chosen.type]
        if not paired.size:
            return rate
        kind = self._scenario.workload.kind
        first, second = kind[chosen.first[paired]], kind[chosen.second[paired]]
        both = self._together[first, second, chosen.type[paired]]
        rate[paired] = both[:, 0]
        return np.concatenate([rate, both[:, 1]])

    def _close(self, seconds: Floats, finished: Ints) -> None:
        start, self._now, self._idle = self._now, self._now + float(np.maximum.reduce(seconds)), 0
        self._rounds.append((start, self._now))
        if finished.size:
            measured = self._scenario.measured
            self._active = self._active[self._left[self._active] > 0]
            self.waiting -= int(((finished >= measured.start) & (finished < measured.stop)).sum())
            self.ended += int((finished < measured.stop).sum())
            self._changed = True
        self._dispatcher.book_round(seconds, finished)


@dataclass(frozen=True, slots=True)
class _Seats:
    """Numbers for a round, a type of workers, and a partner.

    A job that stays on its type, with the same partner if any, renews its lease and stays on its workers.
    """

    types: int
    jobs: int

    @property
    def each_round(self) -> int:
        return self.types * (self.jobs + 1)

    def of(self, round_: int, type_: Ints, mate: Ints) -> Ints:
        """The seats of jobs on these types, with these partners."""
        return np.asarray(type_ * (self.jobs + 1) + (mate + (1 + self.each_round * round_)))

    def type(self, seat: Ints) -> Ints:
        """The types of workers."""
        return np.asarray(seat // (self.jobs + 1) % self.types)

    def moved(self, last: Ints, seat: Ints) -> Bools:
        """Which jobs ran before, and not in the last round on these workers."""
        return np.asarray((last != _NEVER) & (last != seat - self.each_round))


class _Accounts:
    """Everything that ran. Added up at the end, because no round depends on it."""

    def __init__(self, seats: _Seats) -> None:
        self._seats = seats
        self._job: list[Ints] = []
        self._seat: list[Ints] = []
        self._held: list[Floats] = []
        self._busy: list[Floats] = []
        self._type: list[Ints] = []

    def book(self, job: Ints, seat: Ints, held: Floats, busy: Floats, type_: Ints) -> None:
        """Jobs that held seats for some seconds; types that were busy for some worker-seconds."""
        self._job.append(job)
        self._seat.append(seat)
        self._held.append(held)
        self._busy.append(busy)
        self._type.append(type_)

    def totals(self) -> tuple[Floats, Ints, Floats]:
        """The seconds that jobs held workers of each type, the moves of jobs, and the busy time in each round."""
        job, seat, types, jobs = (
            np.concatenate(self._job),
            np.concatenate(self._seat),
            self._seats.types,
            self._seats.jobs,
        )
        at = job * types + self._seats.type(seat)
        held = np.bincount(at, np.concatenate(self._held), jobs * types).reshape(jobs, types)
        order = np.argsort(job, kind="stable")
        again = job[order][1:] == job[order][:-1]
        moved = again & self._seats.moved(seat[order][:-1], seat[order][1:])
        moves = np.bincount(job[order][1:][moved], minlength=jobs)
        rounds = np.repeat(np.arange(len(self._type)), [len(types) for types in self._type])
        of_type = rounds * types + np.concatenate(self._type)
        busy = np.bincount(of_type, np.concatenate(self._busy), len(self._type) * types).reshape(-1, types)
        return held.astype(np.float64), moves, busy.astype(np.float64)
