"""The next hour of a market as it looks now: `NextHour` for several hazards, and the one that fits the moment.

A bid that is crossed k times as fast as usual survives with the k-th power of the usual curve. The figures of such
curves are computed once for a few k, and interpolated at each decision.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import BillingRule
from bidbrain.eviction.path import PricePath
from bidbrain.eviction.present import MOST_DOUBLINGS, PresentRisk
from bidbrain.strategies.base import Decision, Situation, Strategy
from bidbrain.strategies.lookahead_hour import DISTANCES, NextHour, hour_of, survival_curve
from pricing_data.market import Market
from pricing_data.series import PriceSeries

# Every fifth distance: in between, bids differ little.
_ASKED = np.arange(0, DISTANCES.size, 5)
_SPREAD: Floats = np.array([np.interp(np.arange(DISTANCES.size), _ASKED, row) for row in np.eye(_ASKED.size)])
_LEVELS: Floats = np.linspace(-MOST_DOUBLINGS, MOST_DOUBLINGS, 7)


@dataclass(frozen=True, slots=True, eq=False)
class PresentHours:
    """The figures of `NextHour` by market: levels of risk, then figures, then distances."""

    risk: PresentRisk
    figures: Mapping[Market, Floats]

    @classmethod
    def of(
        cls, histories: Mapping[Market, PriceSeries], billing: BillingRule, startup_hours: float
    ) -> "PresentHours | None":
        """From the past of markets where only the price evicts; None if it tells no more than the usual shares."""
        curves = {market: survival_curve(history) for market, history in histories.items()}
        paths = {market: PricePath(history) for market, history in histories.items()}
        shares = {market: 1 - curve[_ASKED, -1] for market, curve in curves.items()}
        risk = PresentRisk.of(paths, DISTANCES[_ASKED], shares)
        if risk is None:
            return None
        figures = {
            market: np.array([_figures(hour_of(curve**power, billing, startup_hours)) for power in 2.0**_LEVELS])
            for market, curve in curves.items()
        }
        return cls(risk, figures)

    def at(self, market: Market, path: PricePath, now: int) -> NextHour:
        """The next hour of a market at a moment."""
        doublings = self.risk.doublings(market, path, now) @ _SPREAD
        place = (doublings + MOST_DOUBLINGS) * ((_LEVELS.size - 1) / (2 * MOST_DOUBLINGS))
        low = np.minimum(place.astype(np.int64), _LEVELS.size - 2)
        more, figures, each = place - low, self.figures[market], np.arange(DISTANCES.size)
        figures_now = (1 - more)[:, None] * figures[low, :, each] + more[:, None] * figures[low + 1, :, each]
        return NextHour(*figures_now.T)


@dataclass(frozen=True, slots=True)
class InThePresent:
    """A strategy that is given the next hour as it looks at the moment of each decision.

    `make` builds it for such hours. Where the past of a market is not known, `usual` decides.
    """

    usual: Strategy
    hours: PresentHours
    make: Callable[[Mapping[Market, NextHour]], Strategy]

    @property
    def name(self) -> str:
        return self.usual.name

    def decide(self, situation: Situation) -> Decision:
        """The decision with the odds of now."""
        now = dict[Market, NextHour]()
        for market in self.hours.figures:
            path = situation.path(market)
            if path is None:
                return self.usual.decide(situation)
            now[market] = self.hours.at(market, path, situation.now)
        return self.make(now).decide(situation)


def _figures(hour: NextHour) -> list[Floats]:
    return [hour.survival, hour.alive, hour.useful, hour.paid_new, hour.paid_old]
