"""Plays a cluster round by round: time, steps and accounts. A dispatcher decides what runs."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bidbrain.errors import BidBrainError
from bidbrain.gavel.arrays import BoolArray, FloatArray, IntArray
from bidbrain.gavel.rounds import NO_JOB, RoundCandidates
from bidbrain.gavel.simulator.dispatch import ClusterState, Dispatcher
from bidbrain.gavel.simulator.scenario import ClusterSimulation

ReportFinished = Callable[[int], None]
# Rounds without any running job after which a dispatcher is taken to be stuck.
_MOST_IDLE_ROUNDS = 10_000


class Stalled(BidBrainError):
    """Jobs wait, and none of them will ever run."""


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """Result per job and per round. `finish` is infinite where a job was not done at the end.

    `held_seconds` is the time a job held its workers, by type; where two jobs share workers, each counts half of it.
    """

    scenario: ClusterSimulation
    finish: FloatArray
    held_seconds: FloatArray
    moves: IntArray
    round_start: FloatArray
    round_end: FloatArray
    busy_worker_seconds: FloatArray
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
        self._held = np.zeros((jobs, types))
        self._moves = np.zeros(jobs, dtype=np.int64)
        # When and where a job last ran: a number for round, type and partner.
        self._seat, self._seats = np.full(jobs, -1), types * (jobs + 1)
        self._whole = np.maximum(np.floor(self._rates * scenario.settings.round_seconds), 1.0)
        self._nobody = np.zeros(0, dtype=np.int64)
        self._rounds: list[tuple[float, float]] = []
        self._busy: list[FloatArray] = []
        self._idle = 0
        self.waiting, self.ended = len(scenario.measured), 0

    def next_round(self) -> None:
        """Admits arrivals and plays one round; if no job can run, waits for the next arrival."""
        self._admit()
        self._changed, changed = False, self._changed
        chosen = self._dispatcher.dispatch(ClusterState(self._now, self._active, self._left, changed))
        if len(chosen.first):
            self._play(chosen)
        else:
            self._skip()

    def outcome(self) -> SimulationOutcome:
        start, end = np.array(self._rounds).T
        return SimulationOutcome(
            self._scenario,
            self._finish,
            self._held,
            self._moves,
            start,
            end,
            np.array(self._busy),
            self._dispatcher.allocations,
        )

    def _admit(self) -> None:
        arrival = self._scenario.workload.arrival
        if self._arrived < len(arrival) and arrival[self._arrived] <= self._now:
            here = int(np.searchsorted(arrival, self._now, side="right"))
            self._active = np.concatenate([self._active, np.arange(self._arrived, here)])
            self._arrived, self._changed = here, True

    def _skip(self) -> None:
        """Skips to the next arrival, or to when the dispatcher may decide differently."""
        arrival = self._scenario.workload.arrival
        self._idle += 1
        until = self._now + self._dispatcher.patience
        if self._arrived < len(arrival):
            until = min(until, float(arrival[self._arrived]))
        if not np.isfinite(until) or self._idle > _MOST_IDLE_ROUNDS:
            name = self._scenario.workload.names[int(self._active[0])]
            raise Stalled(
                f"the policy gives no time to job {name} and {len(self._active) - 1} more: use another policy"
            )
        self._now = until

    def _play(self, chosen: RoundCandidates) -> None:
        """One round: each job does whole steps within its length; it lasts until the last of them is done."""
        job, type_, mate = chosen.first, chosen.type, chosen.second
        paired = self._nobody if self._scenario.sharing is None else np.flatnonzero(mate != NO_JOB)
        if paired.size:
            seat = np.concatenate([np.arange(len(job)), paired])
            job, type_, mate = np.concatenate([job, mate[paired]]), type_[seat], np.concatenate([mate, job[paired]])
        lost = self._moved(job, type_, mate) * self._scenario.settings.checkpoint_seconds
        rate, left = self._rate(chosen, paired), self._left[job]
        if paired.size or self._scenario.settings.checkpoint_seconds:
            whole = np.maximum(np.floor(rate * (self._scenario.settings.round_seconds - lost)), 1.0)
        else:
            whole = self._whole[job, type_]
        steps = np.minimum(whole, left)
        seconds = lost + steps / rate
        left -= steps
        self._left[job] = left
        done = left <= 0
        finished = job[done]
        self._finish[finished] = self._now + seconds[done]
        of_seat = seconds
        if paired.size:
            of_seat = seconds[: len(chosen.first)].copy()
            np.maximum.at(of_seat, paired, seconds[len(chosen.first) :])
            self._held[job, type_] += (of_seat / np.where(chosen.second != NO_JOB, 2, 1))[seat]
        else:
            self._held[job, type_] += seconds
        self._close(chosen, of_seat, finished)

    def _rate(self, chosen: RoundCandidates, paired: IntArray) -> FloatArray:
        """Steps per second: of all first jobs, then of their partners."""
        rate = self._rates[chosen.first, chosen.type]
        if not paired.size:
            return rate
        kind = self._scenario.workload.kind
        first, second = kind[chosen.first[paired]], kind[chosen.second[paired]]
        both = self._together[first, second, chosen.type[paired]]
        rate[paired] = both[:, 0]
        return np.concatenate([rate, both[:, 1]])

    def _moved(self, job: IntArray, type_: IntArray, mate: IntArray) -> BoolArray:
        """Which jobs ran before, and not in the last round on these workers.

        A job that stays on its type, with the same partner if any, renews its lease and stays on its workers.
        """
        seat, last = type_ * (len(self._left) + 1) + (mate + 1), self._seat[job]
        seat += self._seats * len(self._rounds)
        moved = (last >= 0) & (last != seat - self._seats)
        self._moves[job] += moved
        self._seat[job] = seat
        return np.asarray(moved)

    def _close(self, chosen: RoundCandidates, seconds: FloatArray, finished: IntArray) -> None:
        start, self._now, self._idle = self._now, self._now + float(seconds.max()), 0
        self._rounds.append((start, self._now))
        self._busy.append(np.bincount(chosen.type, seconds * chosen.scale, self._held.shape[1]).astype(np.float64))
        if finished.size:
            measured = self._scenario.measured
            self._active = self._active[self._left[self._active] > 0]
            self.waiting -= int(((finished >= measured.start) & (finished < measured.stop)).sum())
            self.ended += int((finished < measured.stop).sum())
            self._changed = True
        self._dispatcher.book_round(seconds, finished)
