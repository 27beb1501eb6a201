"""The expected cost of a bid, the best bid among hosts, and what to do with a machine during a run.

A machine's life at a bid is exponential: it ends when it is outbid or displaced, without a warning,
so that the work since the last checkpoint is lost. Then another machine loads its image and starts
up. Over many lives, an hour of lasting work costs

    (price + time + rate restart) / share,    restart = time loading + (price + time) start-up,

where time is the worth of an hour of the job with its disk, which is billed in every state, and the
share of paid time that lasts is that of `EvictionLoss`. One choice is for one life only: what work
is left when it ends costs what it usually does in the market, by its last snapshots. So a bargain
is worth a bid that keeps it, and a host that is cheap because it is soon lost is no bargain.

A machine costs its bid, or, under a clearing price, what the host asks without it.

A plan sees a market of hosts as a `HostMarket`: its order goes to one of the hosts that take the
bid, and that one is not known before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from math import expm1, inf
from statistics import fmean

import numpy as np

from bidbrain.cost import EvictionLoss
from bidbrain.eviction.hazard import EvidenceKind, Hazard, RateEvidence
from bidbrain.eviction.survival import Exposure
from bidbrain.outbid.odds import OutbidOdds
from bidbrain.outbid.record import HostRecord, OwnRun, level_of
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, bid_usd

MARGINS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0)
"""The margins above a minimum bid that are compared; no bid is above the price on demand."""
_USUAL_SPAN = 24 * HOUR
_USUAL_SNAPSHOTS = 6
"""The usual cost is the mean over the best bids in about six snapshots of the last day."""


@dataclass(frozen=True, slots=True)
class BidTerms:
    """The payments and losses of a job besides the price: the hours until a new host has loaded its
    image, unbilled, and those of each start, billed; its checkpoints; the price of its disk; what
    an hour of its time is worth. `pays_bid` says whether a machine costs its bid, or what its host
    asks without it."""

    loading_hours: float
    startup_hours: float
    checkpoint_every_hours: float
    checkpoint_hours: float
    disk_usd_per_hour: float
    time_usd_per_hour: float
    pays_bid: bool = True

    def usd_per_work(self, price_usd: float, losses_per_hour: float) -> float:
        """Dollars per hour of lasting work over many lives."""
        paid = price_usd + self.waiting_usd + losses_per_hour * self.restart_usd(price_usd)
        share = self._share(losses_per_hour)
        if share > 0:
            return paid / share
        return inf

    def usd_to_end(
        self, price_usd: float, losses_per_hour: float, work_hours: float, usual_usd: float
    ) -> float:
        """Dollars for some work, if a machine that works already does it until it is lost, and
        others do the rest.
        """
        share = self._share(losses_per_hour)
        if not share > 0:
            return inf

        needed = work_hours / share
        lost = -expm1(-losses_per_hour * needed)
        alive = lost / losses_per_hour if losses_per_hour else needed
        rest = work_hours - alive * share
        restart_usd = lost * self.restart_usd(price_usd)
        running_usd = alive * (price_usd + self.waiting_usd) + restart_usd
        return running_usd + rest * usual_usd

    @property
    def waiting_usd(self) -> float:
        """The cost of an hour without a machine that runs."""
        return self.disk_usd_per_hour + self.time_usd_per_hour

    def start_usd(self, price_usd: float) -> float:
        """The cost of starting up on a host that has the image."""
        return self.startup_hours * (price_usd + self.waiting_usd)

    def restart_usd(self, price_usd: float) -> float:
        """The cost of starting on a new host."""
        return self.loading_hours * self.waiting_usd + self.start_usd(price_usd)

    def _share(self, losses_per_hour: float) -> float:
        return EvictionLoss(
            losses_per_hour, 0.0, self.checkpoint_every_hours, self.checkpoint_hours, warned=False
        ).useful_share


@dataclass(frozen=True, slots=True)
class HostBid:
    """A bid for a machine of a host (None: on demand), what an hour of it is expected to cost, and
    its hourly risks.
    """

    host: int
    bid: int | None
    price_usd: float
    outbid_per_hour: float = 0.0
    displaced_per_hour: float = 0.0

    @property
    def losses_per_hour(self) -> float:
        return self.outbid_per_hour + self.displaced_per_hour

    def __str__(self) -> str:
        if self.bid is None:
            return f"on demand at ${self.price_usd:.4g}/h"
        return (
            f"bid {bid_usd(self.bid)}/h on host {self.host}, outbid {self.outbid_per_hour:.3g} and "
            f"displaced {self.displaced_per_hour:.3g} times an hour"
        )


class BidStep(Enum):
    """An act for a job's machine."""

    RENT = "rent"
    HOLD = "hold"
    RAISE = "raise"
    LEAVE = "let go"


