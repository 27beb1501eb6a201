"""Replay of one job under one strategy: what was rented when, what was evicted, and when the work
was done.

Only the engine knows the future. The engine asks the strategy at the start, at the times the
strategy chose, and after every eviction or return; in between, work adds up. From the resulting
run, work and cost can be recomputed.

Where the market's capacity is limited, a strategy is offered only what a request would get at that
moment. When more machines are held than there are, those granted last are evicted first, machine by
machine.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from math import ceil, inf, isfinite

from bidbrain.billing import End
from bidbrain.replay.market import MarketReplay, recorded_spells
from bidbrain.replay.run import ReplayedJob, Run, Tenure
from bidbrain.strategies.base import (
    AGILE,
    RECORD_WINDOW,
    UNTRIED,
    Decision,
    Holding,
    Look,
    Offer,
    Overheads,
    Recovery,
    Rent,
    Return,
    SavedState,
    Situation,
    SpotRecord,
    Strategy,
    gang_works,
)
from bidbrain.strategies.spells import SpotSpell
from pricing_data.market import Market


def run_job(
    job: ReplayedJob,
    strategy: Strategy,
    market: MarketReplay,
    overheads: Overheads,
    recovery: Recovery = AGILE,
) -> Run:
    """Replays a job from start to end."""
    state = _JobReplay(job, market, overheads, recovery, now=job.start, work_left=job.work)
    while True:
        decision = strategy.decide(state.situation())
        state.carry_out(decision)
        decided_at = state.next_decision(decision)
        until = min(state.next_loss(), decided_at, job.limit)
        if state.advance(until):
            return Run(job, state.now, state.close())
        if state.now >= job.limit or state.has_shown_enough():
            return Run(job, None, state.close())
        state.lose()


@dataclass(slots=True)
class _HeldAllocation:
    """An allocation with what only the engine knows. `running_since` is where its checkpoint
    intervals begin.

    `lost_at` is when it does no more work because it is to be evicted: from a warning, or from the
    eviction on.
    """

    holding: Holding
    evicted_at: float
    running_since: int
    lost_at: float

    @property
    def gone_at(self) -> float:
        leaves_at = self.holding.leaves_at
        if leaves_at is None:
            return self.lost_at
        return min(self.lost_at, leaves_at)


class _PricesNow(dict[Offer, int]):
    """The prices of a moment, looked up once each: a decision asks for the same prices many
    times."""

    __call__ = dict.__getitem__

    def __init__(self, market: MarketReplay, now: int) -> None:
        self._market = market
        self._now = now

    def __missing__(self, offer: Offer) -> int:
        price = self[offer] = self._market.price(offer.market, self._now)
        return price


@dataclass(slots=True)
class _JobReplay:
    job: ReplayedJob
    market: MarketReplay
    overheads: Overheads
    recovery: Recovery
    now: int
    work_left: float
    standstill_until: int = 0
    changes_at: float = -inf
    held: dict[int, _HeldAllocation] = field(default_factory=dict)
    warned: list[_HeldAllocation] = field(default_factory=list)
    tenures: list[Tenure] = field(default_factory=list)
    bought: int = 0
    spent: float = 0.0
    evicted: list[int] = field(default_factory=list)
    fallbacks: list[int] = field(default_factory=list)
    lost: list[tuple[int, float]] = field(default_factory=list)

    def situation(self) -> Situation:
        budget = self.job.budget
        usd_left = inf
        usd_reserved = 0.0
        if budget is not None:
            held_now = (held.holding for held in self._there())
            usd_left, usd_reserved = budget.left(self.job.start, self.now, self.spent, held_now)

        offers = self._open_offers()
        left = self.work_left
        if self.job.timed:
            # What evictions cost is not done later.
            full_speed = self.job.most_nu * self.recovery.speed
            time_left = max(self.job.limit - self.now, 0)
            left = min(left, full_speed * time_left)

        leaving = Counter[tuple[Market, bool]]()
        for held in self.warned:
            rent = held.holding.rent
            leaving[rent.offer.market, True] += rent.machines

        holdings = tuple(held.holding for held in self.held.values())
        record = UNTRIED if self._resumes and not self.evicted else self._record()
        return Situation(
            now=self.now,
            offers=offers,
            price=_PricesNow(self.market, self.now),
            holdings=holdings,
            baseline=self.job.baseline,
            most_nu=self.job.most_nu,
            work_left=left,
            usd_left=usd_left,
            usd_reserved=usd_reserved,
            record=record,
            unsaved=self._unsaved(),
            spell=self._spell,
            deadline=self.job.deadline,
            looks=partial(self._looks, offers),
            saved=self._saved(),
            leaving=leaving,
        )

    def _there(self) -> Iterator[_HeldAllocation]:
        """All that is billed: also what is warned."""
        return chain(self.held.values(), self.warned)

    def _record(self) -> SpotRecord:
        """The worth of spot machines within the last hours; a run reads the same record from its
        log.
        """
        since = self.now - RECORD_WINDOW
        held = (held.holding for held in self._there() if held.holding.rent.spot)
        paid = sum(self.now - max(holding.start, since) for holding in held)
        for tenure in reversed(self.tenures):
            if tenure.end <= since:
                break
            paid += tenure.end - max(tenure.start, since) if tenure.rent.spot else 0

        lost_spans = (span for at, span in self.lost if at > since)
        lost = sum(lost_spans)
        lasting = max(paid - round(lost), 0)
        return SpotRecord(tuple(self.evicted), tuple(self.fallbacks), paid, lasting, self._resumes)

    @property
    def _resumes(self) -> bool:
        """Whether a move would lose no work: a gang's checkpoint counts once it is written."""
        done = self.job.work - self.work_left
        if done <= 0 or not (self.job.nodes and isfinite(self.job.work)):
            return self.recovery.resumes or done <= 0
        return self.recovery.resumes and (self.recovery.interval is None or done > self._unsaved())

    def _ready(self) -> list[Holding]:
        return [held.holding for held in self.held.values() if held.holding.ready <= self.now]

    def _begin_attempt(self) -> None:
        """A gang runs as a whole: its checkpoints are counted from when the last of its nodes was
        there.
        """
        for held in self.held.values():
            held.running_since = max(held.running_since, self.now)

    def _unsaved(self) -> float:
        """The work that an eviction of all spot machines would undo."""
        if self.recovery.resumes and self.recovery.interval is None:
            return 0.0
        spot = [held for held in self.held.values() if held.holding.rent.bid is not None]
        if not self.recovery.resumes:
            if spot:
                return self.job.work - self.work_left
            return 0.0
        if self.job.nodes:
            return max((self._undone(held) for held in spot), default=0.0)
        return sum(self._undone(held) for held in spot)

    def _undone(self, held: _HeldAllocation) -> float:
        """The work that an eviction from an allocation undoes: its own since a checkpoint, or that
        of its gang.
        """
        ready = self._ready()
        if self.job.nodes and not gang_works(ready, self.job.nodes):
            return 0.0
        rate = self.job.rate(ready) if self.job.nodes else held.holding.nu
        lost = self.recovery.lost_time(held.holding.rent, held.running_since, self.now)
        return lost * rate * self.recovery.speed

    def _looks(self, offers: tuple[Offer, ...]) -> tuple[Look, ...]:
        """The looks that machines gave which are gone, and the markets that are not among the
        offers now.
        """
        looks = [
            Look(at, tenure.rent.offer.market, up)
            for tenure in self.tenures
            if tenure.rent.spot
            for at, up in ((tenure.start, True), (tenure.end, tenure.ended is not End.EVICTED))
        ]

        closed = set(self.job.offers).difference(offers)
        looks.sort(key=lambda look: look.at)
        closed_looks = (
            Look(self.now, offer.market, up=False) for offer in self.job.offers if offer in closed
        )
        return (*looks, *closed_looks)

    def _saved(self) -> SavedState | None:
        """A gang's checkpoint is where it last ran; nothing is saved before it has worked."""
        if self.job.saved_gb is None or self.work_left >= self.job.work:
            return None

        ran = [tenure for tenure in self.tenures if tenure.ready < tenure.end]
        held = [held.holding for held in self.held.values() if held.holding.ready < self.now]
        if not (ran or held):
            return None

        last = (
            max(held, key=lambda holding: holding.ready)
            if held
            else max(ran, key=lambda tenure: tenure.end)
        )

        return SavedState(last.rent.offer.market, self.job.saved_gb)

    def _spell(self) -> SpotSpell:
        if not self.job.offers:
            return SpotSpell.begun(up=False)
        watched = self.job.watched or recorded_spells(self.market, self.job.offers)
        return watched.at(self.now)

    def carry_out(self, decision: Decision) -> None:
        """Buys and returns. What was to be replaced stays unless all of its replacement was
        granted.
        """
        if not decision.actions:
            return

        before = self.bought
        wanted = sum(rent.machines for rent in decision.rents)
        for action in sorted(
            decision.actions, key=lambda action: isinstance(action, Return) and action.replaced
        ):
            if isinstance(action, Rent):
                self._buy(action)
                continue

            bought = (
                held.holding.rent.machines for number, held in self.held.items() if number >= before
            )
            if action.replaced and sum(bought) < wanted:
                continue

            if action.at is None or action.at <= self.now:
                self._give_back(self.held[action.allocation])
            else:
                held = self.held[action.allocation]
                held.holding = replace(held.holding, leaves_at=action.at)

    def next_loss(self) -> float:
        """When the next machines end: by eviction, or by a planned return."""
        soonest = min((held.evicted_at for held in self.warned), default=inf)
        for held in self.held.values():
            soonest = min(soonest, held.gone_at)
        if self.market.limited:
            for market, machines in self._spot_machines().items():
                short = self.market.short_from(market, machines, self.now)
                soonest = soonest if short is None else min(soonest, short)
        return soonest

    def next_decision(self, decision: Decision) -> float:
        """The moment of the next decision, if no machine ends before; at a tick of the record that
        a job watches.
        """
        wake_at = decision.wake_at
        watched = self.job.watched
        if watched is None:
            if wake_at is None:
                return inf
            return max(wake_at, self.now + 1)

        if self.changes_at <= self.now:
            self.changes_at = self.market.next_change(self.now)
        if wake_at is None:
            return self.changes_at

        ticks_to_wake = (wake_at - watched.begin) // watched.gap
        next_tick = (self.now - watched.begin) // watched.gap + 1
        ticks = max(ticks_to_wake, next_tick)
        return min(watched.begin + ticks * watched.gap, self.changes_at)

    def advance(self, until: float) -> bool:
        """Works until a moment or until the work is done; True in the latter case, with `now` at
        that moment.
        """
        while self.now < until:
            working = self.now >= self.standstill_until
            ready = self._ready()
            rate = 0.0
            if working:
                rate = self.job.rate(ready) * self.recovery.speed
            changes = [
                held.holding.ready for held in self.held.values() if held.holding.ready > self.now
            ]
            if self.standstill_until > self.now:
                changes.append(self.standstill_until)

            step_end = int(min([until, *changes]))
            needed = self.work_left / rate if rate else inf
            if self.now + needed <= step_end:
                self.now = self.now + ceil(needed)
                self.work_left = 0.0
                return True

            self.work_left -= rate * (step_end - self.now)
            self.now = step_end
            if not changes or not any(
                held.holding.ready == self.now for held in self.held.values()
            ):
                continue

            # Machines have started up: those that worked already pause, and a gang that works with
            # them begins an attempt.
            works = bool(ready) and gang_works(ready, self.job.nodes)
            self._stand_still(self.overheads.resize if works else 0)
            grows = self.job.most_nodes > self.job.nodes
            if (
                self.job.nodes
                and (grows or not works)
                and gang_works(self._ready(), self.job.nodes)
            ):
                self._begin_attempt()

        return False

    def has_shown_enough(self) -> bool:
        if self.job.enough is None:
            return False
        held = (held.holding for held in self._there())
        evicted = (
            Tenure(holding.rent, holding.start, holding.ready, self.now, End.EVICTED)
            for holding in held
        )
        return self.job.enough(self.now, self.tenures, evicted)

    def lose(self) -> None:
        """Ends what is due now; evictions come before returns, because they may be refunded."""
        if self.market.limited:
            for market, machines in self._spot_machines().items():
                excess = machines - self.market.capacity(market, self.now)
                # Those granted last first.
                for held in sorted(self.held.values(), key=lambda held: -held.holding.allocation):
                    rent = held.holding.rent
                    if excess <= 0:
                        break
                    if rent.bid is not None and rent.offer.market == market:
                        taken = min(int(excess), rent.machines)
                        self._lose(held, taken, self.now)
                        excess -= taken

        due = [held for held in self.held.values() if held.gone_at <= self.now]
        for held in due:
            if held.lost_at <= self.now:
                self._lose(held, held.holding.rent.machines, held.evicted_at)
            else:
                self._give_back(held)

        for held in [held for held in self.warned if held.evicted_at <= self.now]:
            self.warned.remove(held)
            self._evict(held.holding)

    def close(self) -> tuple[Tenure, ...]:
        for held in self._there():
            self._end(held.holding, End.HANDED_ON)
        return tuple(self.tenures)

    def _buy(self, rent: Rent) -> None:
        """Buys as many machines as the market grants; on-demand capacity is unlimited."""
        market = rent.offer.market
        if rent.bid is not None:
            held_there = self._spot_machines().get(market, 0)
            granted = self.market.granted(market, rent.machines, held_there, self.now)
            rent = rent if granted >= rent.machines else replace(rent, machines=granted)

        if not rent.machines:
            return

        evicted_at = None
        if rent.bid is not None:
            evicted_at = self.market.evicted_at(market, rent.bid, self.now)
        ready = self.now + self.overheads.startup
        holding = Holding(self.bought, rent, self.now, ready)
        if rent.bid is None and self.evicted and not market.reservation:
            self.fallbacks.append(self.now)

        lost_at = evicted_at
        warnings = self.job.warnings
        if evicted_at is not None and warnings is not None:
            warned_at = warnings.warned_at(self.bought, self.now, evicted_at)
            lost_at = evicted_at if warned_at is None else max(warned_at, self.now + 1)

        evicted = inf if evicted_at is None else evicted_at
        lost = inf if lost_at is None else lost_at
        self.held[self.bought] = _HeldAllocation(
            holding, evicted_at=evicted, running_since=holding.ready, lost_at=lost
        )

        self.bought += 1

    def _open_offers(self) -> tuple[Offer, ...]:
        going = {held.holding.rent.offer.market for held in self.warned}
        among = (
            tuple(offer for offer in self.job.offers if offer.market not in going)
            if going
            else self.job.offers
        )

        if not self.market.limited:
            return among

        held = self._spot_machines()
        offers = list[Offer]()
        for offer in among:
            free = self.market.capacity(offer.market, self.now)
            if (free - held.get(offer.market, 0) if held else free) >= 1:
                offers.append(offer)

        return tuple(offers)

    def _spot_machines(self) -> dict[Market, int]:
        machines: dict[Market, int] = {}
        for held in self.held.values():
            rent = held.holding.rent
            if rent.bid is not None:
                before = machines.get(rent.offer.market, 0)
                machines[rent.offer.market] = before + rent.machines
        return machines

    def _lose(self, held: _HeldAllocation, machines: int, evicted_at: float) -> None:
        """Goes on without machines of an allocation that are evicted now, or warned that they will
        be; its remaining machines go back to the last checkpoint."""
        holding = held.holding
        span = self.recovery.lost_time(holding.rent, held.running_since, self.now)
        self.lost.append((self.now, span))

        if self.recovery.resumes:
            self.work_left += self._undone(held)
        else:
            self.work_left = self.job.work

        left = holding.rent.machines - machines
        gone = replace(holding, rent=replace(holding.rent, machines=machines))
        if evicted_at > self.now:
            self.warned.append(replace(held, holding=gone))
        else:
            self._evict(gone)

        if left:
            held.holding = replace(holding, rent=replace(holding.rent, machines=left))
            held.running_since = max(held.running_since, self.now)
        else:
            del self.held[holding.allocation]

        if self.job.nodes:
            self._begin_attempt()

        self._stand_still(self.overheads.eviction)

    def _evict(self, holding: Holding) -> None:
        self.evicted.append(self.now)
        self._end(holding, End.EVICTED)

    def _give_back(self, held: _HeldAllocation) -> None:
        del self.held[held.holding.allocation]
        self._end(held.holding, End.LEFT)
        self._stand_still(self.overheads.resize)

    def _stand_still(self, span: int) -> None:
        self.standstill_until = max(self.standstill_until, self.now + span)

    def _end(self, holding: Holding, ended: End) -> None:
        tenure = Tenure(holding.rent, holding.start, holding.ready, self.now, ended)
        self.tenures.append(tenure)
        if self.job.budget is not None:
            self.spent += self.job.budget.paid(tenure.rent, tenure.life)
