"""Keeps a run within its budget: passes on the instructions that fit, and reports the others and a
budget that will not last. What the rest of a run costs is found by playing its decision object over
the past from where the run is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from threading import Thread
from typing import Any

from bidbrain.billing import End, usd
from bidbrain.errors import BidBrainError
from bidbrain.forecast.forecast import forecast
from bidbrain.forecast.values import KnownPast
from bidbrain.strategies.base import Rent, terms_of
from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANO_SECONDS_PER_DOLLAR, bid_usd, counted, usd_text
from spotctl.clouds.boot import first_lease
from spotctl.clouds.link import LeaseTimes
from spotctl.home.callbacks import unheard
from spotctl.home.errors import SpotctlError
from spotctl.log import budget, events as ev
from spotctl.log.budget import Tariff
from spotctl.log.outcomes import BUDGET
from spotctl.planning.forecast import deciders, forecast_job
from spotctl.planning.values import JobPlan
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import (
    Buy,
    Instruction,
    RaiseBid,
    Renew,
    ReturnMachines,
    ScheduleReturn,
)

PREDICTIVE_SHARE = 0.1
"""From this finished share on, a run's own progress predicts its cost; before, the forecast of its
plan does, unless it was far too low."""
PREDICTIVE_SPEND = 0.25
"""Once this part of the budget is spent, any progress predicts the cost better than the plan."""

_PLAYS = 10
"""The rest of a run is played at most once for each such part of its budget that is used."""

_DECISIONS = 600
"""Decisions to play: fewer than for a plan, because a run is played several times and only the
median matters."""


@dataclass(frozen=True, slots=True)
class PlayedRest:
    """The rest of a run at a moment: `work` in microseconds times nu, and the `share` of the job
    that is left, also of its time if it ends by time. `histories` reach up to `now`."""

    plan: JobPlan
    now: int
    work: float
    share: float
    usd_left: float
    histories: Mapping[Market, PriceSeries]

    def with_enough_money(self) -> PlayedRest:
        """This rest with a higher budget: raised by the share of the work that is left."""
        budget = self.plan.demand.budget_usd
        return replace(self, usd_left=inf if budget is None else budget * self.share)

    def usd(self) -> float:
        """The expected dollars, as likely too high as too low.

        Machines that run already are not started again. Machines at the end are billed by the
        second, as in the cost so far: a play from here on does not know which hours the machines
        have begun.
        """
        plan = self.plan
        job = forecast_job(self.plan)
        longest = job.longest
        if job.timed:
            longest = job.overheads.startup + round(
                (job.longest - job.overheads.startup) * self.share
            )

        job = replace(
            job,
            decider=deciders(plan, self.now),
            work=self.work,
            longest=longest,
            times=replace(job.times, order=0),
            at_end=End.HANDED_ON,
            budget_usd=None if job.budget_usd is None else self.usd_left,
            most_decisions=_DECISIONS,
        )

        played = forecast(
            job, KnownPast(self.now, self.histories, self.plan.fleet.market_history.hazards)
        )
        return max(
            played.usd.median - job.overheads.startup / HOUR * played.usd_per_hour.median, 0.0
        )


class BudgetForecast:
    """The expected cost of a whole run in nano-dollar-seconds: the cost so far, and the cost of its
    `rest`.

    Playing takes seconds on a busy computer, so another thread does it, and leases are renewed
    meanwhile. `note` is told why a rest could not be played; work is then assumed to cost as much
    as so far.
    """

    def __init__(
        self,
        rest: Callable[[float], PlayedRest | None],
        limit: int,
        note: Callable[[str], None] = unheard,
    ) -> None:
        self._rest = rest
        self.limit = limit
        self._note = note
        self._asked = -1
        self._expected = 0
        self._playing: Future[int] | None = None

    def whole(self, used: int, share_done: float) -> int:
        """The latest forecast; 0 before the first one."""
        if self._playing is not None and self._playing.done():
            error = self._playing.exception()
            self._expected = round(used / share_done)
            if error is None:
                self._expected = self._playing.result()
            else:
                self._note(
                    f"the rest of the run could not be played: {type(error).__name__}: {error}"
                )
            self._playing = None

        part = used * _PLAYS // self.limit
        if self._playing is None and part > self._asked:
            self._asked = part
            rest = self._rest(share_done)
            evenly = round(used / share_done)
            if rest is None:
                self._expected = evenly
            else:
                self._playing = Future()
                Thread(target=_play, args=(self._playing, rest, used, evenly), daemon=True).start()

        return self._expected

    def rest_usd(self, used: int, share_done: float) -> float:
        """The dollars that would finish a run which ends at its budget: the rest is played now,
        with enough money.
        """
        evenly = used / share_done
        rest = None
        with suppress(SpotctlError, PricingDataError):
            rest = self._rest(share_done)
        whole = evenly if rest is None else _whole(rest.with_enough_money(), used, evenly)
        return (whole - used) / NANO_SECONDS_PER_DOLLAR


def _play(answer: Future[int], rest: PlayedRest, used: int, evenly: int) -> None:
    try:
        answer.set_result(round(_whole(rest, used, evenly)))
    except Exception as error:  # noqa: BLE001 - a thread that ends with an error would end silently
        answer.set_exception(error)


def _whole(rest: PlayedRest, used: int, evenly: float) -> float:
    """The cost of the whole run. If nothing can be played, for example because the history is too
    short, work is assumed to cost as much as so far."""
    with suppress(BidBrainError):
        return used + rest.usd() * NANO_SECONDS_PER_DOLLAR
    return evenly


class BudgetCheck:
    """The budget of a run in nano-dollar-seconds; None for no limit. `limit` is the one of its job:
    the user may set another one while the run goes on.

    An instruction that the budget does not cover is dropped. If the budget does not cover another
    lease of all machines, as many are kept as it covers, but not fewer than the job needs
    (`least`): otherwise the leases run out, while the strategy may find something cheaper, and the
    run is stopped in time to save its work. `holdings` is the cost of the disk and the address of
    each machine of a purchase, in nano-dollars per hour.
    """

    def __init__(
        self,
        journal: Journal,
        tariff: Tariff,
        times: LeaseTimes,
        limit: int | None,
        least: int = 1,
        holdings: Callable[[Rent], int] = lambda _: 0,
        rest: Callable[[float], PlayedRest | None] = unheard,
    ) -> None:
        self._holdings = holdings
        self._rest = rest
        self._journal = journal
        self._tariff = tariff
        self._times = times
        self._stated = limit
        self._least = least
        self._forecast = self._new_forecast()

    @property
    def _limit(self) -> int | None:
        return self._journal.state.limit(self._stated)

    def _new_forecast(self) -> BudgetForecast:
        journal = self._journal
        return BudgetForecast(
            self._rest, self._limit or 1, lambda why: journal.write(ev.Decided((), why))
        )

    def affordable(self, wanted: Sequence[Instruction]) -> Sequence[Instruction]:
        """The instructions that fit into the budget, in order; none that costs money after the run
        was stopped.
        """
        state = self._journal.state
        self._journal.decided_on = state.budget_set
        limit = self._limit
        if limit is None:
            return wanted

        now = self._journal.now()
        fitting = list[Instruction]()
        # Refuse purchases for lack of money only once everything else is counted.
        spent = budget.committed(state, now, self._tariff, self._times.teardown) if wanted else 0
        for instruction in wanted:
            # With what was written for the instructions before this one.
            state = self._journal.state
            if state.stopping is not None and isinstance(instruction, Buy):
                continue
            added = self._adds(instruction, now)
            if spent + added <= limit:
                spent += added
                fitting.append(instruction)
            elif isinstance(instruction, Renew):
                kept = self._renewable(instruction, limit - spent, now)
                spent += 0 if kept is None else self._adds(kept, now)
                fitting += [] if kept is None else [kept]
                # The others are returned at the ends of their leases.
                groups = dict[tuple[int, int], list[str]]()
                renewed = () if kept is None else kept.machines
                for held in (state.machines[name] for name in instruction.machines):
                    if held.id not in renewed:
                        at = max(held.lease_until - self._times.notice, now)
                        groups.setdefault((held.allocation, at), []).append(held.id)
                for (number, at), names in groups.items():
                    fitting.append(ScheduleReturn(number, at, tuple(names)))
                self._report(described(instruction), spent, limit)
            else:
                if state.stopping is None and not state.alive:
                    self._journal.write_within(ev.StopRequested(BUDGET, exhausted(limit)))
                self._report(described(instruction), spent, limit)

        return fitting

    def stop_in_time(self) -> None:
        """Requests the end of the run when too few machines stay, before the leases of the others
        run out.
        """
        state = self._journal.state
        self._journal.decided_on = state.budget_set
        limit = self._limit
        ending = [held for held in state.alive if held.leaves_at is not None and not held.returning]
        if limit is None or state.stopping is not None or not ending:
            return

        staying = [held for held in state.alive if not held.returning and held.leaves_at is None]
        enough = (
            sum(not state.allocations[held.allocation].reliable for held in staying) >= self._least
        )
        reliable_stay = not any(state.allocations[held.allocation].reliable for held in ending)
        soon = min(held.lease_until for held in ending) - self._times.renew_before // 2
        if not (enough and reliable_stay) and self._journal.now() >= soon:
            self._journal.write_within(ev.StopRequested(BUDGET, exhausted(limit)))

    def to_finish(self, left: float) -> float | None:
        """Dollars that the rest of the work is expected to cost; None if unknown."""
        state = self._journal.state
        used = budget.used(state, self._journal.now(), self._tariff)
        if self._tells(1.0 - left, used):
            return self._forecast.rest_usd(used, 1.0 - left)
        if state.planned is None or state.planned.assumed:
            return None
        return state.planned.usd * left

    def _renewable(self, wanted: Renew, left: int, now: int) -> Renew | None:
        """As many leases as the budget covers: reliable machines first, then the cheapest per unit
        of work.

        None if too few machines would be left to work.
        """
        state = self._journal.state
        kept = list[str]()
        ranked = list[tuple[bool, float, str]]()
        for name in wanted.machines:
            held = state.machines[name]
            allocation = state.allocations[held.allocation]
            price = allocation.highest_price(held.bid) / allocation.nu if allocation.nu else inf
            ranked.append((not allocation.reliable, price, name))

        for _, _, name in sorted(ranked):
            if self._adds(Renew((*kept, name), wanted.until), now) <= left:
                kept.append(name)

        staying = {held.id for held in state.alive if not held.returning and held.leaves_at is None}
        after = [state.machines[name] for name in (staying - set(wanted.machines)) | set(kept)]
        dropped = [state.machines[name] for name in wanted.machines if name not in kept]
        works = (
            sum(not state.allocations[held.allocation].reliable for held in after) >= self._least
        )
        if not works or any(state.allocations[held.allocation].reliable for held in dropped):
            return None

        return Renew(tuple(name for name in wanted.machines if name in kept), wanted.until)

    def predict(self, share_done: float | None) -> None:
        """Reports, once and as soon as it shows, that the budget will not last to the end of the
        job.
        """
        state = self._journal.state
        limit = self._limit
        if limit is None or ev.FINISH in state.over_budget:
            return

        if self._forecast.limit != limit:
            self._forecast = self._new_forecast()
        planned = state.planned
        expected = 0
        used = budget.used(state, self._journal.now(), self._tariff)

        if share_done is not None and self._tells(share_done, used):
            expected = self._forecast.whole(used, share_done)
        elif planned is not None and not planned.assumed:
            expected = round(planned.usd * NANO_SECONDS_PER_DOLLAR)

        if expected > limit:
            self._report(ev.FINISH, expected, limit)

    def _tells(self, share_done: float, used: int) -> bool:
        """Whether the progress of a run predicts its cost better than its plan."""
        return share_done >= PREDICTIVE_SHARE or (
            share_done > 0 and used >= PREDICTIVE_SPEND * (self._limit or inf)
        )

    def _adds(self, instruction: Instruction, now: int) -> int:
        match instruction:
            case Buy(rent):
                market = rent.offer.market
                ceiling = rent.highest_price
                held = self._holdings(rent)
                lease = first_lease(market, self._times) + self._times.teardown
                return budget.bought(market, rent.machines, ceiling, lease, self._tariff, held)
            case Renew(machines, until):
                return budget.renewed(
                    self._journal.state, machines, until, now, self._tariff, self._times.teardown
                )
            case RaiseBid(machine, bid):
                return budget.raised(
                    self._journal.state, machine, bid, now, self._tariff, self._times.teardown
                )
            case _:
                return 0

    def _report(self, action: str, committed: int, limit: int) -> None:
        """Reports that the budget does not cover an action: once, although the action is wanted
        again in every turn.
        """
        if action not in self._journal.state.over_budget:
            self._journal.write(ev.BudgetExceeded(action, committed, limit))


def described(instruction: Instruction) -> str:
    """An instruction in words."""
    match instruction:
        case Buy(rent, reliable):
            return (
                f"rent {rent.machines} x {rent.offer.market}, "
                f"{terms_of(rent)}{' (reliable)' if reliable else ''}"
            )
        case Renew(machines):
            return (
                f"renew the lease{'' if len(machines) == 1 else 's'} of "
                f"{counted(len(machines), 'machine')}"
            )
        case ReturnMachines(machines):
            return f"return {counted(len(machines), 'machine')}"
        case RaiseBid(machine, bid):
            return f"raise the bid of {machine} to {bid_usd(bid)}/h"
        case ScheduleReturn(allocation):
            return f"schedule the return of allocation {allocation}"


def exhausted(limit: int) -> str:
    """Why a run ends at its budget."""
    return f"the budget of {usd_text(usd(limit))} would be exceeded; raise it (budget, --max-cost)"


def unfinished_text(unfinished: Mapping[str, Any]) -> str:
    """How much work a run that ends at its budget leaves, what the rest would cost, and where the
    checkpoint is.
    """
    words = ""
    if "work_left" in unfinished:
        more = unfinished.get("to_finish_usd")
        cost = "" if more is None else f", about {usd_text(more)} more"
        words = f"; {unfinished['work_left']:.0%} of the work is left{cost}"
    kept = unfinished.get("checkpoint")
    return f"{words}; the checkpoint is in {kept}" if kept else words
