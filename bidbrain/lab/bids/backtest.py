"""Jobs of one machine in a generated market under several ways of bidding, and what they cost under
two payment rules.

All ways see the same rivals (by the seed) and the same snapshots. BidBrain knows the snapshots
since before the job began, and nothing of the market's assumptions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor

from bidbrain.lab.bids.market import Assumptions, GeneratedMarket, OwnMachine
from bidbrain.outbid.bid import BidAdviser, BidStep, BidTerms, HeldBid
from bidbrain.outbid.record import Fate, HostRecord, OwnRun
from pricing_data.units import HOUR

LOOK_HOURS = 1 / 3
"""How often snapshots are taken, and ways of bidding may change their mind."""
PAST_HOURS = 48.0
"""How long snapshots were taken before a job begins."""
_LONGEST = 10.0
"""A job is given up after this many times its work."""
_DONE = 1e-9


@dataclass(frozen=True, slots=True)
class View:
    """Snapshots, the last one of this moment; the job's runs, the hours of work left, and its
    machine, if that has a bid."""

    record: HostRecord
    runs: Sequence[OwnRun]
    left: float
    held: HeldBid | None


@dataclass(frozen=True, slots=True)
class Plan:
    """The host and the bid (None: on demand) with which the job goes on."""

    host: int
    bid: int | None


@dataclass(frozen=True, slots=True)
class Margin:
    """Bids a margin above the lowest minimum bid, and goes elsewhere when it is paused."""

    margin: float

    def plan(self, view: View) -> Plan | None:
        if view.held is not None and view.held.runs:
            return Plan(view.held.host, view.held.bid)

        newest = view.record.newest()
        if not newest.host.size:
            return None

        cheapest = int(newest.least_bid.argmin())
        host = int(newest.host[cheapest])
        least = int(newest.least_bid[cheapest])
        bid = round(least * (1 + self.margin))
        return Plan(host, bid)


class NoBid:
    """Rents the cheapest host on demand."""

    def plan(self, view: View) -> Plan | None:
        newest = view.record.newest()
        if newest.host.size:
            return Plan(int(newest.host[newest.on_demand.argmin()]), None)
        return None


@dataclass(frozen=True, slots=True)
class BidBrain:
    """The bid that is expected to cost least, by the odds that the record shows. Its machine keeps
    that bid until it is paused, and then goes for another one, as in a launch, unless `steps` are
    allowed, which then are taken if they are expected to cost less: to raise the bid or to let the
    machine go, and (hold) to wait for a paused one."""

    terms: BidTerms
    steps: frozenset[BidStep] = frozenset()

    def plan(self, view: View) -> Plan | None:
        held = view.held
        if held is not None and held.runs and not self.steps & {BidStep.RAISE, BidStep.LEAVE}:
            return Plan(held.host, held.bid)

        adviser = BidAdviser.of(view.record, view.runs, self.terms)
        if held is None:
            best = adviser.best(view.left)
        else:
            may = (
                {BidStep.HOLD, *self.steps}
                if held.runs
                else {BidStep.LEAVE, *(self.steps & {BidStep.HOLD})}
            )
            advised = adviser.steps(held, view.left)
            steps = (each for each in advised if each.step in may)
            best = min(steps, key=lambda each: each.usd, default=None)

        if best is None:
            return None
        return Plan(best.bid.host, best.bid.bid)


Bidding = Margin | NoBid | BidBrain
"""A way of bidding: `plan` is the machine to go on with, which may be the one that is held, at
another bid; None: none for now."""

ON_DEMAND, BIDBRAIN = "on-demand", "bidbrain"
STEPS = {"raise": BidStep.RAISE, "let go": BidStep.LEAVE, "wait": BidStep.HOLD}
WAYS = (ON_DEMAND, "minimum", "minimum+20%", BIDBRAIN, *(f"{BIDBRAIN}, {step}" for step in STEPS))
_MARGIN = re.compile(r"minimum(?:\+(\d{1,4})%)?")


def bidding_of(name: str, terms: BidTerms) -> Bidding:
    """The way of bidding with a name; raises `ValueError` for one that is unknown."""
    if name == ON_DEMAND:
        return NoBid()
    brain, *steps = name.split(", ")
    if brain == BIDBRAIN and STEPS.keys() >= set(steps):
        return BidBrain(terms, frozenset(STEPS[step] for step in steps))
    if (margin := _MARGIN.fullmatch(name)) is None:
        raise ValueError(f"no way of bidding is named {name!r} (write {'; '.join(WAYS)})")
    return Margin(int(margin[1] or 0) / 100)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job's dollars by both payment rules, disks included; its hours, and its pauses by cause."""

    paid: float
    cleared: float
    hours: float
    outbid: int
    displaced: int
    finished: bool


def play(
    assumed: Assumptions, seed: int, work_hours: float, terms: BidTerms, bidding: Bidding
) -> Outcome:
    """The course of a job of one machine in the market of a seed."""
    longest = PAST_HOURS + _LONGEST * work_hours
    course = _Course(GeneratedMarket(assumed, seed, longest), terms, bidding, work_hours)
    while course.market.hour < PAST_HOURS:
        course.look()
        course.market.advance(course.market.hour + LOOK_HOURS)

    while course.left > _DONE and course.market.hour < longest:
        course.look()
        course.decide()
        course.move_on()

    course.end_machine(Fate.STAYS)
    disks = course.disk_hours * terms.disk_usd_per_hour
    paid = course.paid + disks
    cleared = course.cleared + disks
    hours = course.market.hour - PAST_HOURS
    risen = (run.ended is Fate.RISEN for run in course.runs)
    gone = (run.ended is Fate.GONE for run in course.runs)
    return Outcome(paid, cleared, hours, sum(risen), sum(gone), course.left <= _DONE)


