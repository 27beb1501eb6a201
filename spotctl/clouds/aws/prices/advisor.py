"""Spot Advisor: AWS's public file of interruption rates in the last month, as bands per instance type."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from pricing_data.availability import Interruption
from pricing_data.errors import BadInput, NoAnswer
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest, Rejects
from pricing_data.units import to_micros
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.aws.prices.records import CLOUD, MALFORMED, rejecting
from spotctl.clouds.errors import on_one_line

if TYPE_CHECKING:
    import httpx

Band = tuple[float, float]
SOURCE = "aws spot advisor"

# What the indices have always meant; the file's own `ranges` take precedence.
_LABELS = {0: "<5%", 1: "5-10%", 2: "10-15%", 3: "15-20%", 4: ">20%"}
_CURE = "fetch again later, or set aws_spot_advisor_url in spotctl's settings"
_LABEL = re.compile(r"<\s*(?P<most>\d+)%|(?P<low>\d+)\s*-\s*(?P<high>\d+)%|>\s*(?P<least>\d+)%")


class Bucket(NamedTuple):
    """One entry of the file: an instance type in a region with an operating system."""

    region: str
    system: str
    instance_type: str
    entry: Any


def band_of(label: str) -> Band:
    """The lower and upper bound of a band, as shares.

    >>> band_of("<5%"), band_of("15-20%"), band_of(">20%")
    ((0.0, 0.05), (0.15, 0.2), (0.2, 1.0))
    """
    match = _LABEL.fullmatch(label.strip())
    if not match:
        raise BadInput(f"interruption band {label!r} is not like <5%, 5-10% or >20%")
    low, high = match["low"] or match["least"] or "0", match["most"] or match["high"] or "100"
    return int(low) / 100, int(high) / 100


def bands_of(document: Mapping[str, Any]) -> dict[int, Band]:
    """The band of each index in the file."""
    ranges = {entry["index"]: entry["label"] for entry in document.get("ranges", ())}
    return {index: band_of(label) for index, label in (ranges or _LABELS).items()}


def buckets_of(document: Mapping[str, Any]) -> Iterator[Bucket]:
    """Every entry of the file."""
    for region, systems in document["spot_advisor"].items():
        for system, types in systems.items():
            for name, entry in types.items():
                yield Bucket(region, system, name, entry)


@rejecting
def figures(bands: Mapping[int, Band], as_of: int, request: FetchRequest, bucket: Bucket) -> tuple[Interruption, ...]:
    """The interruption band and the saving of a requested market; one entry stands for all zones of a region."""
    if not request.wants_type(bucket.instance_type) or bucket.region not in (request.regions or (bucket.region,)):
        return ()
    market = Market.of(CLOUD, bucket.region, None, bucket.instance_type, bucket.system)
    low, high = bands[bucket.entry["r"]]
    band = Interruption(market, "monthly-bucket", as_of, low, high, SOURCE)
    if "s" not in bucket.entry:
        return (band,)
    saving = bucket.entry["s"] / 100
    return band, Interruption(market, "saving", as_of, saving, saving, SOURCE)


def interruptions_of(response: httpx.Response, request: FetchRequest, rejects: Rejects) -> tuple[Interruption, ...]:
    """The requested entries, dated by the file's last change, so that fetching it twice counts once."""
    try:
        document = json.loads(response.content)
        bands, buckets = bands_of(document), list(buckets_of(document))
        changed = response.headers.get("last-modified")
        as_of = to_micros(parsedate_to_datetime(changed)) if changed else request.until
    except (BadInput, *MALFORMED) as error:
        raise NoAnswer(
            f"aws/-: Spot Advisor: the file at {response.url} has another format ({str(error)[:200]})", _CURE
        ) from error
    return tuple(chain.from_iterable(rejects.good(partial(figures, bands, as_of, request), buckets)))


def advisor_file(settings: AwsSettings) -> httpx.Response:
    """Downloads the file, with retries."""
    import httpx

    def is_temporary(error: Exception) -> bool:
        if isinstance(error, httpx.HTTPStatusError):
            return error.response.status_code == httpx.codes.TOO_MANY_REQUESTS or error.response.is_server_error
        return isinstance(error, httpx.TransportError)

    def download() -> httpx.Response:
        url, seconds = settings.spot_advisor_url, settings.timeout_seconds
        return httpx.get(url, timeout=seconds, follow_redirects=True).raise_for_status()

    try:
        return settings.retrying().on(is_temporary)(download)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NoAnswer(
            f"aws/-: Spot Advisor at {settings.spot_advisor_url} did not answer: {on_one_line(error, 200)}", _CURE
        ) from error
