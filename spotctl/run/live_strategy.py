"""A run's strategy: its plan's constraints, told how much work and money is left, and how the job has fared on spot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf, isfinite
from typing import TYPE_CHECKING

from pricing_data.units import HOUR, SECOND
from spotctl.files.job.spec import JobSpec, Training
from spotctl.planning.on_demand_fallback import WINDOW, Record
from spotctl.run.reconcile import Terms
from spotctl.run.service import Brief, Limits
from spotctl.runlog import budget
from spotctl.runlog.budget import NANO_SECONDS_PER_DOLLAR
from spotctl.runlog.events import Planned
from spotctl.runlog.state import EVICTED, Allocation, RunState

if TYPE_CHECKING:
    from bidbrain.strategies.base import Decision, Situation, Strategy
    from spotctl.machines.base import CloudProvider
    from spotctl.planning.values import JobPlan
    from spotctl.run.execute import Journal
    from spotctl.run.reconcile import Pace


class LiveStrategy:
    """Decides for a run; `look` shows the run as it is, `usd_left` what of its budget is not committed."""

    def __init__(self, found: JobPlan, look: Callable[[], RunState], usd_left: Callable[[], float]) -> None:
        self._found, self._look, self._usd_left = found, look, usd_left

    @property
    def name(self) -> str:
        """That of the strategy."""
        return self._found.constraints.name

    def decide(self, situation: Situation) -> Decision:
        """See `Constraints.decide`."""
        state, now = self._look(), situation.now
        told = replace(situation, work_left=work_left(self._found, state, now))
        # Who holds nothing and cannot pay for anything is at the end, which the budget's guard declares.
        usd_left = self._usd_left() if situation.holdings else inf
        record = replace(record_of(state, now), resumes=self._found.checkpoints is not None)
        return self._found.constraints.decide(told, usd_left, record)


def brief_of(
    spec: JobSpec, journal: Journal, provider: CloudProvider, plan: Callable[[], JobPlan], pace: Pace
) -> Brief:
    """Who decides for a run, and within which limits; `plan` is made when there is something to decide."""
    limit, tariff = (
        None if spec.budget is None else spec.budget * 3600,
        budget.tariff_of(provider, journal.state.started),
    )

    def usd_left() -> float:
        if limit is None:
            return inf
        return (limit - budget.committed(journal.state, journal.now(), tariff, pace.teardown)) / NANO_SECONDS_PER_DOLLAR

    def choose() -> tuple[Strategy, Terms]:
        found = plan()
        if journal.state.planned is None:
            journal.write(expectation(found))
        # What is bought is paid for so long at least.
        constraints = replace(found.constraints, lease=pace.lease + pace.teardown)
        return LiveStrategy(replace(found, constraints=constraints), lambda: journal.state, usd_left), terms_of(found)

    limits = Limits(limit, max(HOUR, round(30 * SECOND * provider.speed)))
    return Brief(choose, tariff, pace, limits)


def terms_of(found: JobPlan) -> Terms:
    """What the strategy of a plan is given."""
    constraints = found.constraints
    return Terms(constraints.offers, constraints.baseline, constraints.most_nu, found.work_left, constraints.reliable)


def expectation(found: JobPlan) -> Planned:
    """What a plan expects, for the log: what comes is laid beside it."""
    whole, (low, high) = found.whole, found.usd_range
    return Planned(whole.usd, low, high, whole.hours, found.on_demand.usd, found.work.assumed)


def work_left(found: JobPlan, state: RunState, now: int) -> float:
    """In microseconds times nu; endless where nobody knows.

    A training has done its clocks. A command has done what its checkpoints hold, and what it does since.
    """
    total, program = found.work_left, found.job.spec.program
    if not isfinite(total):
        return total
    if not isinstance(program, Training):
        return max(total - state.work.done(now) * found.constraints.most_nu, 0.0)
    if program.stop.clocks is None or state.progress is None:
        return total
    return total * max(1 - state.progress.clock / program.stop.clocks, 0.0)


def record_of(state: RunState, now: int) -> Record:
    """How a command has fared so far, from the log."""
    transient = [one for one in state.allocations.values() if not one.reliable]
    spot = [one for one in transient if one.bid is not None]
    taken = [at for one in spot if (at := _taken_at(state, one)) is not None]
    # Before anything was taken, on demand was the strategy's own choice.
    refuges = [one.started for one in transient if one.bid is None and taken and one.started > min(taken)]
    since = now - WINDOW
    return Record(
        tuple(sorted(taken)),
        tuple(sorted(refuges)),
        sum(_overlap(one.started, _ended(state, one, now), since) for one in spot),
        sum(min(spell.kept, _overlap(spell.begin, spell.end, since)) for spell in state.work.spells),
    )


def _taken_at(state: RunState, allocation: Allocation) -> int | None:
    """When the market took the first of an allocation's machines."""
    return min(_ends(state, allocation, (EVICTED,)), default=None)


def _ended(state: RunState, allocation: Allocation, now: int) -> int:
    held = [one for one in state.machines.values() if one.allocation == allocation.number]
    return max((now if one.ended is None else one.ended for one in held), default=allocation.started)


def _ends(state: RunState, allocation: Allocation, reasons: Iterable[str]) -> list[int]:
    return [
        held.ended
        for held in state.machines.values()
        if held.allocation == allocation.number and held.ended is not None and held.end_reason in reasons
    ]


def _overlap(begin: int, end: int, since: int) -> int:
    return max(end - max(begin, since), 0)
