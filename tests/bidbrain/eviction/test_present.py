"""Risk given the present: it follows what prices did lately, and nothing later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.eviction.path import PricePath
from bidbrain.eviction.present import PresentRisk
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR
from tests.bidbrain.eviction.worlds import START, flat, moody

DISTANCES = np.array([0, 10_000, 30_000, 80_000], dtype=np.int64)
DAYS = 12


def learned(*histories: PriceSeries) -> PresentRisk | None:
    paths = {one.market: PricePath(one) for one in histories}
    return PresentRisk.of(
        paths, DISTANCES, {one.market: CrossingHistory(one, HOUR).betas(DISTANCES) for one in histories}
    )


def world(days: int = DAYS + 4) -> PriceSeries:
    return moody(np.random.default_rng(5), "a", days)


@pytest.fixture(scope="module")
def risk() -> PresentRisk:
    found = learned(world().window(START, START + DAYS * DAY))
    assert found is not None
    return found


def test_it_predicts_later_crossings_better_than_the_usual_share(risk: PresentRisk) -> None:
    later = world()
    moments = START + DAYS * DAY + np.arange(0, 3 * DAY, HOUR // 2, dtype=np.int64)
    path = PricePath(later)
    held = path.series.prices[path.index_at(moments)]
    crossed = path.highest_after(moments, HOUR)[:, None] > held[:, None] + DISTANCES
    found = risk.probabilities(later.market, path, moments)
    usual = risk.shares[later.market]
    assert ((found - crossed) ** 2).mean() < 0.9 * ((usual - crossed) ** 2).mean()
    assert np.all(np.diff(found, axis=1) <= 0)


def test_restless_hours_are_riskier_than_usual_and_calm_ones_safer(risk: PresentRisk) -> None:
    later = world()
    path = PricePath(later)
    moments = [START + DAYS * DAY + hour * HOUR for hour in range(72)]
    moves = [np.count_nonzero(np.diff(later.window(at - HOUR, at).prices)) for at in moments]
    doublings = [float(risk.doublings(later.market, path, at)[1]) for at in moments]
    calm = [one for one, many in zip(doublings, moves, strict=True) if many == 0]
    wild = [one for one, many in zip(doublings, moves, strict=True) if many >= 4]
    assert np.mean(calm) < 0 < np.mean(wild)


@pytest.mark.parametrize("hour", [0, 7, 40])
def test_later_prices_change_nothing(risk: PresentRisk, hour: int) -> None:
    now = START + DAYS * DAY + hour * HOUR
    whole = world()
    changed = replace(whole, prices=np.where(whole.times > now, 5_000_000, whole.prices))
    cut = whole.window(START, now)
    found = [risk.doublings(whole.market, PricePath(one), now).tolist() for one in (whole, changed, cut)]
    assert found[0] == found[1] == found[2]


def test_without_crossings_or_with_a_short_past_there_is_no_model() -> None:
    assert learned(world(3)) is None
    assert learned(flat("a", DAYS)) is None
