"""A fetch from Vast.ai: hosts become markets, and each fetch is a snapshot that is kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.errors import CloudError, IncompleteAnswer, MissingCredentials, RateLimited
from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import ListPrices, disk
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from spotctl.clouds.doctor import Level
from spotctl.clouds.errors import NOT_KEPT
from spotctl.clouds.vast import doctor
from spotctl.clouds.vast.calls import VastCalls
from spotctl.clouds.vast.cloud import VastSettings, required_key
from spotctl.clouds.vast.prices import BIDS, ON_DEMAND, VastSource
from spotctl.home.config import Settings
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.servers.pulling import observed_events
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Host, VastMarket

NOW = 1_800_000_000_000_000
ONE = Market("vast", "vast-us", "verified", "1xRTX_4090")


def hosts() -> list[Host]:
    return [
        *(
            Host(number, gpu_floor=0.1 + number / 100, gpu_price=0.3 + number / 100)
            for number in range(1, 9)
        ),
        Host(
            20,
            gpu="H100 SXM",
            gpus=8,
            country="DE",
            gpu_ram_mb=81_559,
            cpu_cores=96,
            ram_mb=900_000,
            storage=0.2,
        ),
        Host(21, verified=False),
        Host(22, gpus=3, cpu_cores=64, ram_mb=256_000),
        Host(23, cpu_cores=2),
        Host(24, reliability=0.8),
        Host(25, storage=9.0),
        Host(26, lasts_seconds=3600.0),
    ]


@pytest.fixture
def api() -> Vast:
    return Vast(VastMarket(hosts()))


@pytest.fixture
def server(api: Vast, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setenv("VAST_API_KEY", KEY)
    with serving(api) as server:
        yield server


@pytest.fixture
def source(server: LoopbackServer, tmp_path: Path) -> Iterator[VastSource]:
    calls = VastCalls(server.url)
    yield VastSource(calls, VastSettings(), tmp_path / "offers")
    calls.close()


def pulled(source: VastSource, what: str, *regions: str, at: int = NOW) -> FetchedRows:
    (task,) = [
        task for task in source.tasks(FetchRequest(NOW - 1, at, regions)) if task.what == what
    ]
    return FetchedRows.joined(task.pull())


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


def test_prices_on_demand_are_those_of_hosts(source: VastSource) -> None:
    listed = {
        (price.region, price.instance_type): price.price
        for price in pulled(source, ON_DEMAND).on_demand
    }
    assert listed == {
        ("vast-us", "1xRTX_4090"): 320_000_000,
        ("vast-de", "8xH100_SXM"): 3_200_000_000,
    }


def test_each_fetch_is_kept_as_a_snapshot(source: VastSource, tmp_path: Path, api: Vast) -> None:
    pulled(source, BIDS)
    api.market.outbid(api.market.hosts[0], 0.5)
    pulled(source, BIDS, at=NOW + 1)
    snapshots = [
        json.loads(gzip.decompress(path.read_bytes()))
        for path in sorted((tmp_path / "offers").iterdir())
    ]
    assert [snapshot["at"] for snapshot in snapshots] == [NOW, NOW + 1]
    bids = [{row[0]: row[2] for row in snapshot["offers"]}[1] for snapshot in snapshots]
    assert bids == [110_000_000, 501_000_000]


def test_only_the_wanted_regions_are_stored(source: VastSource) -> None:
    assert {event.market.region for event in observed_events(pulled(source, BIDS, "vast-de"))} == {
        "vast-de"
    }


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


def test_a_key_is_needed_and_never_sent_in_the_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    with pytest.raises(MissingCredentials, match="set VAST_API_KEY"):
        required_key("https://console.vast.ai")
    (tmp_path / ".config" / "vastai").mkdir(parents=True)
    (tmp_path / ".config" / "vastai" / "vast_api_key").write_text("from the official client\n")
    assert required_key("https://console.vast.ai") == "from the official client"
    with pytest.raises(MissingCredentials, match="https address"):
        required_key("http://vast.example.org")


def test_doctor_shows_the_account_and_its_credit(server: LoopbackServer, tmp_path: Path) -> None:
    settings = Settings(tmp_path, keys={"vast_url": server.url})
    found = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert {finding.level for finding in found.values()} == {Level.GOOD}
    assert found["credit"].detail.startswith("$25.00")
    server.faults.append(Fault("users", Reply.of_json({"id": 1, "balance": 0.2}, 200)))
    found = {finding.what: finding for finding in doctor.findings(settings, NOT_KEPT)}
    assert found["credit"].is_bad


def test_doctor_tells_a_wrong_key(
    server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAST_API_KEY", "wrong")
    with pytest.raises(MissingCredentials, match="Invalid user key; make a key"):
        list(doctor.findings(Settings(tmp_path, keys={"vast_url": server.url}), NOT_KEPT))
