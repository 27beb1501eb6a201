"""The default strategy for each billing rule, and the reason, which names the replays behind the choice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DefaultStrategy:
    """A strategy by name, and why it is the default: in full for `--json`, in a line for the terminal."""

    name: str
    reason: str
    summary: str


TODAY = DefaultStrategy(
    "price-capacity",
    "evictions depend on capacity rather than the bid, and at most a first hour is refunded. In replays of 2020 prices"
    " with recorded availability, price-capacity was cheapest where there are many markets, and cost about as much as"
    " proteus, with fewer evictions, where there are few (docs/decisions/0006-todays-default.md)",
    "cheapest in our backtests where there are many markets, and evicted less often than proteus at about the same cost"
    " where there are few (docs/decisions/0006-todays-default.md)",
)
"""Where capacity decides, which is on all clouds since 2017."""

BIDDING = DefaultStrategy(
    "lookahead",
    "the bid decides which machines are evicted, and an evicted hour is refunded. lookahead ranks bids by the expected"
    " cost of the next hour. With a price of time at which it finished as fast as proteus, the published strategy, it"
    " cost less in every window tested (docs/decisions/0005-backtest.md)",
    "cheapest in our backtests of markets that refund an evicted hour (docs/decisions/0005-backtest.md)",
)
"""Where prices evict and evicted hours are refunded."""


def default_for(billing: str) -> DefaultStrategy:
    """The default strategy in a market with this billing rule.

    >>> default_for("gcp").name
    'price-capacity'
    """
    return BIDDING if billing == "hourly-refund" else TODAY
