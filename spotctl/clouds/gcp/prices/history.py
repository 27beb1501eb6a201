"""Parsers of Compute Engine's capacity history. Pure: reads the SDK's messages and imports no SDK."""

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

from pricing_data.availability import Interruption
from pricing_data.errors import BadInput, CloudError
from pricing_data.fetched_rows import PriceEvent
from pricing_data.market import NO_ZONE, Market
from pricing_data.series import WatchRecord, union
from pricing_data.sources.base import Rejects
from pricing_data.units import LATEST, Span, parse_time
from spotctl.clouds.gcp.prices.machines import CLOUD
from spotctl.clouds.gcp.prices.money import usd_nanos

# The SDK's messages carry no annotations. These names follow google.cloud.compute_v1.
CapacityHistoryResponse = Any
CapacityHistoryResponsePreemptionRecord = Any
CapacityHistoryResponsePriceRecord = Any
Interval = Any

SOURCE = "gcp capacity history"


class Unsupported(CloudError):
    """The API keeps no history of this machine type; repeating the call changes nothing."""


class PriceInterval(NamedTuple):
    """A price (nano-dollars per hour) in force from `start` until just before `end`."""

    start: int
    end: int
    price: int


def market_of(answer: CapacityHistoryResponse, region: str, machine_type: str) -> Market:
    """The market of an answer: a zone if its location names one, else the whole region."""
    place = answer.location.rsplit("/", 1)[-1]
    named = answer.machine_type.rsplit("/", 1)[-1]
    if named not in ("", machine_type):
        raise BadInput(f"requested {machine_type} in {region}, but the answer is about {named}")
    if place.startswith(f"{region}-"):
        return Market(CLOUD, region, place, machine_type)
    if place not in ("", region):
        raise BadInput(f"requested {machine_type} in {region}, but the answer is about {answer.location}")
    return Market(CLOUD, region, NO_ZONE, machine_type)


def price_history(
    market: Market, answer: CapacityHistoryResponse, window: Span, rejects: Rejects
) -> tuple[list[PriceEvent], WatchRecord]:
    """The prices in force during a window, and when they are known to have been."""
    intervals = list(_in_window(rejects.good(_price_interval, answer.price_history, lambda _: market), window))
    watched = WatchRecord(union(Span(part.start, min(part.end, window.end)) for part in intervals))
    return [PriceEvent(market, part.start, part.price) for part in intervals], watched


def interruptions(
    market: Market, answer: CapacityHistoryResponse, window: Span, rejects: Rejects
) -> tuple[Interruption, ...]:
    """The preemption rates of the days that ended within a window; the rate of an unfinished day still changes."""
    rates = rejects.good(partial(_interruption, market), answer.preemption_history, lambda _: market)
    return tuple(rate for rate in rates if window.start < rate.as_of <= window.end)


def _in_window(intervals: Iterable[PriceInterval], window: Span) -> Iterator[PriceInterval]:
    """The intervals that reach into a window, each ending where the next one starts."""
    ordered = sorted(intervals)
    for current, following in zip_longest(ordered, ordered[1:]):
        end = min(current.end, following.start if following else LATEST)
        if end > max(window.start, current.start) and current.start <= window.end:
            yield current._replace(end=end)


def _price_interval(record: CapacityHistoryResponsePriceRecord) -> PriceInterval:
    start, end = _bounds(record.interval)
    money = record.list_price
    return PriceInterval(start, end or LATEST, usd_nanos(money.units, money.nanos, money.currency_code))


def _interruption(market: Market, record: CapacityHistoryResponsePreemptionRecord) -> Interruption:
    _, end = _bounds(record.interval)
    if not end or "preemption_rate" not in record:
        raise BadInput(f"the preemptions from {record.interval.start_time} have no end or no rate")
    rate = record.preemption_rate
    return Interruption(market, "preemption-rate", end, rate, rate, SOURCE)


def _bounds(interval: Interval) -> tuple[int, int | None]:
    start = parse_time(interval.start_time)
    end = parse_time(interval.end_time) if interval.end_time else None
    if end is not None and end <= start:
        raise BadInput(f"an interval ends at {interval.end_time}, before its start {interval.start_time}")
    return start, end
