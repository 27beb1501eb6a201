"""Ways of bidding, summed up and compared."""

from __future__ import annotations

import pytest

from bidbrain.lab.bids.backtest import WAYS
from bidbrain.lab.bids.market import Assumptions, GeneratedMarket
from bidbrain.lab.bids.results import BidPortion, play_portion, summarize
from tests.bidbrain.lab.bids.test_market import BUSY, TERMS, USD


@pytest.mark.parametrize(
    "assumed", [BUSY, Assumptions(on_demand=0.2, hosts=3), Assumptions(rivals=0.2, swing=1.0)]
)
def test_every_way_ends_in_every_market_and_none_beats_the_lowest_floor(
    assumed: Assumptions,
) -> None:
    played, tried = play_portion(BidPortion("one", assumed, 7, 4.0, TERMS, WAYS))
    assert not tried
    floor = min(host.floor for host in GeneratedMarket(assumed, 7, 1).hosts) / USD
    assert len({(each.way, each.costs) for each in played}) == 2 * len(WAYS)
    for each in played:
        assert each.outcome.finished
        assert each.usd > 4 * floor
        assert each.outcome.cleared <= each.outcome.paid + 1e-9


def test_the_summary_pairs_the_jobs_of_a_seed() -> None:
    played = [
        each
        for seed in range(2)
        for each in play_portion(BidPortion("calm", Assumptions(), seed, 4.0, TERMS, ()))[0]
    ]
    summaries = {(each.way, each.costs): each for each in summarize(played)}
    own, dear = summaries["bidbrain", "its bid"], summaries["on-demand", "its bid"]
    assert (own.saved, own.saved_low, own.saved_high) == (0, 0, 0)
    assert dear.cost_pct == dear.with_time_pct == 100
    assert dear.saved > 0


def test_markets_are_summed_up_together_and_jobs_are_paired_in_each() -> None:
    markets = {"calm": Assumptions(), "busy": BUSY}
    portions = [
        BidPortion(name, assumed, seed, 4.0, TERMS, ())
        for name, assumed in markets.items()
        for seed in range(2)
    ]
    summaries = list(summarize([each for portion in portions for each in play_portion(portion)[0]]))
    assert [each.market for each in summaries] == ["calm"] * 4 + ["busy"] * 4 + ["all"] * 4
    one, other, both = summaries[::4]
    assert (one.way, both.jobs) == ("on-demand", 4)
    assert both.outbid == one.outbid == other.outbid == 0
    assert both.saved_low < both.saved < both.saved_high
