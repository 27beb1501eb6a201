"""The machine of a first launch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pricing_data.catalog import Catalog, InstanceType
from pricing_data.library import Selection
from pricing_data.market import Market
from spotctl.home.errors import BadRequest
from spotctl.run.start.trial import smallest_type, trial_job

TYPES = (
    InstanceType("aws", "t3.nano", 1, 0.5),
    InstanceType("aws", "c6i.large", 2, 4.0),
    InstanceType("aws", "c6a.large", 2, 4.0),
    InstanceType("aws", "p3.small", 1, 8.0, "V100", 1),
    InstanceType("aws", "m6i.large", 2, 8.0),
)


def library(*names: str) -> Any:  # noqa: ANN401 - what a trial asks of a library
    markets = [Market("aws", "us-east-1", "us-east-1a", name) for name in names]
    catalog = Catalog(TYPES, ())

    def select(chosen: Selection) -> list[Market]:
        return [one for one in markets if chosen.matches(one, catalog)]

    return SimpleNamespace(catalog=catalog, select=select)


def test_the_smallest_machine_that_can_run_the_agent_is_chosen(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    known = library(*(one.name for one in TYPES), "x9.unknown")
    assert smallest_type("aws", ["us-east-1"], known) == "c6a.large"
    spec = trial_job("aws", ["us-east-1"], known, tmp_path)
    assert (spec.name, spec.budget, spec.resources.regions) == ("try-aws", 10**9, ("us-east-1",))
    assert spec.resources.types == ("c6a.large",)


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_without_prices_it_says_how_to_fetch_them(region: str) -> None:
    known = library("t3.nano", *(["c6a.large"] if region != "us-east-1" else []))
    with pytest.raises(BadRequest, match=f"spotctl prices fetch --cloud aws --region {region}"):
        smallest_type("aws", [region], known)
