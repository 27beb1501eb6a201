"""Which scheme to use where nobody has said: chosen by replays of the regime, and named with what they gave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from bidbrain.backtest.results import Summary
from bidbrain.backtest.schemes import BOUND

SLOWEST_RATIO = 1.0
"""What is chosen by itself must not take longer than the baseline on demand."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A scheme, and why."""

    scheme: str
    reason: str


TODAY = Choice(
    "price-capacity",
    "machines are taken whatever the bid, and at most a first hour is refunded: replayed over prices of 2020 and"
    " watched availability, price-capacity paid least where there are many markets, and about as much as proteus"
    " where there are few, with fewer evictions (docs/decisions/0006-todays-default.md)",
)
"""Where capacity decides, which is on all clouds since 2017."""

BIDDING = Choice(
    "lookahead",
    "a bid decides who keeps a machine, and the hour of an eviction is refunded: lookahead weighs the hour ahead, keeps"
    " the pace of proteus, the published strategy, and paid less in every window tried"
    " (docs/decisions/0005-backtest.md)",
)
"""Where prices evict and hours are refunded."""


def default_for(billing: str) -> Choice:
    """The scheme for a market that bills by a rule.

    >>> default_for("gcp").scheme
    'price-capacity'
    """
    return BIDDING if billing == "hourly-refund" else TODAY


def cheapest(summaries: Iterable[Summary]) -> str | None:
    """The rule by which the default is chosen: of the schemes that finish every job and on average take no longer than
    the baseline, the one with the least mean cost over all lengths of job. None if no scheme does."""
    rows: dict[str, list[Summary]] = {}
    for one in summaries:
        if one.scheme != BOUND:
            rows.setdefault(one.scheme, []).append(one)
    fit = {
        scheme: fmean(row.cost_pct for row in of_scheme)
        for scheme, of_scheme in rows.items()
        if not any(row.unfinished for row in of_scheme)
        and fmean(row.runtime_ratio for row in of_scheme) <= SLOWEST_RATIO
    }
    return min(fit, key=lambda scheme: fit[scheme], default=None)
