"""The tables of chapter 6 from synthetic prices, and the one that the paper's own price
reproduces."""

from __future__ import annotations

import pytest

from bidbrain.lab.gavel.movement import Movement
from bidbrain.lab.gavel.pricing.analysis import (
    LIST_TARIFFS_2020,
    JobType,
    PricedJob,
    claims,
    effective_prices,
    mean_usd,
    speedups,
    spot_discounts,
    transfers,
)
from bidbrain.lab.gavel.pricing.strategies import AcceleratorOffer, PriceBoard, board_of
from pricing_data.market import Market
from tests.bidbrain.lab.gavel.markets import machine
from tests.bidbrain.lab.gavel.pricing.test_strategies import series


def board() -> PriceBoard:
    return board_of(
        [
            series("aws/us-east-1/a/V100x1", [0, 5, 10], [3, 1, 1]),
            series("aws/us-east-1/b/V100x1", [0, 10], [2, 2]),
            series("aws/us-east-1/b/K80x8", [0, 10], [4, 4]),
            series("azure/eastus/-/P100x1", [0, 10], [0.8, 0.8]),
        ],
        machine,
    )


def test_at_918_thousandths_of_a_dollar_transfers_cost_what_the_paper_prints() -> None:
    found = transfers(0.918, LIST_TARIFFS_2020["aws"])
    assert [one.what for one in found] == [
        "ResNet-50: dataset",
        "ResNet-50: checkpoint",
        "BERT-Base: dataset",
        "BERT-Base: checkpoint",
    ]
    assert [round(one.found, 4 if "checkpoint" in one.what else 2) for one in found] == [
        9.13,
        0.006,
        0.98,
        0.025,
    ]
    assert [one.paper for one in found] == pytest.approx([9.13, 0.006, 0.98, 0.025])


def test_the_mean_price_follows_the_cheapest_offer() -> None:
    assert mean_usd(board(), lambda offer: offer.accelerator == "V100") == 1.5
    assert mean_usd(board(), lambda offer: offer.accelerator == "K80") == 0.5
    assert mean_usd(board(), lambda offer: offer.accelerator == "H100") is None


def test_speedups_are_over_the_k80_and_per_dollar() -> None:
    jobs = [
        JobType("ResNet-50 (batch size 16)", {"k80": 2.0, "p100": 8.0, "v100": 12.0}),
        JobType("X", {"k80": 1.0}),
    ]
    found = {one.what: (one.found, one.paper, one.case) for one in speedups(jobs, board())}
    case = "ResNet-50 (batch size 16)"
    assert found == {
        "ResNet-50, P100 over K80: throughput": (4.0, 3.7, case),
        "ResNet-50, P100 over K80: per dollar": (4.0 * 0.5 / 0.8, 1.1, case),
        "ResNet-50, V100 over K80: throughput": (6.0, 9.6, case),
        "ResNet-50, V100 over K80: per dollar": (6.0 * 0.5 / 1.5, 1.8, case),
    }


def test_a_discount_is_the_best_of_a_region_on_machines_with_one_accelerator() -> None:
    markets = [
        Market.parse(f"aws/us-east-1/{zone}/V100x{count}")
        for zone, count in (("a", 1), ("b", 1), ("c", 4))
    ]
    offers = [
        AcceleratorOffer(market, "V100", count)
        for market, count in zip(markets, (1, 1, 4), strict=True)
    ]
    unlisted = AcceleratorOffer(Market.parse("gcp/r/-/V100x1"), "V100", 1)
    found = spot_discounts(
        dict(zip([*offers, unlisted], (1.0, 2.0, 0.1, 0.5), strict=True)),
        lambda market: None if market.cloud == "gcp" else 4.0,
    )
    assert [(one.what, one.found, one.paper) for one in found] == [
        ("aws/us-east-1 V100: on-demand over spot", 4.0, 3.3)
    ]


def test_effective_prices_count_evictions_and_the_dataset() -> None:
    on = board_of(
        [series("aws/r/a/V100x1", [0, 10], [2, 2]), series("azure/s/-/V100x1", [0, 10], [1, 1])],
        machine,
        lambda market: 0.5 if market.cloud == "azure" else 1.0,
    )
    movement = Movement(0.1, 100.0, frozenset({"aws"}), 0.1, LIST_TARIFFS_2020)
    found = {one.cloud: one for one in effective_prices(on, movement, 90.0)}
    assert (found["aws"].effective_usd_per_hour, found["aws"].usd_with_data) == (2, 2)
    assert (found["azure"].usd_per_hour, found["azure"].effective_usd_per_hour) == (1, 2)
    assert found["azure"].usd_with_data == pytest.approx(2 + 9 / 90)


def test_claims_are_about_the_models_of_the_paper() -> None:
    def one(job: str, days: float, strategy: str, usd: float, moves: int = 0) -> PricedJob:
        return PricedJob(job, days, strategy, 5, usd, 12 / usd, 96, moves, moves, 0.0, {})

    found = claims(
        [
            one("A3C", 4, "multi-cloud", 6.0),
            one("A3C", 4, "dynamic", 4.0, 2),
            one("CycleGAN", 4, "multi-cloud", 5.0),
            one("CycleGAN", 4, "dynamic", 5.0, 1),
            one("CycleGAN", 7, "multi-cloud", 16.0),
            one("CycleGAN", 7, "dynamic", 8.0, 3),
            one("Other", 4, "multi-cloud", 9.0),
            one("Other", 4, "dynamic", 1.0, 9),
        ]
    )
    assert [(each.found, each.paper, each.case) for each in found] == [
        (3.0, 3.5, "A3C"),
        (2.0, 1.4, ""),
        (3.0, 3.0, ""),
    ]
    assert claims([one("Other", 4, "dynamic", 1.0)]) == []
