"""A fetch from RunPod, without a key: places become regions, and what is in stock becomes markets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pricing_data.errors import IncompleteAnswer, MissingCredentials
from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import ListPrices, disk
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from spotctl.clouds.doctor import Level
from spotctl.clouds.errors import NOT_KEPT
from spotctl.clouds.runpod import doctor
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.cloud import RunPodSettings, api_key
from spotctl.clouds.runpod.prices import RunPodSource
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from tests.servers.pulling import observed_events, pulled
from tests.servers.runpod_market import Stock
from tests.spotctl.clouds.runpod.world import BID, ONE, World
from tests.spotctl.command_line import spotctl

NOW = 1_800_000_000_000_000
H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture
def stocked(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv("RUNPOD_API_KEY")
    made.market.stocks += [
        Stock("CA", bid=0.12, price=0.34),
        Stock("US-TX-3", H100, "H100 SXM", 80, bid=None, price=2.99),
        Stock("US-TX-3", "AMD Instinct MI300X OAM", "MI300X", 192),
        Stock("US-TX-3", "NVIDIA A40", "A40", 48, free=0),
        Stock("US-TX-3", "NVIDIA L4", "L4", 24, cuda=12.4),
    ]
    return made


def fetched(made: World, *regions: str, community: bool = False) -> FetchedRows:
    with closing(RunPodCalls(made.server.url)) as calls:
        source = RunPodSource(calls, RunPodSettings(community=community))
        (task,) = source.tasks(FetchRequest(NOW - 1, NOW, regions))
        return FetchedRows.joined(task.pull())


def test_bids_and_prices_are_those_of_the_whole_pod(stocked: World) -> None:
    rows = fetched(stocked, "runpod-us-tx-3")
    bids = {str(event.market): event.price for event in observed_events(rows)}
    name = "runpod/runpod-us-tx-3/secure/{}xRTX_4090"
    no_bids = "runpod/runpod-us-tx-3/secure/{}xH100_SXM"
    assert bids == {
        **{name.format(count): 200_000_000 * count for count in (1, 2, 4, 8)},
        **{no_bids.format(count): 2_990_000_000 * count for count in (1, 2, 4, 8)},
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
    Path("job.yaml").write_text(
        "name: tune\nkind: command\nrun: python train.py\nhours: 4h\n"
        "resources: {clouds: [runpod], gpu: H100:1}\n"
    )
    assert spotctl("prices", "fetch", "--cloud", "runpod").code == 0
    (choice,) = spotctl("plan", "job.yaml", "--json").json["choice"]
    assert (choice["bid"], choice["beta"], choice["price"]) == (None, 0, 2.99)


def test_places_of_the_community_are_asked_for_where_a_setting_says_so(stocked: World) -> None:
    assert {price.region for price in fetched(stocked).on_demand} == {
        "runpod-us-tx-3",
        "runpod-eu-ro-1",
    }
    rows = fetched(stocked, "runpod-ca", community=True)
    (one, *_) = observed_events(rows)
    assert (one.market.zone, one.price) == ("community", 120_000_000)


def test_the_disk_has_a_list_price(stocked: World) -> None:
    lists = ListPrices(fetched(stocked).list_prices)
    cost = disk("runpod", "runpod-eu-ro-1", "container disk", 73, lists)
    assert cost == pytest.approx(73 * 0.10 / 730)


def test_a_row_that_cannot_be_read_is_named_and_the_others_are_kept(stocked: World) -> None:
    stocked.market.stocks[0].bid = -1.0
    with closing(RunPodCalls(stocked.server.url)) as calls:
        (task,) = RunPodSource(calls, RunPodSettings()).tasks(FetchRequest(NOW - 1, NOW))
        answer = pulled(task)
    assert isinstance(answer.error, IncompleteAnswer)
    assert "NVIDIA GeForce RTX 4090 in runpod-us-tx-3" in str(answer.error)
    read = {event.market for event in answer.observed if "4090" in event.market.instance_type}
    assert {market.region for market in read} == {"runpod-eu-ro-1"}
    assert {price.region for price in answer.all.on_demand} == {"runpod-us-tx-3", "runpod-eu-ro-1"}


def test_doctor_shows_the_account_and_its_credit(made: World, tmp_path: Path) -> None:
    settings = Settings(tmp_path, keys={"runpod_url": made.server.url})
    findings = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert {finding.level for finding in findings.values()} == {Level.GOOD}
    assert findings["credit"].detail == "$25.00"
    market = made.market
    market.rent(market.stocks[0], 8, 3.0, {})
    market.balance = 20.0
    findings = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert findings["credit"].is_bad
    assert findings["credit"].detail == "$20.00, of which $24.00 are spent in an hour"


def test_doctor_tells_a_wrong_key(
    made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "wrong")
    with pytest.raises(MissingCredentials, match="make a key"):
        list(doctor.findings(Settings(tmp_path, keys={"runpod_url": made.server.url}), NOT_KEPT))


def test_the_key_is_read_from_where_the_official_clients_write_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    assert api_key() is None
    (tmp_path / ".runpod").mkdir()
    path = tmp_path / ".runpod" / "config.toml"
    for written in ('[default]\napi_key = "rpa_1"\n', 'apikey = "rpa_1"\n'):
        path.write_text(written)
        assert api_key() == "rpa_1"
    path.write_text("[default\n")
    with pytest.raises(BadRequest, match=r"config\.toml"):
        api_key()


def test_a_disk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more in disk_gib"):
        RunPodSettings(disk_gib=0)


def test_a_market_is_read_back(stocked: World) -> None:
    rows = fetched(stocked, "runpod-us-tx-3")
    markets = {event.market for event in observed_events(rows)}
    assert ONE in markets
    assert {Market.parse(str(market)) for market in markets} == markets
    assert min(event.price for event in observed_events(rows)) < BID
