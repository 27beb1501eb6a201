"""What a run may spend: lets through what fits into its budget, and says what does not, and when it will not last."""

from __future__ import annotations

from collections.abc import Sequence

from pricing_data.units import format_usd
from spotctl.run.execute import Journal
from spotctl.run.reconcile import Buy, GiveBack, Instruction, Pace, Plan, Renew
from spotctl.runlog import budget
from spotctl.runlog import events as ev
from spotctl.runlog.budget import Tariff
from spotctl.runlog.outcomes import BUDGET

TELLING = 0.1
"""From this share of the work on, what it has cost so far foretells the rest: before, starting weighs too much."""


class BudgetGuard:
    """The budget of a run (nano-dollar-seconds), if it has one."""

    def __init__(self, journal: Journal, tariff: Tariff, pace: Pace, limit: int | None) -> None:
        self._journal = journal
        self._tariff = tariff
        self._pace = pace
        self._limit = limit

    def affordable(self, wanted: Sequence[Instruction]) -> Sequence[Instruction]:
        """What fits into the budget, in order; if what runs cannot be kept, or nothing can run, the run is to end."""
        if self._limit is None or not wanted:
            return wanted
        state, now = self._journal.state, self._journal.now()
        committed, fitting = budget.committed(state, now, self._tariff, self._pace.teardown), list[Instruction]()
        for instruction in wanted:
            added = self._adds(instruction, now)
            if committed + added <= self._limit:
                committed += added
                fitting.append(instruction)
            else:
                self._refrain(instruction, committed, self._limit)
        return fitting

    def foretell(self, share: float | None) -> None:
        """Says as soon as it shows that the budget will not last to the end of the job, of which a share is done."""
        state = self._journal.state
        if self._limit is None or ev.FINISH in state.refrained:
            return
        planned, expected = state.planned, 0
        if share is not None and share >= TELLING:
            expected = round(budget.spent(state, self._journal.now(), self._tariff) / share)
        elif planned is not None and not planned.assumed:
            expected = round(planned.usd * budget.NANO_SECONDS_PER_DOLLAR)
        if expected > self._limit:
            self._tell(ev.FINISH, expected, self._limit)

    def _adds(self, instruction: Instruction, now: int) -> int:
        pace, teardown = self._pace, self._pace.teardown
        match instruction:
            case Buy(rent):
                ceiling = rent.offer.on_demand if rent.bid is None else rent.bid
                return budget.bought(rent.offer.market, rent.machines, ceiling, pace.lease + teardown, self._tariff)
            case Renew(machines, until):
                return budget.renewed(self._journal.state, machines, until, now, self._tariff, teardown)
            case _:
                return 0

    def _refrain(self, instruction: Instruction, committed: int, limit: int) -> None:
        state = self._journal.state
        if state.stopping is None and (isinstance(instruction, Renew) or not state.alive):
            why = f"the budget of ${format_usd(limit // 3600)} would be passed; raise it (budget, --max-cost) to go on"
            self._journal.write(ev.StopRequested(BUDGET, why))
        self._tell(words(instruction), committed, limit)

    def _tell(self, what: str, committed: int, limit: int) -> None:
        """What is wanted again in every turn is told once."""
        if what not in self._journal.state.refrained:
            self._journal.write(ev.Refrained(what, committed, limit))


def words(instruction: Instruction) -> str:
    """An instruction for a person."""
    match instruction:
        case Buy(rent, reliable):
            how = "on demand" if rent.bid is None else f"under a bid of ${format_usd(rent.bid)}"
            return f"rent {rent.machines} of {rent.offer.market} {how}{', to stay' if reliable else ''}"
        case Renew(machines):
            return f"renew the leases of {len(machines)} machines"
        case GiveBack(machines):
            return f"give back {len(machines)} machines"
        case Plan(allocation):
            return f"give back allocation {allocation} later"
