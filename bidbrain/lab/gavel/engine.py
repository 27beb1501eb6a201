"""Plays a cluster round by round: time, steps and accounts. A dispatcher decides what runs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.lab.gavel.dispatch import Dispatcher
from bidbrain.lab.gavel.rounds import NO_JOB, RoundCandidates, Servers
from bidbrain.lab.gavel.workload import ClusterSimulation

ReportFinished = Callable[[int], None]
# Rounds without any running job after which a dispatcher is taken to be stuck.
_MAX_IDLE_ROUNDS = 10_000
# The seat of a job that has not run.
_NEVER = -1
# Rounds in a row with fewer steps than workers after which the published simulator drops a job.
_MAX_FAILURES = 5


class Stalled(BidBrainError):
    """Jobs wait, and none of them will ever run."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Result per job and per round. `finish` is infinite where a job was not done at the end; some
    were `dropped` then.

    `held_seconds` is the time a job held its workers, by type; where two jobs share workers, each
    counts half of it. `spread_seconds` is the time of a job whose workers were on several servers.
    """

    scenario: ClusterSimulation
    finish: Floats
    held_seconds: Floats
    moves: Ints
    round_start: Floats
    round_end: Floats
    busy_worker_seconds: Floats
    allocations: int
    spread_seconds: Floats
    dropped: Bools

    @property
    def end(self) -> float:
        return float(self.round_end[-1])


def simulate(
    scenario: ClusterSimulation, dispatcher: Dispatcher, progress: ReportFinished | None = None
) -> SimulationOutcome:
    """Plays a workload until all measured jobs are done; `progress` receives the number of finished
    jobs.
    """
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
        self._scenario = scenario
        self._dispatcher = dispatcher
        self._rates = workload.rates
        self._together = workload.throughputs.together
        self._left = workload.steps.copy()
        self._now = float(workload.arrival[0])
        self._active = np.zeros(0, dtype=np.int64)
        self._arrived = 0
        self._changed = False
        self._finish = np.full(jobs, np.inf)
        self._types = types

        # When and where a job last ran.
        self._seats = _Seats(types, jobs)
        self._seat = np.full(jobs, _NEVER)
        sizes = np.full(types, np.inf) if scenario.per_server is None else scenario.per_server
        numbered = enumerate(zip(scenario.cluster.workers, sizes, strict=True))
        self._servers = {
            kind: Servers(int(count), int(size))
            for kind, (count, size) in numbered
            if np.isfinite(size)
        }

        self._spread_seconds = np.zeros(jobs)
        self._place = np.zeros(jobs, dtype=np.int64)
        steps = self._rates * scenario.round_seconds
        self._whole = np.maximum(np.floor(steps), 1.0)
        self._nobody = np.zeros(0, dtype=np.int64)
        self._rounds: list[tuple[float, float]] = []
        self._accounts = _Accounts(self._seats)
        self._failures = np.zeros(jobs, dtype=np.int64)
        self._idle = 0
        self.waiting = len(scenario.measured)
        self.ended = 0

    def next_round(self) -> None:
        """Admits arrivals and plays one round; if no job can run, waits for the next arrival."""
        arrival = self._scenario.workload.arrival
        if self._arrived < len(arrival) and arrival[self._arrived] <= self._now:
            here = int(np.searchsorted(arrival, self._now, side="right"))
            arrived = np.arange(self._arrived, here)
            self._active = np.concatenate([self._active, arrived])
            self._arrived = here
            self._changed = True

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
                f"the policy gives no time to job {name} and {len(self._active) - 1} more: use "
                "another policy"
            )

        self._now = until

    def outcome(self) -> SimulationOutcome:
        start, end = np.array(self._rounds).T
        held, moves, busy = self._accounts.totals()
        return SimulationOutcome(
            self._scenario,
            self._finish,
            held,
            moves,
            start,
            end,
            busy,
            self._dispatcher.allocations,
            self._spread_seconds,
            self._failures >= _MAX_FAILURES,
        )

    def _play(self, chosen: RoundCandidates) -> None:
        """One round: each job does whole steps within its length; it lasts until the last of them
        is done.
        """
        job = chosen.first
        type_ = chosen.type
        mate = chosen.second
        scenario = self._scenario
        paired = self._nobody if scenario.believed is None else np.flatnonzero(mate != NO_JOB)
        if paired.size:
            seat = np.concatenate([np.arange(len(job)), paired])
            job, type_, mate = (
                np.concatenate([job, mate[paired]]),
                type_[seat],
                np.concatenate([mate, job[paired]]),
            )

        spread = np.zeros(0, dtype=np.bool_)
        place = np.zeros(1, dtype=np.int64)
        if self._servers:
            spread = self._spread(chosen)[seat if paired.size else slice(None)]
            place = self._place[job]

        seats = self._seats.of(len(self._rounds), type_, mate, place)
        left = self._left.take(job)
        if paired.size or scenario.checkpoint_seconds or self._servers:
            rate = self._rate(chosen, paired)
            if self._servers:
                rate = rate * self._kept_speed(job, type_, spread)

            # A job that was not measured on several servers does not run there.
            runs = rate > 0
            lost = self._seats.moved(self._seat[job], seats) * scenario.checkpoint_seconds * runs
            self._seat[job[runs]] = seats[runs]
            whole_steps = np.floor(rate * (scenario.round_seconds - lost))
            steps = np.minimum(np.maximum(whole_steps, 1.0 * runs), left)
            seconds = lost + np.divide(steps, rate, out=np.zeros(len(rate)), where=runs)
            if self._servers:
                self._spread_seconds[job] += seconds * spread
        else:
            at = job * self._types + type_
            steps = np.minimum(self._whole.take(at), left)
            seconds = steps / self._rates.take(at)

        length = float(np.maximum.reduce(seconds))
        dropped = self._nobody
        if scenario.drops:
            failed = steps < chosen.scale
            dropped = self._given_up(job, failed)
            steps = steps * ~failed
            seconds = seconds * ~failed

        ended = self._ended(job, left - steps, seconds, dropped, length)
        of_seat = seconds
        held = seconds
        if paired.size:
            of_seat = seconds[: len(chosen.first)].copy()
            np.maximum.at(of_seat, paired, seconds[len(chosen.first) :])
            held = (of_seat / np.where(chosen.second != NO_JOB, 2, 1))[seat]

        if self._servers:
            job, seats, held = (part[held > 0] for part in (job, seats, held))

        self._accounts.book(job, seats, held, of_seat * chosen.scale, chosen.type)
        self._close(length, of_seat, ended)

    def _given_up(self, job: Ints, failed: Bools) -> Ints:
        """The jobs that have now failed too many rounds in a row."""
        failures = np.where(failed, self._failures[job] + 1, 0)
        self._failures[job] = failures
        self._changed |= bool(failed.any())
        return job[failures >= _MAX_FAILURES]

    def _ended(
        self, job: Ints, left: Floats, seconds: Floats, dropped: Ints, length: float
    ) -> Ints:
        """The jobs that ended in a round of this length, done or dropped, after it notes what is
        left of each job.
        """
        is_done = left <= 0
        finished = job[is_done]
        if finished.size:
            self._finish[finished] = self._now + seconds[is_done]

        self._left[job] = left
        self._left[dropped] = 0
        self._finish[dropped] = self._now + length
        if dropped.size:
            return np.concatenate([finished, dropped])
        return finished

    def _spread(self, chosen: RoundCandidates) -> Bools:
        """Which candidates have their workers on several servers. Jobs that move to other workers
        get another seat.
        """
        spread = np.zeros(len(chosen.first), dtype=bool)
        for kind, servers in self._servers.items():
            here = np.flatnonzero(chosen.type == kind)
            first = chosen.first[here]
            scales = zip(first.tolist(), chosen.scale[here].tolist(), strict=True)
            scale_of_jobs = dict(scales)
            several, kept = servers.place(scale_of_jobs)
            spread[here] = np.isin(first, list(several))
            moved = here[~np.isin(first, list(kept))]
            self._place[chosen.first[moved]] ^= 1
            self._place[chosen.second[moved][chosen.second[moved] != NO_JOB]] ^= 1

        return spread

    def _kept_speed(self, job: Ints, type_: Ints, spread: Bools) -> Floats:
        """The part of a job's speed that is left where its workers are on several servers."""
        throughputs = self._scenario.workload.throughputs
        kind = self._scenario.workload.kind[job]
        assert throughputs.spread is not None
        spread_speed = throughputs.spread[kind, type_]
        alone_speed = throughputs.alone[kind, type_]
        return np.where(spread, spread_speed / alone_speed, 1.0)

    def _rate(self, chosen: RoundCandidates, paired: Ints) -> Floats:
        """Steps per second: of all first jobs, then of their partners."""
        rate = self._rates[chosen.first, chosen.type]
        if not paired.size:
            return rate
        kind = self._scenario.workload.kind
        first = kind[chosen.first[paired]]
        second = kind[chosen.second[paired]]
        both = self._together[first, second, chosen.type[paired]]
        rate[paired] = both[:, 0]
        return np.concatenate([rate, both[:, 1]])

    def _close(self, length: float, seconds: Floats, finished: Ints) -> None:
        start = self._now
        self._now = self._now + (length or self._scenario.round_seconds)
        self._idle = 0

        self._rounds.append((start, self._now))
        if finished.size:
            measured = self._scenario.measured
            self._active = self._active[self._left[self._active] > 0]
            among_measured = (finished >= measured.start) & (finished < measured.stop)
            self.waiting -= int(among_measured.sum())
            self.ended += int((finished < measured.stop).sum())
            self._changed = True

        self._dispatcher.book_round(seconds, finished)


