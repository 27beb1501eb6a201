"""Snapshots of the offers of hosts, kept below the home in `vast/offers`: a file for each fetch of
minimum bids.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bidbrain.outbid.record import HostRecord
from pricing_data.market import Market
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.clouds.vast.offers import HostOffer
    from spotctl.home.config import Settings


def folder_of(settings: Settings) -> Path:
    """The folder of the snapshots."""
    return settings.home / "vast" / "offers"


def keep_snapshot(folder: Path, at: int, on_offer: Iterable[HostOffer]) -> None:
    """Writes the offers of a moment to a file of its own, which is there as a whole or not at
    all."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [[offer.machine, str(offer.market), offer.price, offer.storage] for offer in on_offer]
    part = folder / f".{at}.json.gz"
    part.write_bytes(gzip.compress(json.dumps({"at": at, "offers": rows}).encode(), mtime=0))
    part.replace(folder / f"{at}.json.gz")


def recorded(settings: Settings, since: int, until: int) -> Mapping[Market, HostRecord]:
    """The snapshots of each market between two moments. The price on demand is not part of them."""
    rows: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for path in folder_of(settings).glob("*.json.gz"):
        if since <= int(path.name.partition(".")[0]) <= until:
            try:
                snapshot = json.loads(gzip.decompress(path.read_bytes()))
                at, offers = snapshot["at"], snapshot["offers"]
            except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
                what = f"is no snapshot of offers ({error}); remove it"
                raise BadRequest(f"{path}: {what}") from None

            for machine, market, price, _ in offers:
                rows[market].append((at, machine, price, 0))

    return {Market.parse(market): HostRecord.of(of_market) for market, of_market in rows.items()}
