"""Snapshots of the hosts of a market, and what they show: how long hosts stood at a level, and what
ended that.

A bid's level is its logarithm over the usual minimum bid of the moment (the median of the listed
hosts), because rivals compare hosts. A machine that is held at a bid makes it the minimum bid of
its host, so that hosts at a level show what happens to such a bid. Between two snapshots a minimum
bid rises (a machine that was held at it was outbid), or the host is gone: rented on demand, or
taken off the market. Visits of rivals between two snapshots are not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from bidbrain.arrays import Bools, Floats, Ints
from bidbrain.eviction.survival import NOTHING, Exposure
from pricing_data.units import HOUR

LONGEST_GAP = 3 * HOUR
"""Snapshots that are farther apart do not say when, or how often, something happened in between."""
_SAME_BID = 1e-6
"""Bids that differ by less than this share are the same: cents of a machine are divided by its GPUs
and back."""


class Fate(IntEnum):
    """How a stay at a level ended."""

    STAYS = 0
    RISEN = 1
    """The minimum bid rose: a machine that was held at the level was outbid."""
    GONE = 2
    """The host cannot be had at any bid."""


@dataclass(frozen=True, slots=True, eq=False)
class HostRecord:
    """Snapshots of a market, a row for each host that a bid could have at that moment, in order of
    time.

    `at` is in microseconds, `host` an id that stays the same between snapshots, `least_bid` and
    `on_demand` are nano-dollars for an hour of the machine; an unknown price on demand is 0. Each
    snapshot lists all hosts of the market: who is missing was not to be had.
    """

    at: Ints
    host: Ints
    least_bid: Ints
    on_demand: Ints

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> HostRecord:
        """The record of rows (at, host, least bid, on-demand price) in any order. A host that offers
        several parts of its machine has the lowest of their bids."""
        table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 4)
        _, lowest = np.unique(table[:, :2], axis=0, return_index=True)
        columns = table[lowest]
        return cls(*columns.T)

    @property
    def columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self.at, self.host, self.least_bid, self.on_demand

    @property
    def usual(self) -> Ints:
        """For each row, the median of the minimum bids in its snapshot."""
        _, first, slot, count = np.unique(
            self.at, return_index=True, return_inverse=True, return_counts=True
        )
        ranked = self.least_bid[np.lexsort((self.least_bid, self.at))]
        middle = first + (count - 1) // 2
        middle_bids = ranked[middle]
        usual: Ints = middle_bids[slot]
        return usual

    def at_moment(self, at: int) -> HostRecord:
        """The snapshot of a moment."""
        first, last = (int(np.searchsorted(self.at, at, side=side)) for side in ("left", "right"))
        return HostRecord(*(column[first:last] for column in self.columns))

    def newest(self) -> HostRecord:
        """The last snapshot."""
        if self.at.size:
            return self.at_moment(int(self.at[-1]))
        return self

    def joined(self, other: HostRecord) -> HostRecord:
        """This record, and a later one."""
        pairs = zip(self.columns, other.columns, strict=True)
        return HostRecord(*(np.concatenate(pair) for pair in pairs))


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A machine that ran at a bid of our own, from `since` until it was outbid (`RISEN`), displaced
    (`GONE`) or given up (`STAYS`)."""

    host: int
    bid: int
    since: int
    until: int
    ended: Fate


@dataclass(frozen=True, slots=True, eq=False)
class Stays:
    """Times in which hosts stood at a level: the level, what it rose to (or the same), the hours at
    risk, and how they ended. An event between two snapshots happened halfway."""

    until: Ints
    host: Ints
    level: Floats
    after: Floats
    hours: Floats
    fate: Ints

    @classmethod
    def of(cls, record: HostRecord, own: Sequence[OwnRun] = ()) -> Stays:
        """The stays that a record shows. Where a machine was ours, its run says more precisely what
        happened.
        """
        seen = _between_snapshots(record)
        ours = np.zeros(seen.host.size, dtype=np.bool_)
        since = seen.until - seen.hours * HOUR
        for run in own:
            began_before = (seen.host == run.host) & (since < run.until)
            ends_after = seen.until > run.since
            ours |= began_before & ends_after

        rows = [(run.until, run.host, run.bid, run.since, run.ended) for run in own]
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        until, host, bid, began, ended = table.T
        place = np.searchsorted(record.at, began, side="right")
        known = np.maximum(place - 1, 0)
        level = level_of(bid, record.usual[known]) if own else np.zeros(0)
        stays = Stays(until, host, level, level, (until - began) / HOUR, ended)
        return seen.only(~ours).joined(stays)

    def only(self, rows: Bools) -> Stays:
        """Some of the stays."""
        return Stays(
            self.until[rows],
            self.host[rows],
            self.level[rows],
            self.after[rows],
            self.hours[rows],
            self.fate[rows],
        )

    def joined(self, other: Stays) -> Stays:
        """These stays and others."""
        until = np.concatenate((self.until, other.until))
        host = np.concatenate((self.host, other.host))
        level = np.concatenate((self.level, other.level))
        after = np.concatenate((self.after, other.after))
        hours = np.concatenate((self.hours, other.hours))
        fate = np.concatenate((self.fate, other.fate))
        return Stays(until, host, level, after, hours, fate)


def level_of(bids: Ints, usual: int | Ints) -> Floats:
    """The levels of bids at moments at which a minimum bid is usual."""
    return np.log(bids.astype(np.float64) / usual)


def pauses(record: HostRecord, stays: Stays) -> Exposure:
    """How many hosts took a level again that they had left upwards, or by being gone, and the hours
    of waiting.
    """
    level = level_of(record.least_bid, record.usual)
    paused = stays.fate != Fate.STAYS
    total = NOTHING
    for host in np.unique(stays.host[paused]).tolist():
        rows = record.host == host
        listed = record.at[rows]
        asked = level[rows]
        here = paused & (stays.host == host)
        ends_here = stays.until[here].tolist()
        bids = stays.level[here].tolist()
        for until, bid in zip(ends_here, bids, strict=True):
            takes = listed[(listed >= until) & (asked <= bid + _SAME_BID)]
            back = int(takes[0]) if takes.size else int(record.at[-1])
            came_back = float(takes.size > 0)
            waited = (back - until) / HOUR
            total += Exposure(came_back, waited)

    return total


def _between_snapshots(record: HostRecord) -> Stays:
    """A stay for each host of a snapshot until the next snapshot, if that came soon enough."""
    moments, slot = np.unique(record.at, return_inverse=True)
    order = np.lexsort((slot, record.host))
    slot = slot[order]
    host = record.host[order]
    least_bid = record.least_bid[order]
    level = level_of(least_bid, record.usual[order])
    following = np.append(np.arange(1, host.size), 0)
    same_host = host[following] == host
    is_next = slot[following] == slot + 1
    listed = same_host & is_next
    risen = listed & (least_bid[following] > least_bid * (1 + _SAME_BID))
    stays_or_goes = np.where(listed, Fate.STAYS, Fate.GONE)
    fate = np.where(risen, Fate.RISEN, stays_or_goes)
    next_slot = np.minimum(slot + 1, moments.size - 1)
    until = moments[next_slot]
    gap = until - moments[slot]
    part = np.where(fate == Fate.STAYS, 1.0, 0.5)
    hours = gap / HOUR * part

    # In the levels of the moment at which the stay began.
    raised = np.log(least_bid[following] / least_bid)
    after = np.where(risen, level + raised, level)
    known = (gap > 0) & (gap <= LONGEST_GAP)
    stays = Stays(until, host, level, after, hours, fate.astype(np.int64))
    return stays.only(known)
