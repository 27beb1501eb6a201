"""What is unknown is not safe; and GCP's preemptible machines end after a day."""

from __future__ import annotations

from math import inf

import pytest

from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.regime import PRIOR, in_force
from bidbrain.eviction.survival import Exposure
from bidbrain.replay.market import DrawnLives, Mortality
from pricing_data.market import Market
from pricing_data.units import HOUR, parse_time

THEN, LATER = parse_time("2016-03-01"), parse_time("2024-03-01")
KNOWN = Hazard((), Exposure(20.0, 1000.0))


def market(cloud: str) -> Market:
    return Market(cloud, "us-east-1", "-", "n1-standard-8")


@pytest.mark.parametrize(
    ("cloud", "at", "kind"),
    [
        ("aws", THEN, None),
        ("aws", LATER, "prior"),
        ("gcp", LATER, "prior"),
        ("azure", LATER, "prior"),
        ("local", LATER, None),
    ],
)
def test_without_a_record_a_prior_stands_in_where_capacity_evicts(cloud: str, at: int, kind: str | None) -> None:
    found = in_force(market(cloud), None, at)
    assert (None if found is None else found.kind) == kind


def test_the_prior_is_wide_and_a_record_replaces_it() -> None:
    middle, low, high = PRIOR.rate
    assert low < middle / 100 < middle < 4 * middle < high
    found = in_force(market("aws"), KNOWN, LATER)
    assert found is not None
    assert (found.kind, found.rate) == ("observed", KNOWN.rate)


@pytest.mark.parametrize(("at", "limit"), [(parse_time("2020-03-01"), 24.0), (LATER, inf)])
def test_preemptible_machines_of_gcp_end_after_a_day(at: int, limit: float) -> None:
    found = in_force(market("gcp"), KNOWN, at)
    assert found is not None
    assert found.longest_life == limit
    died = DrawnLives({market("gcp"): Mortality(1e-9, longest=limit)}, 1).evicted_at(market("gcp"), at)
    assert died is not None
    assert (died - at <= 24 * HOUR) is (limit == 24.0)
