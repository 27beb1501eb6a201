"""`PriceBoard`: the prices of all offers over their common span, per accelerator and hour."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bidbrain.errors import TooLittleHistory
from bidbrain.gavel.arrays import FloatArray, IntArray
from pricing_data.catalog import InstanceType
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, format_time


@dataclass(frozen=True, slots=True)
class AcceleratorOffer:
    """A market of machines with accelerators. The price of one accelerator is its share of the machine's price.

    This price holds for a job that uses all accelerators of a machine, or where other jobs use the rest (Figure 6.4).
    `useful_share` is the share of paid time that evictions do not waste.
    """

    market: Market
    accelerator: str
    accelerators: int
    useful_share: float = 1.0

    def __str__(self) -> str:
        return f"{self.market} ({self.accelerators}x{self.accelerator})"


@dataclass(frozen=True, slots=True, eq=False)
class PriceBoard:
    """An accelerator-hour of offer `o` costs `usd[o, i]` from `hours[i]` after `begin` on, until `end`."""

    offers: tuple[AcceleratorOffer, ...]
    begin: int
    end: int
    hours: FloatArray
    usd: FloatArray
    paid_before: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        spans = np.diff(self.hours)
        paid = np.concatenate((np.zeros((len(self.offers), 1)), np.cumsum(self.usd[:, :-1] * spans, axis=1)), axis=1)
        object.__setattr__(self, "paid_before", paid)

    @property
    def span(self) -> float:
        """Hours from begin to end."""
        return (self.end - self.begin) / HOUR

    def moment(self, hours: FloatArray) -> IntArray:
        """Index of the price in force at each time."""
        return (np.searchsorted(self.hours, hours, side="right") - 1).astype(np.int64)

    def price(self, offers: IntArray, hours: FloatArray) -> FloatArray:
        """Dollars per accelerator-hour of each offer at each time."""
        return np.asarray(self.usd[offers, self.moment(hours)], dtype=np.float64)

    def paid(self, offers: IntArray, start: FloatArray, stop: FloatArray) -> FloatArray:
        """Dollars for an accelerator of each offer held from start to stop."""
        return self._paid_until(offers, stop) - self._paid_until(offers, start)

    def _paid_until(self, offers: IntArray, hours: FloatArray) -> FloatArray:
        at = self.moment(hours)
        total: FloatArray = self.paid_before[offers, at] + self.usd[offers, at] * (hours - self.hours[at])
        return total


def board_of(
    histories: Sequence[PriceSeries],
    machine: Callable[[Market], InstanceType],
    useful_share: Callable[[Market], float] = lambda _: 1.0,
) -> PriceBoard:
    """The board of the markets with prices over a common span; `machine` says what each market offers.

    Among all spans with prices from every cloud, it uses the one that maximizes (markets with prices throughout) x
    time, so that a market that began late or ended early does not shorten the span of all others.
    """
    begin, end = _common_span(histories)
    known = [series for series in histories if series.first <= begin and series.last >= end]
    windows = [series.window(begin, end) for series in known]
    changes = [window.times[1:][np.diff(window.prices) != 0] for window in windows]
    moments = np.unique(np.concatenate((np.array([begin], dtype=np.int64), *changes)))
    # A change at the very end would hold for no time.
    moments = moments[moments < end]
    offers = tuple(_offer(machine(series.market), series.market, useful_share(series.market)) for series in known)
    usd = np.array(
        [
            window.prices[np.searchsorted(window.times, moments, side="right") - 1]
            / (NANOS_PER_DOLLAR * offer.accelerators)
            for window, offer in zip(windows, offers, strict=True)
        ]
    )
    return PriceBoard(offers, begin, end, (moments - begin) / HOUR, usd)


def left_out(histories: Sequence[PriceSeries], board: PriceBoard) -> list[Market]:
    """The markets whose history does not cover the board."""
    held = {offer.market for offer in board.offers}
    return [series.market for series in histories if series.market not in held]


def _offer(machine: InstanceType, market: Market, useful_share: float) -> AcceleratorOffer:
    assert machine.accelerator is not None
    return AcceleratorOffer(market, machine.accelerator, machine.accelerators, useful_share)


def _common_span(histories: Sequence[PriceSeries]) -> tuple[int, int]:
    clouds = sorted({series.market.cloud for series in histories})
    begins = np.array([series.first for series in histories], dtype=np.int64)
    ends = np.array([series.last for series in histories], dtype=np.int64)
    cloud = np.array([clouds.index(series.market.cloud) for series in histories])
    best, span = 0.0, None
    for begin in np.unique(begins):
        candidates = np.unique(ends[(begins <= begin) & (ends > begin)])
        covers = (begins <= begin)[:, None] & (ends[:, None] >= candidates)
        whole = np.all([covers[cloud == code].any(axis=0) for code in range(len(clouds))], axis=0)
        areas = np.where(whole, covers.sum(axis=0) * (candidates - begin).astype(np.float64), 0.0)
        if areas.size and areas.max() > best:
            best, span = float(areas.max()), (int(begin), int(candidates[areas.argmax()]))
    if span is None:
        spans = ", ".join(
            f"{name} {format_time(int(begins[cloud == code].min()))} to {format_time(int(ends[cloud == code].max()))}"
            for code, name in enumerate(clouds)
        )
        raise TooLittleHistory(f"the price histories have no time in common: {spans or 'none is given'}")
    return span
