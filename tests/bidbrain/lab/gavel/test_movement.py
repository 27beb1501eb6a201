"""Effective prices against hand-solved cases, numerical integrals and the published table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.cost import BadEffectivePrice, EvictionLoss, effective_usd_per_hour
from bidbrain.lab.gavel.movement import EgressTariff, Movement
from bidbrain.lab.gavel.pricing_tables import LIST_TARIFFS_2020
from pricing_data.market import Market

HOURS = st.floats(0.0, 2.0)


def work_of_a_life(life: float, evictions: EvictionLoss) -> float:
    """The lasting work of one life, step by step."""
    left = life - evictions.startup_hours
    if evictions.warned:
        return max(0.0, left - evictions.checkpoint_hours)
    done = 0.0
    while left >= evictions.checkpoint_every_hours + evictions.checkpoint_hours:
        left -= evictions.checkpoint_every_hours + evictions.checkpoint_hours
        done += evictions.checkpoint_every_hours
    return done


@pytest.mark.parametrize("warned", [True, False])
@pytest.mark.parametrize(
    ("rate", "startup", "every", "writing"), [(0.5, 0.1, 0.25, 0.02), (3.0, 0.0, 0.1, 0.05)]
)
def test_the_useful_share_is_that_of_many_lives(
    rate: float, startup: float, every: float, writing: float, *, warned: bool
) -> None:
    evictions = EvictionLoss(rate, startup, every, writing, warned)
    lives = -np.log1p(-(np.arange(20_000) + 0.5) / 20_000) / rate
    worked = sum(work_of_a_life(float(life), evictions) for life in lives)
    assert evictions.useful_share == pytest.approx(worked / lives.sum(), rel=5e-3)


def test_without_evictions_only_the_writing_is_lost() -> None:
    assert EvictionLoss(0.0, 1.0, 0.25, 0.05, warned=False).useful_share == pytest.approx(
        0.25 / 0.3
    )
    assert EvictionLoss(0.0, 1.0).useful_share == 1.0
    rare = EvictionLoss(1e-9, 1.0, 0.25, 0.05, warned=False).useful_share
    assert rare == pytest.approx(0.25 / 0.3, rel=1e-6)


@given(st.floats(0.0, 50.0), HOURS, st.floats(0.01, 5.0), HOURS, st.booleans())
def test_the_useful_share_is_between_0_and_1_and_falls_with_evictions(
    rate: float, startup: float, every: float, writing: float, warned: bool
) -> None:
    share = EvictionLoss(rate, startup, every, writing, warned).useful_share
    more = EvictionLoss(rate + 0.1, startup, every, writing, warned).useful_share
    assert 0 <= more <= share <= 1


def test_egress_is_paid_by_tier() -> None:
    tariff = EgressTariff(((1, 0.0), (10, 0.1), (float("inf"), 0.05)), 0.02, 0.01)
    assert tariff.internet_usd(0.5) == 0
    assert tariff.internet_usd(11) == pytest.approx(0.9 + 0.05)
    assert tariff.internet_usd(3, after_gb=9) == pytest.approx(0.1 + 2 * 0.05)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.sampled_from(sorted(LIST_TARIFFS_2020)))
def test_egress_in_two_parts_costs_the_same_as_at_once(
    first: float, second: float, cloud: str
) -> None:
    tariff = LIST_TARIFFS_2020[cloud]
    parts = tariff.internet_usd(first) + tariff.internet_usd(second, after_gb=first)
    assert tariff.internet_usd(first + second) == pytest.approx(parts, abs=1e-6)


def test_a_dataset_moves_once_per_cloud_and_a_checkpoint_by_distance() -> None:
    movement = Movement(2.0, 100.0, frozenset({"aws"}), 0.1, LIST_TARIFFS_2020)
    east, west = (
        Market.parse(f"aws/us-{side}-1/us-{side}-1a/p3.2xlarge") for side in ("east", "west")
    )
    beside = Market.parse("aws/us-east-1/us-east-1b/p3.2xlarge")
    azure = Market.parse("azure/eastus/-/Standard_NC6s_v3")
    costs = [movement.checkpoint_usd(east, target) for target in (east, beside, west, azure)]
    assert costs == pytest.approx([0.0, 0.02, 0.04, 0.18])
    assert movement.checkpoint_usd(azure, east) == pytest.approx(2 * 0.087)
    assert movement.dataset_usd("aws") == 0
    assert movement.dataset_usd("azure") == pytest.approx(9.0)
    assert movement.dataset_usd("azure", {"azure"}) == 0
    # Once it is on Azure, the cheaper of the two clouds sends it on.
    assert movement.dataset_usd("gcp", {"azure"}) == pytest.approx(8.7)
    with pytest.raises(BadEffectivePrice, match="no egress tariff for cloud 'local'"):
        movement.checkpoint_usd(Market.parse("local/a/b/c"), east)


def test_an_effective_price_includes_evictions_and_transfers() -> None:
    assert effective_usd_per_hour(1.0, 0.8) == 1.25
    assert effective_usd_per_hour(1.0, 0.8, moved_usd=5.0, hours=10) == 1.75
    with pytest.raises(BadEffectivePrice, match="useful share 0"):
        effective_usd_per_hour(1.0, 0.0)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: EvictionLoss(-1.0),
        lambda: EvictionLoss(float("nan")),
        lambda: EvictionLoss(1.0, checkpoint_every_hours=0.0),
        lambda: Movement(1.0, -1.0, frozenset({"aws"}), 0.0, LIST_TARIFFS_2020),
        lambda: Movement(1.0, 1.0, frozenset(), 0.0, LIST_TARIFFS_2020),
        lambda: effective_usd_per_hour(1.0, 1.0, 1.0, 0.0),
    ],
)
def test_invalid_inputs_are_refused(bad: object) -> None:
    assert callable(bad)
    with pytest.raises(BadEffectivePrice):
        bad()
