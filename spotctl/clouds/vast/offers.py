"""Offers of hosts grouped into markets, and the price of a market: the lower quartile of its hosts'
minimum bids. Each fetch of minimum bids keeps a snapshot of the offers below the home, in
`vast/offers`.

A market is a number of GPUs of one model in one country, on hosts that Vast.ai has verified or has
not: such as `vast/vast-us/verified/1xRTX_4090`.

A quarter of the hosts take the price of a market as a bid, so that it has more than one host for
several machines, and one odd host does not set it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bidbrain.outbid.record import HostRecord
from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.gpu_markets import COUNTS, GIB_PER_GPU, VCPUS_PER_GPU, cuda_of, type_name
from spotctl.clouds.vast.cloud import CLOUD_NAME, UNVERIFIED, VERIFIED, VastSettings
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.home.config import Settings

MIN_HOURS = 12
"""How long a host must stay on offer."""

HIGHEST_STORAGE = 0.50
"""Dollars for a GB of disk in a month: a host that asks for more is left out. The usual price is
0.10 to 0.20."""

_CAPABILITIES = ((0.0, 600), (13.0, 750))
"""The least capability of a GPU, in hundredths, from a version of CUDA on: Pascal, as dstack asks,
and Turing, as CUDA 13.0 builds for nothing older (github.com/NVIDIA/cuDecomp/pull/97)."""

_JUDGED = {
    "cuda_max_good": "a driver that is older than CUDA {}",
    "compute_cap": "GPUs that its version of CUDA does not support",
    "inet_down": "a download of less than {:g} Mbit in a second",
    "reliability2": "a reliability below {:g}",
    "direct_port_count": "no port that others reach",
}
"""The filters that a fetch applies itself, so that plans can say what they left out, and why."""

_QUARTILE = 4
_RECENT = 24
"""How many of the newest snapshots are asked what traffic costs in a market."""
_COUNTRY = re.compile(r".*\b([A-Z]{2})\s*")


@dataclass(frozen=True, slots=True)
class HostOffer:
    """A machine of a host that can be rented now, at a `price` in nano-dollars for an hour of the
    whole machine: the lowest bid that would run, or that on demand. `storage` is in dollars for a
    GB in a month, and `traffic` for a GB received, and sent. Machines of the same `address` are
    behind one router. `unfit` is why no job is to run there; empty where one may."""

    ask: int
    machine: int
    market: Market
    price: int
    storage: float
    gpu_gib: float
    address: str
    traffic: tuple[float, float]
    unfit: str = ""


def wanted(settings: VastSettings, image: str, ports: int = 0) -> dict[str, dict[str, Any]]:
    """The filters of a search for hosts that can run an image, with `ports` that others reach
    besides sshd's. Those that the official client adds by itself are sent, too.

    Nodes that reach each other talk all the time: their traffic is free.
    """
    cuda = cuda_of(image)
    verified: dict[str, Any] = {"in": [True, False]} if settings.unverified else {"eq": True}
    filters: dict[str, dict[str, Any]] = {
        "num_gpus": {"in": list(COUNTS)},
        "verified": verified,
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "cuda_max_good": {"gte": cuda},
        "compute_cap": {"gte": max(least for since, least in _CAPABILITIES if cuda >= since)},
        "inet_down": {"gte": settings.least_mbit_down},
        "reliability2": {"gte": settings.least_reliability},
        "cpu_arch": {"eq": "amd64"},
        "gpu_arch": {"eq": "nvidia"},
        "direct_port_count": {"gte": 1 + ports},
    }
    if ports:
        filters["static_ip"] = {"eq": True}
        filters["inet_up_cost"] = filters["inet_down_cost"] = {"lte": 0}
    return filters


def asked_for(filters: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The filters without those that a fetch applies itself."""
    return {name: filters[name] for name in filters if name not in _JUDGED}


def offer_of(
    row: Mapping[str, Any], filters: Mapping[str, dict[str, Any]] | None = None
) -> HostOffer | None:
    """A row of a search, judged by `filters` that its search did not have; None for a machine that
    is in no market. Raises `BadInput` for an unusable row.
    """
    try:
        count, gpu = int(row["num_gpus"]), str(row["gpu_name"])
        country = _COUNTRY.fullmatch(row["geolocation"] or "")
        has_vcpus = row["cpu_cores_effective"] >= VCPUS_PER_GPU * count
        # A host's memory is divided as its processors are.
        share = row["cpu_cores_effective"] / row["cpu_cores"] if row["cpu_cores"] else 0.0
        is_large = has_vcpus and row["cpu_ram"] * share >= 1024 * GIB_PER_GPU * count
        lasts, storage = float(row["duration"]) / 3600, float(row["storage_cost"])
        if country is None or count not in COUNTS:
            return None
        judged = {name: (filters or {}).get(name, {}).get("gte", 0) for name in _JUDGED}
        faults = [
            words.format(judged[name])
            for name, words in _JUDGED.items()
            if row[name] < judged[name]
        ]
        faults += [] if is_large else ["too few processors, or too little memory, for each GPU"]
        faults += [f"an offer for less than {MIN_HOURS} hours"] if lasts < MIN_HOURS else []
        faults += ["a price of its disk that is too high"] if storage > HIGHEST_STORAGE else []

        region = f"vast-{country[1].lower()}"
        zone = VERIFIED if row["verification"] == "verified" else UNVERIFIED
        gib = float(row["gpu_ram"]) / 1024
        market = Market(CLOUD_NAME, region, zone, type_name(gpu, count, gib))
        usd = row["min_bid"] if row["is_bid"] else row["dph_base"]
        if not 0 < usd < 10_000:
            raise BadInput(f"a price of {usd}")
        price = max(1, round(usd * NANOS_PER_DOLLAR))
        ask, machine = int(row["ask_contract_id"]), int(row["machine_id"])
        why, address = faults[0] if faults else "", address_of(row)
        traffic = float(row.get("inet_down_cost") or 0.0), float(row.get("inet_up_cost") or 0.0)
        return HostOffer(ask, machine, market, price, storage, gib, address, traffic, why)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise BadInput(f"{type(error).__name__}: {error}") from None