@dataclass(slots=True)
class _Course:
    """A job in progress: the hours of work that no pause can undo any more are not `left`. The
    machine has run `since` an hour, at its present bid, and works from `works_from` on."""

    market: GeneratedMarket
    terms: BidTerms
    bidding: Bidding
    left: float
    record: HostRecord = field(default_factory=lambda: HostRecord.of(()))
    runs: list[OwnRun] = field(default_factory=list)
    paid: float = 0.0
    cleared: float = 0.0
    disk_hours: float = 0.0
    since: float = 0.0
    works_from: float = 0.0

    def look(self) -> None:
        """Takes a snapshot."""
        self.record = self.record.joined(self.market.listed())

    def decide(self) -> None:
        """Changes the bid, or the machine, as the way of bidding wants."""
        own = self.market.own
        now = self.market.hour
        terms = self.terms
        if own is not None and own.bid is None:
            return

        view = View(self.record, self.runs, self.left, self._held())
        plan = self.bidding.plan(view)
        if own is not None and plan is not None and (plan.host, plan.bid) == (own.host, own.bid):
            return

        if own is not None and plan is not None and plan.host == own.host and plan.bid is not None:
            ran = own.runs
            self._end_run(own, Fate.STAYS)
            self.market.change_bid(own, plan.bid)
            self._begin_run(self.works_from if ran else now + terms.startup_hours)
            return

        self.end_machine(Fate.STAYS)
        if plan is not None:
            self.market.rent(plan.host, plan.bid, terms.loading_hours)
            self._begin_run(now + terms.loading_hours + terms.startup_hours)

    def move_on(self) -> None:
        """Lets time pass until the next look, the end of the work, or a pause."""
        own = self.market.own
        began = self.market.hour
        ran = own is not None and own.runs
        until = (floor(began / LOOK_HOURS + _DONE) + 1) * LOOK_HOURS

        # No checkpoint is written at the end.
        terms = self.terms
        intervals = self.left / terms.checkpoint_every_hours - _DONE
        pauses = ceil(intervals) - 1
        checkpoints = max(pauses, 0)
        ends = self.works_from + (self.left + checkpoints * terms.checkpoint_hours)
        now = self.market.advance(min(until, ends) if ran else until)
        if own is None:
            return

        self.disk_hours += now - began
        if ran and not own.runs:
            listed = self.market.listed().host
            self.left -= self._saved_hours()
            fate = Fate.RISEN if own.host in listed else Fate.GONE
            self._end_run(own, fate)
        elif ran and now >= ends - _DONE:
            self.left = 0.0
        elif own.runs and not ran:
            self._begin_run(now + self.terms.startup_hours)

    def end_machine(self, fate: Fate) -> None:
        """Gives the machine up, and with it what is not saved."""
        own = self.market.own
        if own is None:
            return
        if own.runs:
            self.left -= self._saved_hours() if self.left > _DONE else 0.0
            self._end_run(own, fate)
        self.paid = self.paid + own.paid
        self.cleared = self.cleared + own.cleared
        self.market.give_up()

    def _held(self) -> HeldBid | None:
        own = self.market.own
        newest = self.record.newest()
        if own is None or own.bid is None:
            return None

        listed = newest.least_bid[newest.host == own.host]
        unsaved = 0.0
        if own.runs:
            terms = self.terms
            cycle = terms.checkpoint_every_hours + terms.checkpoint_hours
            unsaved = max(self.market.hour - self.works_from, 0.0) % cycle
        own_host = self.market.hosts[own.host]
        least_bid = None
        if not self.terms.pays_bid:
            least_bid = self.market.least_bid(own.host, ours=False)
        unsaved_hours = min(unsaved, self.terms.checkpoint_every_hours)
        return HeldBid(
            own.host,
            own.bid,
            own_host.on_demand,
            own.runs,
            int(listed[0]) if listed.size else None,
            least_bid,
            unsaved_hours,
        )

    def _begin_run(self, works_from: float) -> None:
        self.since = self.market.hour
        self.works_from = works_from

    def _end_run(self, own: OwnMachine, fate: Fate) -> None:
        """A run ends when it is paused, and when a machine that runs is given up or gets another
        bid.
        """
        if own.bid is not None and own.runs is (fate is Fate.STAYS):
            since = round(self.since * HOUR)
            until = round(self.market.hour * HOUR)
            ended = OwnRun(own.host, own.bid, since, until, fate)
            self.runs.append(ended)

    def _saved_hours(self) -> float:
        """The work of whole cycles since the run began to work."""
        worked = self.market.hour - self.works_from
        terms = self.terms
        cycle = terms.checkpoint_every_hours + terms.checkpoint_hours
        cycles = floor(max(worked, 0.0) / cycle + _DONE)
        return min(cycles * terms.checkpoint_every_hours, self.left)
