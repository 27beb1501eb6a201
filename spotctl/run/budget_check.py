"""What a run may spend: passes on what the budget allows, and reports what it does not, and when it will not last."""

from __future__ import annotations

from collections.abc import Sequence

from pricing_data.units import format_usd
from spotctl.run.execute import Journal
from spotctl.run.reconcile import Buy, Instruction, LeaseTimes, Renew, ReturnMachines, ScheduleReturn
from spotctl.runlog import budget
from spotctl.runlog import events as ev
from spotctl.runlog.budget import Tariff
from spotctl.runlog.outcomes import BUDGET

PREDICTIVE_SHARE = 0.1
"""From this finished share on, the cost so far predicts the total; earlier, start-up costs weigh too much."""


class BudgetCheck:
    """The budget of a run in nano-dollar-seconds; None for no limit."""

    def __init__(self, journal: Journal, tariff: Tariff, times: LeaseTimes, limit: int | None) -> None:
        self._journal = journal
        self._tariff = tariff
        self._times = times
        self._limit = limit

    def affordable(self, wanted: Sequence[Instruction]) -> Sequence[Instruction]:
        """The instructions that fit into the budget, in order.

        Requests the end of the run if its machines cannot be kept, or if it has none and can rent none.
        """
        if self._limit is None or not wanted:
            return wanted
        state, now = self._journal.state, self._journal.now()
        committed, fitting = budget.committed(state, now, self._tariff, self._times.teardown), list[Instruction]()
        for instruction in wanted:
            added = self._adds(instruction, now)
            if committed + added <= self._limit:
                committed += added
                fitting.append(instruction)
            else:
                self._refuse(instruction, committed, self._limit)
        return fitting

    def predict(self, share_done: float | None) -> None:
        """Reports, once, that the budget will not last to the end of the job, as soon as that shows."""
        state = self._journal.state
        if self._limit is None or ev.FINISH in state.over_budget:
            return
        planned, expected = state.planned, 0
        if share_done is not None and share_done >= PREDICTIVE_SHARE:
            expected = round(budget.spent(state, self._journal.now(), self._tariff) / share_done)
        elif planned is not None and not planned.assumed:
            expected = round(planned.usd * budget.NANO_SECONDS_PER_DOLLAR)
        if expected > self._limit:
            self._report(ev.FINISH, expected, self._limit)

    def _adds(self, instruction: Instruction, now: int) -> int:
        lease, teardown = self._times.lease, self._times.teardown
        match instruction:
            case Buy(rent):
                ceiling = rent.offer.on_demand if rent.bid is None else rent.bid
                return budget.bought(rent.offer.market, rent.machines, ceiling, lease + teardown, self._tariff)
            case Renew(machines, until):
                return budget.renewed(self._journal.state, machines, until, now, self._tariff, teardown)
            case _:
                return 0

    def _refuse(self, instruction: Instruction, committed: int, limit: int) -> None:
        state = self._journal.state
        if state.stopping is None and (isinstance(instruction, Renew) or not state.alive):
            message = f"the budget of ${format_usd(limit // 3600)} would be exceeded; raise it (budget, --max-cost)"
            self._journal.write(ev.StopRequested(BUDGET, message))
        self._report(described(instruction), committed, limit)

    def _report(self, action: str, committed: int, limit: int) -> None:
        """What is wanted again in every turn is reported once."""
        if action not in self._journal.state.over_budget:
            self._journal.write(ev.BudgetExceeded(action, committed, limit))


def described(instruction: Instruction) -> str:
    """An instruction in words."""
    match instruction:
        case Buy(rent, reliable):
            price = "on demand" if rent.bid is None else f"bid ${format_usd(rent.bid)}/h"
            return f"rent {rent.machines} x {rent.offer.market}, {price}{' (reliable)' if reliable else ''}"
        case Renew(machines):
            return f"renew the leases of {len(machines)} machines"
        case ReturnMachines(machines):
            return f"return {len(machines)} machines"
        case ScheduleReturn(allocation):
            return f"schedule the return of allocation {allocation}"
