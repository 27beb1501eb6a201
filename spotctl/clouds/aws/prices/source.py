"""`AwsSource`: the tasks of a fetch from AWS."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from operator import methodcaller
from typing import TYPE_CHECKING
from urllib.parse import quote

from pricing_data.errors import CloudError, NoAnswer, UnknownResource
from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.market import LINUX, Market
from pricing_data.series import WatchRecord
from pricing_data.sources.base import NO_REGION, FetchRequest, FetchTask, Rejects
from pricing_data.units import DAY, Span, to_datetime
from spotctl.clouds.aws.cloud import LOCATIONS, PRICE_LIST, PRICE_LIST_REGION, AwsSettings
from spotctl.clouds.aws.prices.records import (
    CLOUD,
    PRICED_SYSTEMS,
    enabled_region,
    instance_type,
    interruption_rows,
    listed_price,
    on_demand_price,
    page_price,
    placement_score,
    price_event,
    price_page,
    zone_name,
)
from spotctl.clouds.errors import on_one_line

if TYPE_CHECKING:
    from spotctl.clouds.aws.session import AwsSession
    from spotctl.clouds.public_catalog import PublicCatalog

SLICE = 7 * DAY
"""Pages arrive newest first, so a history is complete only at the end of a slice, which is repeated
after a failure."""
RETENTION = 90 * DAY
"""How much history AWS keeps."""

_PRODUCTS = {
    "linux": "Linux/UNIX",
    "windows": "Windows",
    "rhel": "Red Hat Enterprise Linux",
    "suse": "SUSE Linux",
}
_MAX_FILTER_VALUES = 200
_MAX_SINGLE_QUERIES = 20
_SPOT_PRICES = "spot prices"
PUBLIC_PRICES = "public price list"
_PRICE_LIST = "/offers/v1.0/aws/AmazonEC2/current/{region}/index.csv"
_PRICES_AT_A_TIME = 2000
_PAGES = "https://b0.p.awsstatic.com"
PRICE_PAGES = "on-demand price pages"
_PRICE_PAGE = "/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel/{location}/Linux/index.json"
_MAX_PAGE_BYTES = 8 << 20
_PREAMBLE = 20
_CURE = "fetch again later, or set aws_price_list_url in spotctl's settings"
_WILDCARDS = re.compile(r"[*?\[]")
_ONE_OF = re.compile(r"\[!?.[^]]*\]")

Filter = dict[str, object]


class AwsSource:
    """Market data of AWS. Each region's price history, instance types and on-demand prices are
    separate tasks.

    Without credentials the Spot Advisor's public file and the public `catalog` are fetched and, for
    regions that are named, the public price list. From these, and the prices that are shipped, spot
    prices can be estimated where the catalog has none.

    Placement scores are fetched only for types that are given by their exact names: the API takes
    no patterns, and limits how many combinations of type and region an account may ask about in 24
    hours (`MaxConfigLimitExceeded`). A score is for one machine of one type in one zone; AWS scores
    single types low, so use it as a ranking, not as a probability.
    """

    cloud = CLOUD

    def __init__(
        self, settings: AwsSettings | None = None, catalog: PublicCatalog | None = None
    ) -> None:
        self._settings = settings or AwsSettings()
        self._catalog = catalog

    @cached_property
    def _session(self) -> AwsSession:
        """Shared by the tasks; `tasks` makes it before any thread needs it."""
        from spotctl.clouds.aws.session import AwsSession  # imports the SDK

        return AwsSession(self._settings)

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        """One task for the Spot Advisor and several for each region; lists the regions if the
        request names none.

        If signing in fails, one task reports that, instead of one for every region.
        """
        advisor = FetchTask(
            CLOUD,
            NO_REGION,
            "interruption buckets",
            partial(interruption_rows, self._settings, request),
        )
        try:
            home = self._session.sign_in()
            regions = request.regions or self._enabled_regions(home)
        except CloudError as error:
            # Spot prices are then those of the public catalog, or estimated by the savings in the
            # Advisor's file. A price list that needs no account has several hundred megabytes, so
            # only those of named regions are read, for systems that the catalog does not have;
            # otherwise the small files behind the pages of AWS's web site, of its larger regions.
            estimates = replace(advisor, spot_prices=True)
            listed = []
            catalog = self._catalog
            if catalog is not None and request.wants_system(LINUX):
                listed.append(catalog.task(CLOUD, request, by_zone=True))
            if catalog is None or set(request.systems) != {LINUX}:
                for region in request.regions:
                    of_region = partial(self._public_prices, region, request)
                    listed.append(FetchTask(CLOUD, region, PUBLIC_PRICES, of_region, optional=True))
            if not request.regions:
                pages = partial(self._price_pages, request)
                listed.append(FetchTask(CLOUD, NO_REGION, PRICE_PAGES, pages, optional=True))
            account = FetchTask.failed(CLOUD, "account", error, optional=catalog is not None)
            return [estimates, *listed, account]

        pulls = {
            _SPOT_PRICES: self._spot_prices,
            "instance types": self._instance_types,
            "on-demand prices": self._on_demand_prices,
        }

        if exact_names(request.types):
            pulls["placement scores"] = self._placement_scores
        tasks = [advisor]
        for region in regions:
            for what, pull in pulls.items():
                rows = partial(pull, region, request)
                tasks.append(FetchTask(CLOUD, region, what, rows, spot_prices=what == _SPOT_PRICES))

        return tasks

    def _public_prices(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        """On-demand prices of AWS's public price list, a few thousand at a time: one CSV of several
        hundred megabytes for each region, read line by line."""
        import httpx

        url = self._settings.price_list_url.rstrip("/") + _PRICE_LIST.format(region=region)
        seconds = self._settings.timeout_seconds
        rejects = Rejects(f"aws/{region}: public price list")
        try:
            with httpx.stream("GET", url, timeout=seconds, follow_redirects=True) as answer:
                if answer.status_code in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
                    raise UnknownResource(
                        f"aws/{region}: {url} does not exist", "check the region's name"
                    )
                answer.raise_for_status()
                rows = _price_list_rows(answer.iter_lines(), url)
                read = partial(listed_price, region)
                prices = rejects.good(read, rows, methodcaller("get", "SKU"))
                step = []
                for price in prices:
                    if request.wants_type(price.instance_type):
                        step.append(price)
                    if len(step) >= _PRICES_AT_A_TIME:
                        yield FetchedRows(on_demand=tuple(step))
                        step = []
                yield FetchedRows(on_demand=tuple(step))
        except (httpx.HTTPError, httpx.InvalidURL, csv.Error) as error:
            problem = f"aws/{region}: {url} cannot be read: {on_one_line(error, 200)}"
            raise NoAnswer(problem, _CURE) from error

        rejects.report()

    def _price_pages(self, request: FetchRequest) -> Iterator[FetchedRows]:
        """On-demand prices of Linux machines behind AWS's price pages: a JSON file of at most a few
        megabytes for each of the larger regions. They are not documented, so a region without one
        is passed over."""
        import httpx

        rejects, count = Rejects(f"aws/-: {PRICE_PAGES}"), 0
        # A mirror of the price list has the files behind AWS's price pages, too.
        mirror, seconds = self._settings.price_list_url, self._settings.timeout_seconds
        host = _PAGES if mirror == PRICE_LIST else mirror.rstrip("/")
        for region, location in LOCATIONS.items():
            url = host + _PRICE_PAGE.format(location=quote(location))
            try:
                with httpx.stream("GET", url, timeout=seconds, follow_redirects=True) as answer:
                    if answer.status_code in (httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND):
                        continue
                    answer.raise_for_status()
                    content = b""
                    for part in answer.iter_bytes():
                        content += part
                        if len(content) > _MAX_PAGE_BYTES:
                            problem = (
                                f"aws/{region}: {url} has more than {_MAX_PAGE_BYTES >> 20} MB"
                            )
                            raise NoAnswer(problem, _CURE)
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = f"aws/{region}: {url} cannot be read: {on_one_line(error, 200)}"
                raise NoAnswer(problem, _CURE) from error
            as_of, entries = price_page(content, answer, request.until)
            prices = rejects.good(partial(page_price, region, as_of), entries)
            wanted = tuple(price for price in prices if request.wants_type(price.instance_type))
            count += 1
            yield FetchedRows(on_demand=wanted)

        if not count:
            raise NoAnswer(f"aws/-: {host} has no price page of any region", _CURE)
        rejects.report()

    def _enabled_regions(self, home: str | None) -> tuple[str, ...]:
        with self._session.client("ec2", home) as ec2:
            rejects = Rejects(f"aws/{ec2.region}: regions")
            pages = ec2.pages("DescribeRegions", "Regions")
            regions = [
                name for page in pages for name in rejects.good(enabled_region, page["Regions"])
            ]
        rejects.report()
        return tuple(sorted(regions))

    def _spot_prices(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        """Each slice also brings the price in force at its start, and with it what AWS published
        late.
        """
        history = request.history(CLOUD, region)
        begin = request.start_of(history)
        rejects = Rejects(f"aws/{region}: spot prices")
        with self._session.client("ec2", region) as ec2:
            for span in slices(max(begin, request.until - RETENTION), request.until):
                pages = ec2.pages(
                    "DescribeSpotPriceHistory",
                    "SpotPriceHistory",
                    StartTime=to_datetime(span.start),
                    EndTime=to_datetime(span.end),
                    Filters=type_filters(request.types) + product_filters(request.systems),
                )
                since: dict[Market, int] = {}
                for page in pages:
                    # A list, because the page is complete only if none of its records was rejected.
                    events = list(
                        rejects.good(partial(price_event, region), page["SpotPriceHistory"])
                    )
                    wanted = []
                    for event in events:
                        market = event.market
                        if request.wants_type(market.instance_type):
                            since[market] = min(event.time, since.get(market, event.time))
                            wanted.append(event)

                    covered: dict[str, Span] = {}
                    watched: dict[Market, WatchRecord] = {}
                    if not page.get("NextToken") and not rejects.count:
                        # A slice contains every change in it, and the price in force at its start.
                        covered[history] = Span(begin, span.end)
                        for market, first in since.items():
                            watched[market] = WatchRecord((Span(first, span.end),))
                    yield FetchedRows(PriceBatch.of(wanted), covered=covered, watched=watched)

        rejects.report()

    def _instance_types(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        rejects = Rejects(f"aws/{region}: instance types")
        with self._session.client("ec2", region) as ec2:
            for page in ec2.pages(
                "DescribeInstanceTypes", "InstanceTypes", Filters=type_filters(request.types)
            ):
                types = rejects.good(instance_type, page["InstanceTypes"])
                yield FetchedRows(types=tuple(t for t in types if request.wants_type(t.name)))
        rejects.report()

    def _on_demand_prices(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        rejects = Rejects(f"aws/{region}: on-demand prices")
        fixed = {
            "regionCode": region,
            "tenancy": "Shared",
            "preInstalledSw": "NA",
            "capacitystatus": "Used",
            "marketoption": "OnDemand",
        }

        # One query per type for a few names, else one per operating system.
        names = exact_names(request.types)
        choices = [("operatingSystem", system) for system in PRICED_SYSTEMS]
        if names and len(names) == len(request.types) <= _MAX_SINGLE_QUERIES:
            choices = [("instanceType", name) for name in names]

        with self._session.client("pricing", region, PRICE_LIST_REGION) as pricing:
            for choice in choices:
                filters = [
                    {"Type": "TERM_MATCH", "Field": field, "Value": value}
                    for field, value in (*fixed.items(), choice)
                ]
                for page in pricing.pages(
                    "GetProducts", "PriceList", ServiceCode="AmazonEC2", Filters=filters
                ):
                    prices = rejects.good(partial(on_demand_price, region), page["PriceList"])
                    yield FetchedRows(
                        on_demand=tuple(p for p in prices if request.wants_type(p.instance_type))
                    )

        rejects.report()

    def _placement_scores(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        rejects = Rejects(f"aws/{region}: placement scores")
        with self._session.client("ec2", region) as ec2:
            pages = ec2.pages("DescribeAvailabilityZones", "AvailabilityZones")
            zones = dict(
                zone
                for page in pages
                for zone in rejects.good(zone_name, page["AvailabilityZones"])
            )
            for name in exact_names(request.types):
                scored = partial(placement_score, region, name, request.until, zones)
                for page in ec2.pages(
                    "GetSpotPlacementScores",
                    "SpotPlacementScores",
                    InstanceTypes=[name],
                    TargetCapacity=1,
                    SingleAvailabilityZone=True,
                    RegionNames=[region],
                ):
                    yield FetchedRows(
                        interruptions=tuple(rejects.good(scored, page["SpotPlacementScores"]))
                    )

        rejects.report()


def _price_list_rows(lines: Iterator[str], url: str) -> Iterator[dict[str, str]]:
    """The rows of the public price list, after a few lines about the list itself."""
    for number, line in enumerate(lines):
        names = next(csv.reader([line]), [])
        if names[:1] == ["SKU"]:
            yield from csv.DictReader(lines, fieldnames=names)
            return
        if number > _PREAMBLE:
            break
    raise NoAnswer(f"{url} has another format: no line begins with SKU", _CURE)


def slices(start: int, end: int) -> Iterator[Span]:
    """A span of time in slices of at most `SLICE`, oldest first."""
    while start < end:
        span = Span(start, min(start + SLICE, end))
        yield span
        start = span.end


def exact_names(types: Sequence[str]) -> tuple[str, ...]:
    """The requested types that are names, not patterns."""
    return tuple(name for name in types if not _WILDCARDS.search(name))


def type_filters(types: Sequence[str]) -> list[Filter]:
    """A filter for EC2's describe calls that passes all requested types, and perhaps a few others.

    It supports `*` and `?` but not `[ab]`. Unlike the parameter `InstanceTypes`, it does not fail
    the whole call over a name that the region does not have.
    """
    if not types or len(types) > _MAX_FILTER_VALUES:
        return []
    return [{"Name": "instance-type", "Values": [_ONE_OF.sub("?", glob) for glob in types]}]


def product_filters(systems: Sequence[str]) -> list[Filter]:
    """A filter for the products of these operating systems, if AWS's names of all of them are
    known.
    """
    if not systems or not all(system in _PRODUCTS for system in systems):
        return []

    names = [_PRODUCTS[system] for system in systems]
    return [
        {
            "Name": "product-description",
            "Values": [*names, *(f"{name} (Amazon VPC)" for name in names)],
        }
    ]
