"""A fetch from RunPod, without a key: places become regions, and what is in stock becomes markets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.list_prices import ListPrices, disk
from pricing_data.market import Market
from tests.servers.pulling import observed_events
from tests.servers.runpod_market import Stock
from tests.spotctl.clouds.runpod.world import BID, H100, ONE, World, fetched
from tests.spotctl.command_line import spotctl


def test_bids_and_prices_are_those_of_the_whole_pod(stocked: World) -> None:
    rows = fetched(stocked, "runpod-us-tx-3")
    bids = {str(event.market): event.price for event in observed_events(rows)}
    name = "runpod/runpod-us-tx-3/secure/{}xRTX_4090"
    no_bids = "runpod/runpod-us-tx-3/secure/{}xH100_SXM"
    assert bids == {
        **{name.format(count): 200_000_000 * count for count in (1, 2, 4, 8)},
        **{no_bids.format(count): 2_990_000_000 * count + 1 for count in (1, 2, 4, 8)},
    }
    fixed = {price.instance_type: price.price for price in rows.on_demand}
    assert fixed["8xH100_SXM"] == 23_920_000_000
    assert fixed["1xRTX_4090"] == 690_000_000
    # None of another vendor, out of stock, or with a driver that is too old for the image.
    assert {name.partition("x")[2] for name in fixed} == {"RTX_4090", "H100_SXM"}
    (kind,) = {kind for kind in rows.types if kind.name == "8xH100_SXM"}
    assert (kind.accelerator, kind.accelerators, kind.traits.accelerator_gib) == ("H100", 8, 80)


def test_what_takes_no_bids_is_planned_on_demand(
    stocked: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public lists of prices have the same price for both by now."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RUNPOD_API_BASE_URL", stocked.server.url)
    stocked.market.stocks[:] = [Stock("US-TX-3", H100, "H100 SXM", 80, bid=None, price=2.99)]
    job = (
        "name: tune\nkind: command\nrun: python train.py\nhours: 4h\n"
        "resources: {clouds: [runpod], gpu: H100:1}\n"
    )
    assert spotctl("prices", "fetch", "--cloud", "runpod").code == 0
    for strategy in ("auto", "tierml", "lookahead"):
        Path("job.yaml").write_text(f"{job}strategy: {strategy}\n")
        (choice,) = spotctl("plan", "job.yaml", "--json").json["choice"]
        assert (choice["bid"], choice["beta"], choice["price"]) == (None, 0, 2.99)


def test_the_disk_has_a_list_price(stocked: World) -> None:
    lists = ListPrices(fetched(stocked).list_prices)
    cost = disk("runpod", "runpod-eu-ro-1", "container disk", 73, lists)
    assert cost == pytest.approx(73 * 0.10 / 730)


def test_a_market_is_read_back(stocked: World) -> None:
    rows = fetched(stocked, "runpod-us-tx-3")
    markets = {event.market for event in observed_events(rows)}
    assert ONE in markets
    assert {Market.parse(str(market)) for market in markets} == markets
    assert min(event.price for event in observed_events(rows)) < BID