@dataclass(frozen=True, slots=True)
class _Seats:
    """Numbers for a round, a type of workers, and a partner.

    A job that stays on its type, with the same partner if any, renews its lease and stays on its
    workers, unless its place changes between 0 and 1.
    """

    types: int
    jobs: int

    @property
    def each_round(self) -> int:
        return 2 * self.types * (self.jobs + 1)

    def of(self, round_: int, type_: Ints, mate: Ints, place: Ints) -> Ints:
        """The seats of jobs on these types, with these partners."""
        seat = (type_ + self.types * place) * (self.jobs + 1)
        earlier = self.each_round * round_
        return np.asarray(seat + (mate + (1 + earlier)))

    def type(self, seat: Ints) -> Ints:
        """The types of workers."""
        return np.asarray(seat // (self.jobs + 1) % self.types)

    def moved(self, last: Ints, seat: Ints) -> Bools:
        """Which jobs ran before, and not in the last round on these workers."""
        expected = seat - self.each_round
        elsewhere = last != expected
        return np.asarray((last != _NEVER) & elsewhere)


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
        """The seconds that jobs held workers of each type, the moves of jobs, and the busy time in
        each round.
        """
        job = np.concatenate(self._job)
        seat = np.concatenate(self._seat)
        types = self._seats.types
        jobs = self._seats.jobs

        at = job * types + self._seats.type(seat)
        seconds = np.bincount(at, np.concatenate(self._held), jobs * types)
        held = seconds.reshape(jobs, types)
        order = np.argsort(job, kind="stable")
        again = job[order][1:] == job[order][:-1]
        has_moved = self._seats.moved(seat[order][:-1], seat[order][1:])
        moved = again & has_moved
        jobs_moved = job[order][1:][moved]
        moves = np.bincount(jobs_moved, minlength=jobs)
        lengths = [len(types) for types in self._type]
        rounds = np.repeat(np.arange(len(self._type)), lengths)
        of_type = rounds * types + np.concatenate(self._type)
        busy_seconds = np.bincount(of_type, np.concatenate(self._busy), len(self._type) * types)
        busy = busy_seconds.reshape(-1, types)

        return held.astype(np.float64), moves, busy.astype(np.float64)
