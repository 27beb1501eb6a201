"""Snapshots of hosts that fetches leave."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from spotctl.clouds.vast.prices import BIDS, VastSource
from spotctl.clouds.vast.provider import VastProvider
from tests.servers.vast import Vast
from tests.spotctl.clouds.vast.test_prices import NOW, pulled
from tests.spotctl.clouds.vast.world import ONE, World


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
