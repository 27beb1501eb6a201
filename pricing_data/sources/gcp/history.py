"""What Compute Engine's capacity history says, as values. Pure: it reads the SDK's messages and imports no SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from pricing_data.errors import BadInput, SourceUnavailable
from pricing_data.fetched_rows import PriceEvent
from pricing_data.interruptions import Interruption
from pricing_data.market import NO_ZONE, Market
from pricing_data.sources.gcp.machines import CLOUD
from pricing_data.sources.gcp.money import usd_nanos
from pricing_data.sources.rejects import Rejects
from pricing_data.units import LATEST, Span, parse_time

if TYPE_CHECKING:
    from google.cloud.compute_v1 import (
        CapacityHistoryResponse,
        CapacityHistoryResponsePreemptionRecord,
        CapacityHistoryResponsePriceRecord,
        Interval,
    )

SOURCE = "gcp capacity history"


class Unsupported(SourceUnavailable):
    """The API keeps no history of this machine type; asking again changes nothing."""


class Priced(NamedTuple):
    """A price (nano-dollars per hour) that was in force from `start` until just before `end`."""

    start: int
    end: int
    price: int


def market_of(answer: CapacityHistoryResponse, region: str, machine_type: str) -> Market:
    """The market that an answer is about: a zone where its location names one, else the whole region."""
    place = answer.location.rsplit("/", 1)[-1]
    named = answer.machine_type.rsplit("/", 1)[-1]
    if named not in ("", machine_type):
        raise BadInput(f"asked about {machine_type} in {region}, the answer is about {named}")
    if place.startswith(f"{region}-"):
        return Market(CLOUD, region, place, machine_type)
    if place not in ("", region):
        raise BadInput(f"asked about {machine_type} in {region}, the answer is about {answer.location}")
    return Market(CLOUD, region, NO_ZONE, machine_type)


def price_events(market: Market, answer: CapacityHistoryResponse, window: Span, rejects: Rejects) -> list[PriceEvent]:
    """The prices of an answer that were in force during a window."""
    return list(_events(market, rejects.good(_priced, answer.price_history, lambda _: market), window))


def interruptions(
    market: Market, answer: CapacityHistoryResponse, window: Span, rejects: Rejects
) -> tuple[Interruption, ...]:
    """The preemption rates of the days that ended within a window: that of a day that is not over still moves."""
    rates = rejects.good(partial(_interruption, market), answer.preemption_history, lambda _: market)
    return tuple(rate for rate in rates if window.start < rate.as_of <= window.end)


def _events(market: Market, spans: Iterable[Priced], window: Span) -> Iterator[PriceEvent]:
    """Each price at its start; where none follows at once, again at the last moment it is known to be in force.

    A series ends at its last event, so without that observation a price of today would be known only at its start.
    """
    ordered = sorted(spans)
    for priced, following in zip_longest(ordered, ordered[1:]):
        next_start = following.start if following else LATEST
        end = min(priced.end, next_start)
        if end <= window.start or end <= priced.start or priced.start > window.end:
            continue
        yield PriceEvent(market, priced.start, priced.price)
        last_moment = min(end - 1, window.end)
        if (end < next_start or end > window.end) and last_moment > priced.start:
            yield PriceEvent(market, last_moment, priced.price)


def _priced(record: CapacityHistoryResponsePriceRecord) -> Priced:
    start, end = _bounds(record.interval)
    money = record.list_price
    return Priced(start, end or LATEST, usd_nanos(money.units, money.nanos, money.currency_code))


def _interruption(market: Market, record: CapacityHistoryResponsePreemptionRecord) -> Interruption:
    _, end = _bounds(record.interval)
    if not end or "preemption_rate" not in record:
        raise BadInput(f"no end or no rate of the preemptions from {record.interval.start_time}")
    rate = record.preemption_rate
    return Interruption(market, "preemption-rate", end, rate, rate, SOURCE)


def _bounds(interval: Interval) -> tuple[int, int | None]:
    start = parse_time(interval.start_time)
    end = parse_time(interval.end_time) if interval.end_time else None
    if end is not None and end <= start:
        raise BadInput(f"an interval from {interval.start_time} to {interval.end_time}")
    return start, end
