"""How machines, bids and amounts are written in a line of text, the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING

from pricing_data.known_clouds import markets_of
from pricing_data.market import NO_ZONE, Market
from pricing_data.units import (
    HOUR,
    MINUTE,
    SECOND,
    bid_usd,
    counted,
    format_time,
    format_usd,
    moment,
    usd,
    usd_text,
)
from spotctl.home.cloud import cloud_of, rented_clouds

if TYPE_CHECKING:
    from spotctl.log.events import RowsLost
    from spotctl.log.ledger.rows import CostSoFar
    from spotctl.planning.values import QuotaSlice


_MAX_CHANGES = 6


def slice_text(own: QuotaSlice, at: int) -> str:
    """A slice of a quota: `jobb 8 from 03:10Z, 16 from 04:00Z until 05:20Z`; `at` is the moment of
    the launch.
    """
    text = f"{own.job} {own.amount}"
    if own.turn.begins is not None:
        text += f" from {_between(own.turn.begins, at)}"
    elif own.turn.begin:
        text += f" from {_later(own.turn.begin, at)}"

    for begin, amount in own.later[:_MAX_CHANGES]:
        later = _later(begin, at)
        text += f", {amount} from {later}"
    more = len(own.later) - _MAX_CHANGES
    if more > 0:
        text += f", then {counted(more, 'more change')}"

    return text + until_text(own, at)


def until_text(own: QuotaSlice, at: int) -> str:
    """` until 05:20Z`; empty if it is not known when the turn ends."""
    if own.turn.end == inf:
        return ""
    return (
        " until "
        f"{_later(own.turn.end, at) if own.turn.ends is None else _between(own.turn.ends, at)}"
    )


def _between(bounds: tuple[float, float], at: int) -> str:
    """`03:10Z or later`, or `03:10Z to 05:20Z`."""
    earliest, latest = bounds
    return f"{_later(earliest, at)} {'or later' if latest == inf else f'to {_later(latest, at)}'}"


def _later(hours: float, at: int) -> str:
    micros = at + round(hours * HOUR)
    text, today = format_time(-(-micros // MINUTE) * MINUTE), format_time(at)[:10]
    date, time = text[:10], text[11:16]
    if date == today:
        return f"{time}Z"
    return f"{date} {time}Z"


def machines_text(count: int | str, market: Market) -> str:
    """`6 x c4.2xlarge (sim-east-b)`, with the region where the cloud has no zones."""
    place = market.region if market.zone == NO_ZONE else market.zone
    reserved = f", reservation {market.reservation}" if market.reservation else ""
    return f"{count} x {market.instance_type} ({place}{reserved})"


def terms_text(market: Market, bid: int | None, on_demand: int) -> str:
    """`, bid $0.0600/h`, rounded up to a hundredth of a cent; ` at the spot price` on a cloud
    without bids; the price of reserved machines."""
    if market.reservation:
        return f" at ${format_usd(on_demand)}/h"
    if bid is None:
        return " on demand"
    if markets_of(market.cloud).takes_bids:
        return f", bid {bid_usd(bid)}/h"
    return " at the spot price"


def bids_text(bids: Iterable[tuple[str, int | None, int]]) -> str:
    """The meaning of bids that are paid, or are maximum prices, given each cloud, bid and on-demand
    price; empty for other clouds.

    Other spot prices of rented clouds no longer follow bids, so a bid only says when a price is too
    high.
    """
    # Status and reports of runs that have ended import this module, and need no billing.
    from bidbrain.billing import terms_of

    bidding = [cloud for cloud in rented_clouds() if markets_of(cloud).takes_bids]
    bid_in, are_listed = set[str](), True
    for cloud, bid, on_demand in bids:
        if bid is not None and cloud in bidding:
            bid_in.add(cloud)
            are_listed &= bid == on_demand

    paid, named = list[str](), list[str]()
    for cloud in bidding:
        if cloud in bid_in:
            titles = paid if terms_of(cloud).pays_bid else named
            titles.append(cloud_of(cloud).words.title)

    texts = list[str]()
    if paid:
        texts.append(
            f"on {' and '.join(paid)} you pay what you bid: a higher bid is outbid less often, and "
            "no bid keeps a machine from those who rent it on demand"
        )

    if named:
        text = (
            f"on {' and '.join(named)} a bid is only a maximum price: a low bid adds evictions when "
            "the price rises above it, and no bid prevents evictions for lack of capacity"
        )
        if are_listed:
            text += "; these are at the on-demand price"
        texts.append(text)

    return "; ".join(texts)


def spending_text(spent: CostSoFar) -> str:
    """`$2.42`, `at least $0.54`, or `at most $0.27`."""
    bound = bound_of(is_least=spent.is_least, is_most=spent.low < spent.amount)
    shown = spent.low if spent.is_least else spent.amount
    return f"{bound}{usd_text(usd(shown))}"


def bound_of(*, is_least: bool, is_most: bool) -> str:
    """The words in front of an amount that is a bound."""
    if is_least:
        return "at least "
    if is_most:
        return "at most "
    return ""


def hours_text(hours: float) -> str:
    """`12 minutes`, `3.5 hours`."""
    if hours < 1:
        return f"{hours * 60:.0f} minutes"
    return f"{hours:.1f} hours"


def span_words(micros: float) -> str:
    """`45 seconds`, `8.16 minutes`, `30.5 hours`."""
    unit, name = HOUR, "hours"
    if micros < MINUTE:
        unit, name = SECOND, "seconds"
    elif micros < 2 * HOUR:
        unit, name = MINUTE, "minutes"
    return f"{micros / unit:.3g} {name}"


def chance(share: float) -> str:
    """A probability in percent; small ones get two significant digits."""
    if share >= 0.0995:
        return f"{share:.1%}"
    return f"{100 * share:.2g}%"


def loss_text(run: str, loss: RowsLost) -> str:
    """`2 rows of run x-1a2b3c (Rented, MachineRan), rows 5 to 9 of the damaged log, between ... and
    ...`.
    """
    whose = f"of run {run}" if run else "of an unknown run"
    kinds = f" ({', '.join(loss.kinds)})" if loss.kinds else ""
    numbers = f"rows {loss.first} to {loss.last}"
    if loss.first == loss.last:
        numbers = f"row {loss.first}"

    rows = counted(loss.rows, "row")
    since, until = moment(loss.since), moment(loss.until)
    return f"{rows} {whose}{kinds}: {numbers} of the damaged log, between {since} and {until}"


EVIDENCE = {
    "observed": "observed evictions of machines",
    "published": "published eviction rates",
    "prior": "unknown: no eviction rate is recorded, so a wide prior stands in",
    "price": "prices: no other cause evicts machines in this market",
}
"""The basis of an eviction estimate, in words."""
