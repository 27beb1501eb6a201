"""Markets that are made of the offers of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import CloudError, IncompleteAnswer
from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import ListPrices, disk
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from spotctl.clouds.vast.calls import VastCalls
from spotctl.clouds.vast.cloud import VastSettings
from spotctl.clouds.vast.prices import BIDS, VastSource
from tests.servers.loopback import LoopbackServer
from tests.servers.pulling import observed_events
from tests.servers.vast import Vast
from tests.spotctl.clouds.vast.test_prices import NOW, pulled

ONE = Market("vast", "vast-us", "verified", "1xRTX_4090")


def test_the_price_of_a_market_is_the_lower_quartile_of_its_hosts_bids(source: VastSource) -> None:
    rows = pulled(source, BIDS)
    prices = {event.market: event.price for event in observed_events(rows)}
    large = Market("vast", "vast-de", "verified", "8xH100_SXM")
    assert prices == {ONE: 120_000_000, large: 1_200_000_000}
    types = {kind.name: kind for kind in rows.types}
    assert (types["1xRTX_4090"].accelerator, types["1xRTX_4090"].accelerators) == ("RTX4090", 1)
    assert (
        types["8xH100_SXM"].accelerator,
        types["8xH100_SXM"].vcpus,
        types["8xH100_SXM"].memory_gib,
    ) == (
        "H100",
        32,
        64.0,
    )
    assert types["8xH100_SXM"].traits.accelerator_gib == 80


def test_the_disk_of_a_host_costs_what_the_list_of_its_country_says(source: VastSource) -> None:
    lists = ListPrices(pulled(source, BIDS).list_prices)
    assert disk("vast", "vast-us", "storage", 72, lists) == pytest.approx(72 * 0.15 / 720)
    assert disk("vast", "vast-de", "storage", 72, lists) == pytest.approx(72 * 0.2 / 720)


def test_hosts_that_are_not_verified_have_a_zone_of_their_own(
    server: LoopbackServer, tmp_path: Path
) -> None:
    calls = VastCalls(server.url)
    rows = pulled(VastSource(calls, VastSettings(unverified=True), tmp_path), BIDS)
    assert {event.market.zone for event in observed_events(rows)} == {"verified", "unverified"}
    calls.close()


def test_an_offer_that_cannot_be_read_is_named_and_the_others_are_kept(
    source: VastSource, api: Vast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.market.hosts[0], "gpu_floor", -1.0)
    (task,) = [task for task in source.tasks(FetchRequest(NOW - 1, NOW)) if task.what == BIDS]
    steps, failure = [], None
    try:
        for rows in task.pull():
            steps.append(rows)  # noqa: PERF402 - keeps the rows before the failure
    except CloudError as error:
        failure = error
    assert len(FetchedRows.joined(steps).prices) == 2
    assert isinstance(failure, IncompleteAnswer)
    assert "a price of 0.0" in str(failure)
