"""`LiveBids`: the bids of a run in markets where each host runs the highest bid, as snapshots of
hosts change.

Machines are held, raised or let go by the expected cost of the work that is left; one that is let
go is returned like one that a strategy moves, and the strategy rents again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite

import numpy as np

from bidbrain.outbid.bid import Advice, BidAdviser, BidStep, HeldBid
from bidbrain.outbid.record import Fate, HostRecord, OwnRun
from pricing_data.market import Market
from pricing_data.units import HOUR, bid_usd
from spotctl.clouds.errors import ProviderError
from spotctl.log import events as ev
from spotctl.log.state import EVICTED, Held, RunState
from spotctl.planning.values import JobPlan
from spotctl.run.environment import RunEnvironment
from spotctl.run.turn.budget_check import described
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import Instruction, RaiseBid, ScheduleReturn

_UNKNOWN_HOURS = 24.0
"""The work for which bids are compared if it is unknown how much is left; more would change
little."""


class LiveBids:
    """Looks at hosts every now and then while machines run. `work_left` says how much work is left,
    in microseconds times nu."""

    def __init__(
        self,
        plan: Callable[[], JobPlan],
        journal: Journal,
        environment: RunEnvironment,
        work_left: Callable[[JobPlan, RunState, int], float],
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._environment = environment
        self._work_left = work_left
        self._records: dict[Market, HostRecord] = {}
        self._look_at: dict[Market, int] = {}

    def of_machines(self) -> list[Instruction]:
        """The machines that are to be raised or let go; none until the hosts of a market are looked
        at again.
        """
        every = self._environment.provider.look_at_hosts_every
        now = self._journal.now()
        if every is None:
            return []

        # Machines that run at a bid on a known host, and are to stay.
        state = self._journal.state
        raised = {intent.id for intent in state.open.values() if isinstance(intent, ev.BidIntended)}
        held = list[Held]()
        for each in state.alive:
            is_known = each.bid is not None and each.host is not None and each.ran is not None
            stays = not each.returning and state.leaves_at(each) is None
            if is_known and stays and each.id not in raised:
                held.append(each)

        market_of = {each.id: state.allocations[each.allocation].market for each in held}
        markets = dict.fromkeys(market_of.values())
        due = [market for market in markets if now >= self._look_at.setdefault(market, now + every)]
        if not due:
            return []

        plan = self._plan()
        changes = list[Instruction]()
        for market in due:
            adviser = self._adviser(market)
            if adviser is None:
                continue

            # The hours that one machine would take for its part of the work that is left.
            hours_left = self._work_left(plan, state, now) / plan.decider.most_nu / HOUR
            if not isfinite(hours_left):
                hours_left = _UNKNOWN_HOURS
            unsaved_hours = max(state.work.done(now) - state.work.safe, 0) / HOUR
            for own in held:
                if market_of[own.id] == market:
                    assert own.host is not None
                    assert own.bid is not None
                    place = HeldBid(own.host, own.bid, 0, runs=True, unsaved_hours=unsaved_hours)
                    changes += self._step(own, adviser.advice(place, hours_left))

        return changes

    def _step(self, held: Held, advice: Advice) -> Iterator[Instruction]:
        """The instruction that an advice asks for. A machine goes alone only if its order brought
        no other.
        """
        if advice.step is BidStep.RAISE and advice.bid.bid is not None and held.bid is not None:
            yield RaiseBid(
                held.id, advice.bid.bid, f"{held.id} bids {bid_usd(held.bid)}/h; {advice}"
            )
        elif advice.step is BidStep.LEAVE and len(self._journal.state.of(held.allocation)) == 1:
            leaves = ScheduleReturn(
                held.allocation, self._journal.now() + self._environment.lease_times.notice
            )
            self._journal.write(
                ev.Decided((described(leaves),), f"{held.id} on host {held.host}: {advice}")
            )
            yield leaves

    def _adviser(self, market: Market) -> BidAdviser | None:
        """The adviser after a look at a market's hosts; None if nothing is known of them now."""
        plan = self._plan()
        state = self._journal.state
        provider = self._environment.provider
        if (terms := plan.decider.bid_terms.get(market)) is None:
            return None

        self._look_at[market] = self._journal.now() + (provider.look_at_hosts_every or 0)
        try:
            listed = provider.hosts(market, disk_gib=self._environment.image.disk_gib)
        except ProviderError as error:
            if state.reason != (reason := f"bids stay as they are: {error}"):
                self._journal.write(ev.Decided((), reason))
            return None

        if listed is None:
            return None

        least = int(listed.least_bid.min()) if listed.host.size else 0
        self._journal.write(ev.HostsListed(market, listed.host.size, least))
        if not listed.host.size:
            return None

        record = self._records.get(market, plan.fleet.market_history.hosts[market].record).joined(
            listed
        )
        self._records[market] = record
        offer = next(offer for offer in plan.decider.offers if offer.market == market)
        most = offer.on_demand
        if plan.decider.most_bid is not None:
            most = min(plan.decider.most_bid, offer.on_demand)

        return BidAdviser.of(record, own_runs(state, market, record), terms, most)


def own_runs(state: RunState, market: Market, record: HostRecord) -> list[OwnRun]:
    """The times in which machines of a run were at a bid, and how each ended: after it, its host is
    either listed at a higher bid, or rented on demand. A host whose machine is ours is in no
    snapshot."""
    runs = list[OwnRun]()
    for held in state.machines.values():
        if held.host is None or state.allocations[held.allocation].market != market:
            continue
        end = state.at if held.ended is None else held.ended
        fate = Fate.STAYS
        if held.end_reason == EVICTED:
            later = record.at[np.searchsorted(record.at, end, side="right") :]
            here = later.size > 0 and held.host in record.at_moment(int(later[0])).host
            fate = Fate.RISEN if here else Fate.GONE
        times = [at for at, _ in held.bids[1:]]
        for (since, bid), until in zip(held.bids, [*times, end], strict=True):
            last = until == end
            if until > since:
                runs.append(OwnRun(held.host, bid, since, until, fate if last else Fate.STAYS))

    return runs
