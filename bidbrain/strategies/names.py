"""Names of the registered strategies, as users write them. Imports nothing, so that file checkers
load it quickly.
"""

ON_DEMAND = "on-demand"

NAMES = (
    ON_DEMAND,
    "standard+checkpoint",
    "standard+agileml",
    "tierml",
    "proteus",
    "fixed-bid",
    "price-capacity",
    "lookahead",
)

IN_PLACE_OF = {
    "standard+checkpoint": "auto",
    "standard+agileml": "auto",
    "fixed-bid": "proteus",
    "lookahead-present": "lookahead",
}
"""A new job's choice in place of a strategy that it cannot have: on every record another one is
cheaper and as fast. Backtests compare with those that they know. Runs of earlier versions go on
with theirs."""

AUTO = "auto"
"""The default strategy of a market's billing rule, or the rival that a plan prefers to it where the
past is clear."""

OF_JOBS = tuple(name for name in NAMES if name not in IN_PLACE_OF)
"""The strategies that a new job may have."""

REGIONS = "regions"
"""The strategy of a gang that moves between regions; it decides within a `Decider`."""

DEADLINE = "deadline"
"""Decides within a `Decider`, for every job with a deadline, when on-demand machines are needed,
and leaves markets and bids to the default strategy."""

NEEDS_ARGUMENT = frozenset({"fixed-bid"})
"""`fixed-bid:DOLLARS`, the bid above the current price."""

MAY_HAVE_ARGUMENT = NEEDS_ARGUMENT | {"price-capacity", "lookahead"}
"""`price-capacity:POOLS` and `lookahead:DOLLARS_PER_HOUR` (the price of time) work without one
too."""


def known(name: str) -> bool:
    """Whether a strategy has this name; the value of its argument is not checked."""
    kind, colon, argument = name.partition(":")
    if colon or kind in NEEDS_ARGUMENT:
        return kind in MAY_HAVE_ARGUMENT and bool(argument)
    return kind in NAMES
