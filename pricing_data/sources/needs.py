"""The data that each source of prices brings, the account that the source needs, and the effort of a fetch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pricing_data.units import DAY


@dataclass(frozen=True, slots=True)
class SourceNeeds:
    """One part of a source: `needs` is empty where no account is needed."""

    cloud: str
    """The cloud."""
    what: str
    """The data."""
    needs: str
    """The account or credentials needed; empty if none are."""
    note: str = ""
    """Where the data comes from, and what it is used for."""


FILES = SourceNeeds("files", "histories, price lists, snapshots", "", "prices import, prices snapshot add")


@dataclass(frozen=True, slots=True)
class Effort:
    """About how much one task asks for in a region, for all types and Linux only: an order of magnitude.

    Calls, rows that are kept, and megabytes that are sent; of histories (`is_daily`) per day. A public list is sent
    as a whole (`is_whole`), however few of its types are wanted.
    """

    calls: float = 1
    rows: float = 0
    megabytes: float = 0.1
    is_daily: bool = False
    is_whole: bool = False

    def __add__(self, other: Effort) -> Effort:
        return Effort(self.calls + other.calls, self.rows + other.rows, self.megabytes + other.megabytes)

    def scaled(self, share: float) -> Effort:
        return Effort(max(1.0, self.calls * share), self.rows * share, self.megabytes * share)


_CALLS_PER_SECOND = 5
_MEGABYTES_PER_SECOND = 5
_BYTES_PER_ROW = 8


def effort(tasks: Iterable[Effort], span: int, *, some_types: bool) -> Effort:
    """The effort of tasks together, for a history of this length."""
    total = Effort(0, 0, 0)
    for task in tasks:
        whole = task.scaled(max(1.0, span / DAY)) if task.is_daily else task
        total += whole.scaled(0.1) if some_types and not task.is_whole else whole
    return total


def minutes(total: Effort, workers: int) -> float:
    """About how long it takes."""
    return (total.calls / _CALLS_PER_SECOND / max(workers, 1) + total.megabytes / _MEGABYTES_PER_SECOND) / 60


def disk_megabytes(total: Effort) -> float:
    """About how much the store grows."""
    return total.rows * _BYTES_PER_ROW / 1e6
