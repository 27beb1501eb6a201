"""Prices of sending data out of a machine: to another zone, another region, or off the cloud.

Receiving is free on every cloud, so the place that sends decides the price. Another cloud is reached over the internet.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pricing_data.errors import BadInput
from pricing_data.known_clouds import cloud_names, is_cloud
from pricing_data.list_prices import EGRESS, ListPrice, ListPrices, area_of, shipped
from pricing_data.market import NO_ZONE, Market, api_region
from pricing_data.units import EARLIEST

_ENDLESS = float("inf")


class Location(NamedTuple):
    """Where data is: a region of a cloud and, if known, a zone."""

    cloud: str
    region: str
    zone: str = NO_ZONE

    @classmethod
    def of(cls, market: Market) -> "Location":
        return cls(market.cloud, market.region, market.zone)

    @classmethod
    def parse(cls, text: str) -> "Location":
        """The place of a text such as `aws/us-east-1` or `aws/us-east-1/us-east-1a`."""
        parts = text.strip().split("/")
        if len(parts) not in (2, 3) or not is_cloud(parts[0]):
            raise BadInput(f"place {text!r} is not cloud/region or cloud/region/zone (write aws/us-east-1)")
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class EgressPrice:
    """Dollars per GB in tiers: `(above this many GB in a month, dollars per GB)`, ascending from 0.

    A first tier of 0 dollars is an account's monthly allowance. `approximate` is true where the figure is close to the
    public list but not read from it.
    """

    tiers: tuple[tuple[float, float], ...]
    as_of: int
    source: str
    approximate: bool = False

    @property
    def usd_per_gb(self) -> float:
        """The price of a GB beyond the free allowance, in the first tier that costs something."""
        return next((usd for _, usd in self.tiers if usd), 0.0)

    def usd(self, gigabytes: float, after_gb: float = 0.0) -> float:
        """Dollars for sending this much after `after_gb` in the same month."""
        if not (0 <= gigabytes < _ENDLESS and 0 <= after_gb < _ENDLESS):
            raise BadInput(f"egress of {gigabytes:g} GB after {after_gb:g} GB: both must be at least 0")
        total = 0.0
        for (above, usd), (until, _) in pairwise((*self.tiers, (_ENDLESS, 0.0))):
            total += max(0.0, min(after_gb + gigabytes, until) - max(after_gb, above)) * usd
        return total


FREE = EgressPrice(((0.0, 0.0),), EARLIEST, "no data leaves the zone")
LOCAL = EgressPrice(((0.0, 0.02),), EARLIEST, "between regions of the local market")


def egress(
    origin: Location, target: Location | None, at: int | None = None, lists: ListPrices | None = None
) -> EgressPrice:
    """The price of sending data from one place to another; a `target` of None is the internet.

    The newest list that is not after `at` applies, of `lists` or else of those that are shipped. Two zones of a region
    count as one if either is unknown. Raises `UnknownPrice` where the tables have no figure.
    """
    if not is_cloud(origin.cloud):
        raise BadInput(f"egress from {origin.cloud}: not one of {', '.join(cloud_names())}")
    kinds = _kinds(origin, target)
    if not kinds or (origin.cloud == "local" and "region" not in kinds):
        return FREE
    if origin.cloud == "local":
        return LOCAL
    origins = (api_region(origin.cloud, origin.region), area_of(origin.cloud, origin.region), "*")

    def rank(row: ListPrice) -> float | None:
        if row.cloud != origin.cloud or row.where not in origins or row.what not in kinds:
            return None
        return -float(len(kinds) * origins.index(row.where) + kinds.index(row.what))

    where = "the internet" if target is None else f"{target.cloud}/{target.region}"
    what = f"egress from {origin.cloud}/{origin.region} to {where}"
    current = (lists or shipped()).current(EGRESS, at, rank, what)
    return _price([row for row in current if _route(row) == _route(current[0])])


def _route(row: ListPrice) -> tuple[str, str]:
    return row.where, row.what


def _kinds(origin: Location, target: Location | None) -> tuple[str, ...]:
    """The targets in the table that describe a route, the closest first; none if nothing leaves the zone."""
    if target is None or target.cloud != origin.cloud:
        return ("internet",)
    region = api_region(target.cloud, target.region)
    if region != api_region(origin.cloud, origin.region):
        return (region, area_of(target.cloud, region), "region")
    return () if NO_ZONE in (origin.zone, target.zone) or origin.zone == target.zone else ("zone",)


def _price(rows: list[ListPrice]) -> EgressPrice:
    first, *others = sorted((row.step, row.usd) for row in rows)
    # A list that begins above 0 GB does not say that what is below is free, and a run must not fail because of it.
    tiers = ((0.0, first[1]), *others)
    return EgressPrice(tiers, rows[0].as_of, rows[0].source, any(row.is_approximate for row in rows))
