"""The odds that a bid is outbid, and that its machine is displaced whatever was bid, from the
record of a market.

Being outbid is Poisson with a rate that depends on the bid's level and never rises with it. Three
sources tell of the rate, each of which is the prior of the next, so that few snapshots move it
little:

1. an assumption: a rise in 20 machine-hours for a bid in the middle of the minimum bids of all
   hosts, and elsewhere in proportion to the hosts that ask for more: rivals bid about as much as
   wins a host now;
2. rivals' bids, as if each of them bid what it can pay, whatever stands: rises to a level, over the
   hours of the hosts that stood below it. This tells of bids that are higher than what any host
   asks;
3. how often hosts that stood at about the level rose: who holds a machine at a bid makes that its
   minimum. This also holds for rivals who add a little to what stands, and for those who avoid dear
   hosts. The shares are made to fall with the level by pooling neighbors that do not (isotonic
   regression).

The last hours of the whole market multiply the rate, as far as they differ from others by more than
chance explains.

Hosts that are gone, rented on demand or switched off, have a rate that no bid changes: one for each
host, close to that of the market unless hosts differ by more than chance explains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.eviction.hazard import UNRECORDED, shape_of_rates
from bidbrain.eviction.survival import Exposure
from bidbrain.outbid.record import Fate, HostRecord, OwnRun, Stays, level_of, pauses
from pricing_data.units import HOUR

_LEVELS: Floats = np.linspace(-20, 20, 41) / 10
"""Centres of the bands of levels: from 14% to 740% of the usual minimum bid, in steps of a
tenth."""
_RIVALS_WORTH = 4.0
"""Rivals' bids count as much as this many rises at a level."""
_BLOCK = 2 * HOUR
"""The span whose events show whether a market is busier than usual."""
_ASSUMED_PAUSE = Exposure(1.0, 4.0)
"""A pause of four hours, until any was seen to end."""
_FEW_GROUPS = 4
"""Fewer hosts, or blocks, do not tell how alike they are; then it is assumed."""
_ASSUMED_SHAPE = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class OutbidOdds:
    """The odds of a market at a moment: the rate of being outbid by level and the events behind it,
    the rate of being displaced and the factors of hosts, and how soon hosts take a bid again.
    Levels between the bands lie on a line between their neighbors."""

    rates: Floats
    events: Floats
    displaced: Exposure
    hosts: dict[int, float]
    back: Exposure
    hours: float

    @classmethod
    def of(cls, record: HostRecord, own: Sequence[OwnRun] = ()) -> OutbidOdds:
        """The odds from snapshots, at the moment of the last one, and from runs of our own."""
        stays = Stays.of(record, own)
        at = int(record.at[-1])
        # Assumed at each level: twice `UNRECORDED` times the share of hosts that ask for more.
        newest = record.newest()
        levels = np.sort(level_of(newest.least_bid, newest.usual))
        above = levels.size - np.searchsorted(levels, _LEVELS, side="right")
        unrecorded_rate = 2 * UNRECORDED.evictions / UNRECORDED.hours
        odds_above = unrecorded_rate * (above + 0.5)
        assumed: Floats = odds_above / (levels.size + 1)

        # The rate in each band, from above to below never falling, and the number of events that it
        # rests on.
        risen = stays.fate == Fate.RISEN
        by_rivals = _of_rivals(assumed, stays, risen)
        place = np.interp(stays.level, _LEVELS, np.arange(_LEVELS.size))
        band = np.rint(place).astype(np.int64)
        events = np.bincount(band, risen, _LEVELS.size) + _RIVALS_WORTH
        seen_hours = np.bincount(band, stays.hours, _LEVELS.size)
        band_hours = seen_hours + _RIVALS_WORTH / by_rivals
        # Imported here, so that jobs outside the markets of hosts need not wait for it.
        from scipy.optimize import isotonic_regression

        falling = isotonic_regression(events / band_hours, weights=band_hours, increasing=False).x
        rates = np.asarray(falling, dtype=np.float64)

        due = stays.hours * np.interp(stays.level, _LEVELS, rates)
        gone = stays.fate == Fate.GONE
        hours = float(stays.hours.sum())
        displaced = UNRECORDED + Exposure(float(gone.sum()), hours)
        gone_due = stays.hours * displaced.evictions / displaced.hours
        block = (at - stays.until) // _BLOCK

        own_factors = _factors(block, risen, due)
        factor = own_factors.get(0, 1.0)
        own_rates = rates * factor
        gone_factors = _factors(block, gone, gone_due)
        gone_factor = gone_factors.get(0, 1.0)
        displaced_hours = displaced.hours / gone_factor
        own_displaced = Exposure(displaced.evictions, displaced_hours)
        hosts = _factors(stays.host, gone, gone_due)
        seen_pauses = pauses(record, stays)
        counts = events.astype(np.float64)
        return cls(own_rates, counts, own_displaced, hosts, _ASSUMED_PAUSE + seen_pauses, hours)

    def outbid_per_hour(self, level: Floats) -> Floats:
        """The rate of being outbid, by the level of the bid."""
        return np.interp(level, _LEVELS, self.rates)

    def displaced_per_hour(self, host: int) -> float:
        """The rate of being displaced at a host."""
        rate = self.displaced.evictions / self.displaced.hours
        factor = self.hosts.get(host, 1.0)
        return rate * factor

    def outbid_at(self, level: float) -> Exposure:
        """The rate of being outbid at a level, with the events that it rests on."""
        events = float(np.interp(level, _LEVELS, self.events))
        rate = float(np.interp(level, _LEVELS, self.rates))
        return Exposure(events, events / rate)

    @property
    def basis(self) -> str:
        """The evidence behind the odds, in words."""
        if not self.hours:
            return (
                "the spread of minimum bids, because no two snapshots are close enough to compare"
            )
        return f"{self.hours:,.0f} machine-hours of hosts between snapshots"


def _of_rivals(assumed: Floats, stays: Stays, risen: Bools) -> Floats:
    """The rate of bids above each level, if rivals bid what they can pay: a rise to a level was
    only seen where the host stood below it. The assumption counts as `UNRECORDED.hours` more at
    every level."""
    order = np.argsort(stays.level)
    levels = stays.level[order]
    summed = np.cumsum(stays.hours[order])
    total = np.concatenate(([0.0], summed))
    tops = np.sort(stays.after[risen])
    hours_at_top = total[np.searchsorted(levels, tops)]
    watched_hours = hours_at_top + UNRECORDED.hours
    each = 1 / watched_hours
    from_last = np.cumsum(each[::-1])[::-1]
    from_top = np.concatenate((from_last, [0.0]))
    seen = from_top[np.searchsorted(tops, _LEVELS, side="right")]
    watched = total[np.searchsorted(levels, _LEVELS)]
    assumed_events = assumed * UNRECORDED.hours
    hours = watched + UNRECORDED.hours
    rate: Floats = seen + assumed_events / hours

    return rate


def _factors(group: Ints, happened: Bools, due: Floats) -> dict[int, float]:
    """By group, how much more often something happened than was due: near 1 unless chance does not
    explain more.
    """
    names, number = np.unique(group, return_inverse=True)
    counts, expected = (np.bincount(number, each).astype(np.float64) for each in (happened, due))
    shape = shape_of_rates(counts, expected) if names.size >= _FEW_GROUPS else _ASSUMED_SHAPE
    factors = (shape + counts) / (shape + expected)
    listed = factors.tolist()
    return dict(zip(names.tolist(), listed, strict=True))
