"""How a machine ends: what the market, its lease and its user have in store, and which of it comes first."""

from __future__ import annotations

from dataclasses import dataclass

EVICTED, RETURNED, LEASE_ENDED, FAILED = "evicted", "returned", "lease ended", "failed"


@dataclass(frozen=True, slots=True)
class PlannedEnding:
    """What the market has in store for a machine: None is never, and a machine may be taken without being warned."""

    started: int
    taken_at: int | None = None
    warned_at: int | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """When and why a machine ended, on the market's clock."""

    at: int
    reason: str


def ending(fate: PlannedEnding, lease_until: int, returned_at: int | None, now: int) -> Ending | None:
    """The end that has come by now, as of its own moment: who looks late finds the same as who looked in time.

    At one moment, taken away comes before given back, as in the backtest.
    """
    ends = ((fate.taken_at, EVICTED), (returned_at, RETURNED), (lease_until, LEASE_ENDED))
    due = [Ending(max(at, fate.started), reason) for at, reason in ends if at is not None and at <= now]
    return min(due, key=lambda end: end.at, default=None)


def warning(fate: PlannedEnding, now: int) -> int | None:
    """When a machine will be taken, if it has been warned of that by now."""
    return fate.taken_at if fate.warned_at is not None and fate.warned_at <= now else None
