"""Stated odds hold in markets that no figure of the estimate comes from."""

from __future__ import annotations

import pytest

from bidbrain.lab.bids.market import Assumptions
from bidbrain.lab.bids.results import TriedBid, bands, scores, tried_bids


def test_odds_of_a_busy_market_are_about_what_is_seen_and_better_than_its_share() -> None:
    tried = [
        each
        for seed in range(12)
        for each in tried_bids("busy", Assumptions(rivals=0.25), seed, 12)
    ]
    (score,) = scores(tried)
    assert score.bids == len(tried) == 144
    assert score.outbid_stated == pytest.approx(score.outbid_seen, abs=0.07)
    assert score.skill > 0.1


def test_displacements_are_seen_apart_from_higher_bids() -> None:
    rush = Assumptions(rivals=0.0, on_demand=0.12, on_demand_stays=2.0)
    tried = [each for seed in range(6) for each in tried_bids("rush", rush, seed, 12)]
    (score,) = scores(tried)
    assert score.outbid_seen == 0
    assert score.outbid_stated < 0.03
    assert score.displaced_stated == pytest.approx(score.displaced_seen, abs=0.08)
    assert score.displaced_seen > 0.05


def test_scores_and_bands_of_four_bids() -> None:
    tried = [
        TriedBid("a", 0.04, 0.1, outbid=False, displaced=False),
        TriedBid("a", 0.04, 0.1, outbid=False, displaced=True),
        TriedBid("b", 0.6, 0.0, outbid=True, displaced=False),
        TriedBid("b", 0.6, 0.0, outbid=False, displaced=False),
    ]
    first, second, whole = scores(tried)
    assert [first.brier, second.brier] == pytest.approx([0.0016, 0.26])
    assert (whole.market, whole.outbid_seen, whole.displaced_seen) == ("all", 0.25, 0.25)
    assert whole.skill == pytest.approx(1 - (0.0016 + 0.26) / 2 / (0.25 * 0.75))
    assert [(band.low, band.bids, band.seen) for band in bands(tried)] == [
        (0.0, 2, 0.0),
        (0.5, 2, 0.5),
    ]
