"""How machines and bids are written in a line of text, the same in the live view, the night log and `spotctl top`."""

from __future__ import annotations

from pricing_data.market import NO_ZONE, Market


def machines_text(count: int | str, market: Market) -> str:
    """`6 x c4.2xlarge (sim-east-b)`, with the region where the cloud has no zones."""
    place = market.region if market.zone == NO_ZONE else market.zone
    return f"{count} x {market.instance_type} ({place})"


def bid_text(bid: int | None) -> str:
    """`, bid $0.0600/h`, rounded up to a hundredth of a cent; ` on demand` where there is no bid."""
    return " on demand" if bid is None else f", bid ${-(-bid // 100_000) / 10_000:.4f}/h"


def hours_text(hours: float) -> str:
    """`12 minutes`, `3.5 hours`."""
    return f"{hours * 60:.0f} minutes" if hours < 1 else f"{hours:.1f} hours"