def address_of(row: Mapping[str, Any]) -> str:
    """The public address of an offer or an instance; if it is not known, the machine stands for
    it."""
    return str(row.get("public_ipaddr") or f"machine {row.get('machine_id')}").strip()


def quartile(prices: Sequence[int]) -> int:
    """The lowest price that a quarter of the hosts take.

    >>> quartile([5, 1, 9]), quartile([8, 7, 6, 5, 4, 3, 2, 1])
    (1, 2)
    """
    return sorted(prices)[-(-len(prices) // _QUARTILE) - 1]


def folder_of(settings: Settings) -> Path:
    """The folder of the snapshots."""
    return settings.home / "vast" / "offers"


def keep_snapshot(folder: Path, at: int, on_offer: Iterable[HostOffer]) -> None:
    """Writes the offers of a moment to a file of its own, which is there as a whole or not at
    all."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, unfit = list[list[Any]](), Counter[tuple[str, str]]()
    for offer in on_offer:
        if offer.unfit:
            unfit[str(offer.market), offer.unfit] += 1
        else:
            prices = offer.price, offer.storage, *offer.traffic
            rows.append([offer.machine, str(offer.market), *prices])
    left_out = [[market, why, hosts] for (market, why), hosts in unfit.items()]
    snapshot = {"at": at, "offers": rows, "left_out": left_out}
    part = folder / f".{at}.json.gz"
    part.write_bytes(gzip.compress(json.dumps(snapshot).encode(), mtime=0))
    part.replace(folder / f"{at}.json.gz")


def recorded(settings: Settings, since: int, until: int) -> Mapping[Market, HostRecord]:
    """The snapshots of each market between two moments. The price on demand is not part of them."""
    rows: dict[str, list[tuple[int, int, int, int]]] = defaultdict(list)
    for path in folder_of(settings).glob("*.json.gz"):
        if since <= int(path.name.partition(".")[0]) <= until:
            snapshot = _read(path)
            at, offers = snapshot["at"], snapshot["offers"]
            for machine, market, price, *_ in offers:
                rows[market].append((at, machine, price, 0))

    return {Market.parse(market): HostRecord.of(of_market) for market, of_market in rows.items()}


def left_out(settings: Settings, until: int) -> Mapping[Market, Mapping[str, int]]:
    """The hosts of each market that the last fetch before a moment left out: how many, by the
    reason."""
    counted: dict[Market, dict[str, int]] = defaultdict(dict)
    # A look at the hosts of one market is kept, too, and says nothing of the others.
    for path in _newest_first(settings, until):
        if rows := _read(path).get("left_out"):
            for market, why, hosts in rows:
                counted[Market.parse(market)][why] = hosts
            break
    return counted


def traffic(settings: Settings, until: int) -> Mapping[Market, tuple[float, float]]:
    """The usual price of each market's hosts before a moment for a GB received, and for a GB sent,
    in dollars."""
    usual: dict[Market, tuple[float, float]] = {}
    for path in _newest_first(settings, until)[:_RECENT]:
        asked: dict[str, list[list[float]]] = defaultdict(list)
        for _, market, _, _, *prices in _read(path)["offers"]:
            asked[market] += [prices] if prices else []
        for market, of_market in asked.items():
            if of_market:
                received, sent = map(median, zip(*of_market, strict=True))
                usual.setdefault(Market.parse(market), (received, sent))
    return usual


def _newest_first(settings: Settings, until: int) -> list[Path]:
    """The snapshots before a moment."""
    moments = (int(path.name.partition(".")[0]) for path in folder_of(settings).glob("*.json.gz"))
    before = sorted((at for at in moments if at <= until), reverse=True)
    return [folder_of(settings) / f"{at}.json.gz" for at in before]


def _read(path: Path) -> dict[str, Any]:
    """A snapshot."""
    try:
        snapshot: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        return {"at": snapshot["at"], "offers": snapshot["offers"], **snapshot}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        what = f"is no snapshot of offers ({error}); remove it"
        raise BadRequest(f"{path}: {what}") from None
