"""Spot Advisor: AWS's public file of how often each type was interrupted in the last month, as bands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pricing_data.errors import BadInput, SourceUnavailable
from pricing_data.interruptions import Interruption
from pricing_data.market import Market
from pricing_data.sources.aws.records import CLOUD, MISSHAPEN, refusing
from pricing_data.sources.aws.settings import AwsSettings
from pricing_data.sources.base import FetchRequest
from pricing_data.sources.rejects import Rejects
from pricing_data.units import to_micros

if TYPE_CHECKING:
    import httpx

Band = tuple[float, float]

# What the indices have meant since the file exists; its own `ranges` are believed where it has them.
_LABELS = {0: "<5%", 1: "5-10%", 2: "10-15%", 3: "15-20%", 4: ">20%"}
_LABEL = re.compile(r"<\s*(?P<most>\d+)%|(?P<low>\d+)\s*-\s*(?P<high>\d+)%|>\s*(?P<least>\d+)%")


class Bucket(NamedTuple):
    """One entry of the file, about a type in a region and under an operating system."""

    region: str
    system: str
    instance_type: str
    entry: Any


def band_of(label: str) -> Band:
    """The shares between which a band lies.

    >>> band_of("<5%"), band_of("15-20%"), band_of(">20%")
    ((0.0, 0.05), (0.15, 0.2), (0.2, 1.0))
    """
    match = _LABEL.fullmatch(label.strip())
    if not match:
        raise BadInput(f"interruption band {label!r} is not like <5%, 5-10% or >20%")
    low, high = match["low"] or match["least"] or "0", match["most"] or match["high"] or "100"
    return int(low) / 100, int(high) / 100


def bands_of(document: Mapping[str, Any]) -> dict[int, Band]:
    """What the file's indices mean."""
    ranges = {entry["index"]: entry["label"] for entry in document.get("ranges", ())}
    return {index: band_of(label) for index, label in (ranges or _LABELS).items()}


def buckets_of(document: Mapping[str, Any]) -> Iterator[Bucket]:
    """Every entry of the file."""
    for region, systems in document["spot_advisor"].items():
        for system, types in systems.items():
            for name, entry in types.items():
                yield Bucket(region, system, name, entry)


@refusing
def interruption(bands: Mapping[int, Band], as_of: int, request: FetchRequest, bucket: Bucket) -> Interruption | None:
    """What an entry says about its market, if that was asked for. The Advisor does not tell zones apart."""
    if not request.wants_type(bucket.instance_type) or bucket.region not in (request.regions or (bucket.region,)):
        return None
    market = Market.of(CLOUD, bucket.region, None, bucket.instance_type, bucket.system)
    low, high = bands[bucket.entry["r"]]
    return Interruption(market, "monthly-bucket", as_of, low, high, "aws spot advisor")


def interruptions_of(response: httpx.Response, request: FetchRequest, rejects: Rejects) -> tuple[Interruption, ...]:
    """The wanted entries of the file as it came; dated by when it was last changed, so that it counts once."""
    asked = f"aws/-: Spot Advisor at {response.url}"
    try:
        document = json.loads(response.content)
        bands, buckets = bands_of(document), list(buckets_of(document))
        changed = response.headers.get("last-modified")
        as_of = to_micros(parsedate_to_datetime(changed)) if changed else request.until
    except (BadInput, *MISSHAPEN) as error:
        raise SourceUnavailable(
            f"{asked} is not the file it was ({str(error)[:200]}); fetch again later, or set its address"
        ) from error
    return tuple(rejects.good(partial(interruption, bands, as_of, request), buckets))


def advisor_file(settings: AwsSettings) -> httpx.Response:
    """The file, asked for again while the trouble may pass."""
    import httpx

    def may_pass(error: Exception) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            return error.response.status_code == httpx.codes.TOO_MANY_REQUESTS or error.response.is_server_error
        return isinstance(error, httpx.TransportError)

    def ask() -> httpx.Response:
        url, seconds = settings.spot_advisor_url, settings.timeout_seconds
        return httpx.get(url, timeout=seconds, follow_redirects=True).raise_for_status()

    try:
        return settings.retrying().on(may_pass)(ask)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise SourceUnavailable(
            f"aws/-: Spot Advisor at {settings.spot_advisor_url} did not answer:"
            f" {' '.join(str(error).split())[:200]}; fetch again later, or set its address"
        ) from error
