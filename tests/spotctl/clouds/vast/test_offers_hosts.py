"""Snapshots of hosts that fetches leave."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from spotctl.clouds.vast.offers import left_out
from spotctl.clouds.vast.prices import BIDS, VastSource
from spotctl.clouds.vast.provider import VastProvider
from spotctl.home.config import Settings
from tests.servers.vast import Vast
from tests.servers.vast_market import Host
from tests.spotctl.clouds.vast.test_prices import NOW, pulled
from tests.spotctl.clouds.vast.world import ONE, World, order


def test_a_look_at_hosts_is_kept_with_the_snapshots_of_fetches(
    made: World, provider: VastProvider
) -> None:
    made.market.hosts[0].rival = 0.3
    listed = provider.hosts(ONE, disk_gib=None)
    assert sorted(listed.least_bid.tolist()) == [150_000_000] * 5 + [301_000_000]
    assert len(list((made.folder / "home" / "offers").glob("*.json.gz"))) == 1


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


def test_what_a_fetch_left_out_is_kept_with_its_reason(
    source: VastSource, tmp_path: Path, api: Vast
) -> None:
    """A host that no job may use sets no price, and a plan can say why."""
    api.market.hosts[0].cuda = 12.4
    api.market.hosts[1].mbit_down = 20.0
    # A slice of an eighth of a host.
    api.market.hosts[2].share = 0.125
    rows = pulled(source, BIDS)
    assert {kind.name for kind in rows.types} == {"1xRTX_4090", "8xH100_SXM"}
    (path,) = (tmp_path / "offers").iterdir()
    moved = tmp_path / "vast"
    moved.mkdir()
    (tmp_path / "offers").rename(moved / "offers")
    assert path.name == f"{NOW}.json.gz"
    unfit = left_out(Settings(tmp_path), NOW)
    assert unfit == {
        ONE: {
            "a driver that is older than CUDA 12.8": 1,
            "a download of less than 128 Mbit in a second": 1,
            "too few processors, or too little memory, for each GPU": 2,
            "a reliability below 0.95": 1,
            "a price of its disk that is too high": 1,
            "an offer for less than 12 hours": 1,
        }
    }
    assert left_out(Settings(tmp_path), NOW - 1) == {}


def test_the_parts_of_a_machine_are_one_host_and_can_both_be_rented(
    made: World, provider: VastProvider
) -> None:
    made.market.hosts[:] = [Host(7, gpu_floor=floor, share=0.5) for floor in (0.12, 0.15)]
    for ask, host in enumerate(made.market.hosts, 100):
        host.ask = ask
    listed = provider.hosts(ONE, disk_gib=None)
    assert (listed.host.tolist(), listed.least_bid.tolist()) == ([7], [120_000_000])
    assert len(provider.create(order(machines=2))) == 2
    assert len({id(contract.host) for contract in made.market.alive()}) == 2
