"""`HostMarket`: a market of hosts as a plan sees it, whose order goes to one of the hosts that take
the bid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.eviction.hazard import EvidenceKind, Hazard, RateEvidence
from bidbrain.eviction.survival import Exposure
from bidbrain.outbid.bid import MARGINS, BidTerms
from bidbrain.outbid.odds import OutbidOdds
from bidbrain.outbid.record import HostRecord, level_of
from pricing_data.units import NANOS_PER_DOLLAR, bid_usd


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
