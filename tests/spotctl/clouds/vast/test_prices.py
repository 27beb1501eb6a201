"""A fetch from Vast.ai: hosts become markets, and each fetch is a snapshot that is kept."""

from __future__ import annotations

import pytest

from pricing_data.errors import RateLimited
from pricing_data.fetched_rows import FetchedRows
from pricing_data.sources.base import FetchRequest
from spotctl.clouds.vast.prices import BIDS, ON_DEMAND, VastSource
from tests.servers.loopback import Fault, LoopbackServer, Reply
from tests.servers.pulling import observed_events
from tests.servers.vast import Vast

NOW = 1_800_000_000_000_000


def pulled(source: VastSource, what: str, *regions: str, at: int = NOW) -> FetchedRows:
    (task,) = [
        task for task in source.tasks(FetchRequest(NOW - 1, at, regions)) if task.what == what
    ]
    return FetchedRows.joined(task.pull())


def test_prices_on_demand_are_those_of_hosts(source: VastSource) -> None:
    listed = {
        (price.region, price.instance_type): price.price
        for price in pulled(source, ON_DEMAND).on_demand
    }
    assert listed == {
        ("vast-us", "1xRTX_4090"): 320_000_000,
        ("vast-de", "8xH100_SXM"): 3_200_000_000,
    }


def test_only_the_wanted_regions_are_stored(source: VastSource) -> None:
    assert {event.market.region for event in observed_events(pulled(source, BIDS, "vast-de"))} == {
        "vast-de"
    }


def test_a_quota_that_lasts_for_hours_is_told_at_once(source: VastSource, api: Vast) -> None:
    api.rows_a_day = 3
    with pytest.raises(
        RateLimited, match=r"Daily search quota exceeded; try again in \d+\.\d hours"
    ):
        pulled(source, BIDS)


def test_a_call_that_came_too_early_is_repeated_and_later_ones_wait(
    source: VastSource, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = list[float]()
    monkeypatch.setattr("spotctl.clouds.vast.calls.time.sleep", slept.append)
    early = Reply.of_json({"detail": "API requests too frequent endpoint threshold=6.0"}, 429)
    server.faults.append(Fault("bundles", early))
    pulled(source, BIDS)
    pulled(source, ON_DEMAND)
    assert len([request for request in server.requests if "bundles" in request.path]) == 3
    assert [pause for pause in slept if pause > 5] == [
        6.0,
        pytest.approx(6.0, abs=1),
        pytest.approx(12.0, abs=2),
    ]