@dataclass(frozen=True, slots=True)
class Advice:
    """A step, the bid with which the job goes on, and the dollars that it is expected to cost to
    the job's end.
    """

    step: BidStep
    bid: HostBid
    usd: float

    def __str__(self) -> str:
        return f"{self.step.value}: {self.bid}; expected ${self.usd:.4g} until the end"


@dataclass(frozen=True, slots=True)
class HeldBid:
    """A machine at a bid, which runs or is paused. `least_bid` is what would run there now if it is
    paused; None: no bid does, because the host is rented on demand. `asked` is what the host asks
    without our bid, where that is known; `unsaved_hours` is the work that leaving would lose."""

    host: int
    bid: int
    on_demand: int
    runs: bool
    least_bid: int | None = None
    asked: int | None = None
    unsaved_hours: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class BidAdviser:
    """The best bid of a job by the odds of a market, and what to do with a machine. No bid is above
    `most`.
    """

    odds: OutbidOdds
    terms: BidTerms
    record: HostRecord
    most: int | None = None

    @classmethod
    def of(
        cls, record: HostRecord, own: Sequence[OwnRun], terms: BidTerms, most: int | None = None
    ) -> BidAdviser:
        """The adviser at the moment of the last snapshot, after some runs of the job's own."""
        return cls(OutbidOdds.of(record, own), terms, record, most)

    def best(self, work_hours: float) -> Advice | None:
        """The machine to rent; None if no host can be had."""
        return self._elsewhere(work_hours, self.usual_usd(), None)

    def advice(self, held: HeldBid, work_hours: float) -> Advice:
        """Whether to hold a machine's bid, to raise it, or to let the machine go for another one,
        whichever is expected to cost least."""
        possible = self.steps(held, work_hours)
        return min(possible, key=lambda each: each.usd)

    def steps(self, held: HeldBid, work_hours: float) -> list[Advice]:
        """All steps for a machine; a paused one is held by waiting for it."""
        usual = self.usual_usd()
        steps = list[Advice]()
        if not held.runs:
            # Waits with the paused machine until its host takes the bid again.
            own_bids = self._bids(self._usual_bid, held.host, held.bid, held.on_demand, held.asked)
            same = next(own_bids)
            pauses = self.odds.back
            waiting_usd = pauses.hours / pauses.evictions * self.terms.waiting_usd
            start_usd = self.terms.start_usd(same.price_usd)
            idle = waiting_usd + start_usd
            run_usd = self._usd(same, work_hours, usual)
            hold_usd = idle + run_usd
            steps.append(Advice(BidStep.HOLD, same, hold_usd))

        least = held.bid if held.runs else held.least_bid
        if least is not None:
            for each in self._bids(self._usual_bid, held.host, least, held.on_demand, held.asked):
                start = 0.0
                if not held.runs:
                    start = self.terms.start_usd(each.price_usd)
                step = BidStep.HOLD if each.bid == held.bid else BidStep.RAISE
                usd_of_bid = self._usd(each, work_hours, usual)
                usd_in_all = start + usd_of_bid
                steps.append(Advice(step, each, usd_in_all))

        if (
            other := self._elsewhere(work_hours + held.unsaved_hours, usual, held.host)
        ) is not None:
            steps.append(Advice(BidStep.LEAVE, other.bid, other.usd))

        return steps

    def usual_usd(self) -> float:
        """Dollars for an hour of lasting work at the best bids of the last day; infinite if no host
        was listed.
        """
        moments = np.unique(self.record.at)
        last_moment = moments[-1]
        is_recent = moments > last_moment - _USUAL_SPAN
        recent_moments = moments[is_recent]
        recent = recent_moments[::-1]
        step = -(-recent.size // _USUAL_SNAPSHOTS)

        best = []
        for at in recent[::step].tolist():
            bids = self._listed(self.record.at_moment(at), None)
            usd_of_bids = (
                self.terms.usd_per_work(bid.price_usd, bid.losses_per_hour) for bid in bids
            )
            least = min(usd_of_bids)
            best.append(least)

        return fmean(best)

    def _elsewhere(self, work_hours: float, usual: float, but: int | None) -> Advice | None:
        """The best machine of the last snapshot on another host."""
        newest = self.record.newest()
        others = self._listed(newest, but)
        choices = (
            Advice(
                BidStep.RENT,
                each,
                self.terms.restart_usd(each.price_usd) + self._usd(each, work_hours, usual),
            )
            for each in others
        )
        return min(choices, key=lambda each: each.usd, default=None)

    def _usd(self, each: HostBid, work_hours: float, usual: float) -> float:
        return self.terms.usd_to_end(each.price_usd, each.losses_per_hour, work_hours, usual)

    @property
    def _usual_bid(self) -> int:
        newest = self.record.newest()
        if newest.host.size:
            return int(newest.usual[0])
        return 0

    def _listed(self, listed: HostRecord, but: int | None) -> Iterator[HostBid]:
        """All bids for the hosts of a snapshot but one, and their prices on demand."""
        listed_columns = listed.columns[1:]
        columns = (column.tolist() for column in (*listed_columns, listed.usual))
        for host, least, on_demand, usual in zip(*columns, strict=True):
            if host != but:
                if on_demand:
                    yield HostBid(host, None, on_demand / NANOS_PER_DOLLAR)
                yield from self._bids(usual, host, least, on_demand, None)

    def _bids(
        self, usual: int, host: int, least_bid: int, on_demand: int, asked: int | None
    ) -> Iterator[HostBid]:
        """The bids that run on a host while a minimum bid is usual, the lowest first, up to the
        price on demand, if that is known."""
        higher = (round(least_bid * (1 + margin)) for margin in MARGINS[1:])
        amounts = [least_bid, *higher]
        limits = [max(on_demand, least_bid)] if on_demand else []
        limits += [] if self.most is None else [self.most]
        amounts = [amount for amount in amounts if amount <= min(limits, default=amount)]
        bids = np.array(amounts, dtype=np.int64)
        levels = level_of(bids, usual or least_bid)
        outbid = self.odds.outbid_per_hour(levels)
        displaced = self.odds.displaced_per_hour(host)
        for amount, rate in zip(amounts, outbid.tolist(), strict=True):
            price = amount if self.terms.pays_bid else min(asked or least_bid, amount)
            yield HostBid(host, amount, price / NANOS_PER_DOLLAR, rate, displaced)


@dataclass(frozen=True, slots=True, eq=False)
class HostMarket:
    """The snapshots of a market up to a moment (at least one), and its odds then."""

    odds: OutbidOdds
    record: HostRecord
    newest: HostRecord

    @classmethod
    def of(cls, record: HostRecord) -> HostMarket:
        return cls(OutbidOdds.of(record), record, record.newest())

    def hazard(self, bid: int) -> Hazard:
        """The losses of a machine at a bid, from both causes together, and the evidence in
        words."""
        takes = self.newest.host[self.newest.least_bid <= bid]
        among = takes if takes.size else self.newest.host
        displaced_rates = [self.odds.displaced_per_hour(host) for host in among.tolist()]
        mean_displaced = np.mean(displaced_rates)
        displaced = float(mean_displaced)
        bids = np.array([bid])
        levels = level_of(bids, int(self.newest.usual[0]))
        level = float(levels[0])
        outbid = self.odds.outbid_at(level)
        total = outbid.evictions / outbid.hours + displaced
        source = (
            f"{self.odds.basis}: outbid {total - displaced:.2g} times an hour at {bid_usd(bid)}, "
            f"displaced {displaced:.2g} times at any"
        )
        kind: EvidenceKind = "observed" if self.odds.hours else "prior"

        hours = outbid.evictions / total
        exposure = Exposure(outbid.evictions, hours)
        evidence = RateEvidence(source, exposure, kind)
        return Hazard((evidence,))

    def margin(self, price: int, on_demand: int, terms: BidTerms) -> float:
        """The margin above a price at which work is cheapest; no bid is above the price on
        demand."""

        def usd_per_work(margin: float) -> float:
            bid = round(price * (1 + margin))
            rate = self.hazard(bid).rate[0]
            return terms.usd_per_work(bid / NANOS_PER_DOLLAR, rate)

        return min(
            (margin for margin in MARGINS if price * (1 + margin) <= max(price, on_demand)),
            key=usd_per_work,
        )
