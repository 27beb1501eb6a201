"""Parsers of AWS's records, and the file of the Spot Advisor. No SDK.

A parser takes one record as the API gives it and raises `BadInput` if it cannot read it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from fractions import Fraction
from functools import partial, wraps
from itertools import chain
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pricing_data.availability import Interruption
from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits, OnDemandPrice, driver_of
from pricing_data.errors import BadInput, NoAnswer
from pricing_data.fetched_rows import FetchedRows, PriceEvent
from pricing_data.market import LINUX, Market, os_of_product
from pricing_data.sources.base import FetchRequest, Rejects
from pricing_data.units import parse_time, parse_usd, to_micros
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.aws.machine_types import baseline_of
from spotctl.clouds.errors import ApiRecord, may_succeed_later, on_one_line

if TYPE_CHECKING:
    import httpx


P = ParamSpec("P")
T = TypeVar("T")

CLOUD = "aws"
PRICED_SYSTEMS = ("Linux", "Windows", "RHEL", "SUSE")
"""Operating systems as the Price List spells them; the others (Ubuntu Pro, RHEL with HA) have no
spot market."""

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of parsing an answer that does not have the documented structure."""

# Rows of plain machines in the public price list; other rows are dedicated, reserved, or with
# software.
_LISTED = {
    "TermType": ("OnDemand",),
    "Unit": ("Hrs",),
    "Currency": ("USD",),
    "Tenancy": ("Shared",),
    "Pre Installed S/W": ("NA", ""),
    "CapacityStatus": ("Used",),
    "Operating System": PRICED_SYSTEMS,
    "License Model": ("No License required", "License Included", "NA", ""),
}
_OWN_LICENSE = "Bring your own license"
_GUARANTEED_NETWORK = re.compile(r"(?:(\d+)x )?(\d+(?:\.\d+)?) Gigabit")
# Trainium is listed only as a neuron device, AI100 only as an inference accelerator, Inferentia as
# both.
_ACCELERATORS = (
    ("GpuInfo", "Gpus"),
    ("NeuronInfo", "NeuronDevices"),
    ("InferenceAcceleratorInfo", "Accelerators"),
)


def rejecting(parse: Callable[P, T]) -> Callable[P, T]:
    """Makes a parser raise `BadInput` also for a record that does not have the documented
    structure.
    """

    @wraps(parse)
    def parse_or_reject(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return parse(*args, **kwargs)
        except KeyError as error:
            raise BadInput(f"missing {error}") from error
        except MALFORMED as error:
            raise BadInput(str(error)) from error

    return parse_or_reject


@rejecting
def enabled_region(record: ApiRecord) -> str | None:
    """The name of a region that the account may use, else None."""
    name: str = record["RegionName"]
    return None if record.get("OptInStatus") == "not-opted-in" else name


@rejecting
def zone_name(record: ApiRecord) -> tuple[str, str]:
    """A zone's id, which is the same in every account, and its name in this account."""
    return record["ZoneId"], record["ZoneName"]


@rejecting
def price_event(region: str, record: ApiRecord) -> PriceEvent:
    """A spot price change. Each product is a market of its own; the price keeps all digits of the
    API.
    """
    market = Market.of(
        CLOUD,
        region,
        record["AvailabilityZone"],
        record["InstanceType"],
        record["ProductDescription"],
    )
    return PriceEvent(market, parse_time(record["Timestamp"]), parse_usd(record["SpotPrice"]))


@rejecting
def instance_type(record: ApiRecord) -> InstanceType:
    name = record["InstanceType"]
    devices = []
    for info, kind in _ACCELERATORS:
        devices += record.get(info, {}).get(kind, ())
    accelerator: str | None = None
    count = 0
    if devices:
        # A slice of a GPU must not count as a whole one: an eighth of an L4 is not an L4.
        device = devices[0]
        share = Fraction(device.get("GpuPartitionSize", 1)).limit_denominator(64)
        accelerator, count = device["Name"], device["Count" if share == 1 else "LogicalGpuCount"]
        if share != 1:
            accelerator = f"{accelerator} ({share})"

    sizes_mib = [device.get("MemoryInfo", {}).get("SizeInMiB") for device in devices]
    sizes = [round(size_mib / 1024, 1) for size_mib in sizes_mib if size_mib]

    architectures = record.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    usual = [known for known in architectures if known in (X86, ARM)]
    burstable = record.get("BurstablePerformanceSupported")
    baseline = None if burstable is None else baseline_of(name, burstable=burstable)
    usage, modes = record.get("SupportedUsageClasses"), record.get("SupportedBootModes")
    disk_gb = record.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)
    hypervisor = "none" if record.get("BareMetal") else record.get("Hypervisor")
    architecture = next(iter([*usual, *architectures]), None)
    boots, is_spot = modes and " ".join(modes), usage and "spot" in usage
    gpu_gib = sizes[0] if sizes else None
    traits = MachineTraits(
        architecture=architecture,
        baseline=baseline,
        hypervisor=hypervisor,
        boots=boots,
        spot=is_spot,
        accelerator_gib=gpu_gib,
        driver=driver_of(accelerator),
        local_disk_gb=float(disk_gb),
    )

    vcpus = record["VCpuInfo"]["DefaultVCpus"]
    memory_gib = record["MemoryInfo"]["SizeInMiB"] / 1024
    network = network_gbps(record.get("NetworkInfo", {}))
    return InstanceType(
        CLOUD, name, vcpus, memory_gib, accelerator, count, network_gbps=network, traits=traits
    )


def network_gbps(network: ApiRecord) -> float | None:
    """Sustained network speed: the guaranteed one, or the baseline behind "Up to 10 Gigabit" and
    "Moderate".
    """
    guaranteed = _GUARANTEED_NETWORK.fullmatch(network.get("NetworkPerformance", ""))
    if guaranteed:
        return int(guaranteed[1] or 1) * float(guaranteed[2])
    cards = [card.get("BaselineBandwidthInGbps") for card in network.get("NetworkCards", ())]
    return sum(cards) if cards and None not in cards else None


@rejecting
def on_demand_price(region: str, item: str) -> OnDemandPrice | None:
    """The hourly price in one entry of the Price List; None if the entry has no hourly price."""
    entry = json.loads(item)
    attributes = entry["product"]["attributes"]
    terms = entry["terms"].get("OnDemand", {}).values()
    system = attributes["operatingSystem"]
    if not terms or system not in PRICED_SYSTEMS or attributes.get("licenseModel") == _OWN_LICENSE:
        return None

    dated = {
        parse_time(term.get("effectiveDate") or entry["publicationDate"]): term for term in terms
    }
    as_of = max(dated)
    rates = [rate for rate in dated[as_of]["priceDimensions"].values() if rate["unit"] == "Hrs"]
    if len(rates) != 1:
        raise BadInput(f"{len(rates)} hourly rates instead of one")

    usd: str = rates[0]["pricePerUnit"]["USD"]
    if (
        float(usd) == 0
    ):  # in the Price List, 0 means "not sold this way": the price is unknown, not free
        return None

    name = attributes["instanceType"]
    return OnDemandPrice(
        CLOUD, region, name, os_of_product(system), as_of, parse_usd(usd), "aws price list"
    )


@rejecting
def listed_price(region: str, row: ApiRecord) -> OnDemandPrice | None:
    """The hourly price in a row of the public price list; None for anything but a shared machine on
    demand.
    """
    is_other = any(row[column] not in values for column, values in _LISTED.items())
    if is_other or float(row["PricePerUnit"]) == 0:
        return None

    name, system = row["Instance Type"], os_of_product(row["Operating System"])
    as_of, price = parse_time(row["EffectiveDate"]), parse_usd(row["PricePerUnit"])
    return OnDemandPrice(CLOUD, region, name, system, as_of, price, "aws public price list")


def price_page(content: bytes, response: httpx.Response, now: int) -> tuple[int, list[ApiRecord]]:
    """The moment of the file behind a price page, and its entries."""
    try:
        changed = response.headers.get("last-modified")
        regions = json.loads(content)["regions"].values()
        entries = [entry for region in regions for entry in region.values()]
        return (to_micros(parsedate_to_datetime(changed)) if changed else now), entries
    except MALFORMED as error:
        problem = f"aws/-: the price page at {response.url} has another format ({str(error)[:200]})"
        raise NoAnswer(problem, _CURE) from error


@rejecting
def page_price(region: str, as_of: int, entry: ApiRecord) -> OnDemandPrice | None:
    """The hourly price of a Linux machine in an entry of a price page; None if it has none."""
    if float(entry["price"]) == 0:
        return None
    return OnDemandPrice(
        CLOUD,
        region,
        entry["Instance Type"],
        LINUX,
        as_of,
        parse_usd(entry["price"]),
        "aws price page",
    )


@rejecting
def placement_score(
    region: str, name: str, as_of: int, zones: Mapping[str, str], record: ApiRecord
) -> Interruption:
    """The score of one zone; the API returns zone ids, which `zones` maps to this account's zone
    names.
    """
    market = Market.of(CLOUD, region, zones[record["AvailabilityZoneId"]], name)
    return Interruption(
        market, "placement-score", as_of, record["Score"], record["Score"], "aws placement score"
    )


Band = tuple[float, float]
SOURCE = "aws spot advisor"

# What the indices have always meant; the file's own `ranges` take precedence.
_LABELS = {0: "<5%", 1: "5-10%", 2: "10-15%", 3: "15-20%", 4: ">20%"}
_CURE = "fetch again later, or set aws_spot_advisor_url in spotctl's settings"
_LABEL = re.compile(r"<\s*(?P<most>\d+)%|(?P<low>\d+)\s*-\s*(?P<high>\d+)%|>\s*(?P<least>\d+)%")


AdvisorEntry = tuple[str, str, str, Any]
"""One entry of the file: a region, an operating system, an instance type, and what is said of it."""


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


@rejecting
def figures(
    bands: Mapping[int, Band], as_of: int, request: FetchRequest, row: AdvisorEntry
) -> tuple[Interruption, ...]:
    """The interruption band and the saving of a requested market; one entry stands for all zones of
    a region.
    """
    region, system, name, entry = row
    is_in_region = not request.regions or region in request.regions
    if not (is_in_region and request.wants_type(name)):
        return ()

    market = Market.of(CLOUD, region, None, name, system)
    low, high = bands[entry["r"]]
    band = Interruption(market, "monthly-bucket", as_of, low, high, SOURCE)
    if "s" not in entry:
        return (band,)

    saving = entry["s"] / 100
    return band, Interruption(market, "saving", as_of, saving, saving, SOURCE)


def interruption_rows(settings: AwsSettings, request: FetchRequest) -> Iterator[FetchedRows]:
    """The requested entries of the file, which is downloaded with retries, dated by its last
    change, so that fetching it twice counts once.
    """
    import httpx

    rejects = Rejects("aws/-: interruption buckets")

    def download() -> httpx.Response:
        url, seconds = settings.spot_advisor_url, settings.timeout_seconds
        return httpx.get(url, timeout=seconds, follow_redirects=True).raise_for_status()

    try:
        response = settings.retrying().on(may_succeed_later)(download)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = (
            f"aws/-: Spot Advisor at {settings.spot_advisor_url} did not answer: "
            f"{on_one_line(error, 200)}"
        )
        raise NoAnswer(problem, _CURE) from error

    try:
        document = json.loads(response.content)
        bands, entries = bands_of(document), list[AdvisorEntry]()
        for region, systems in document["spot_advisor"].items():
            for system, types in systems.items():
                for name, entry in types.items():
                    entries.append((region, system, name, entry))

        changed = response.headers.get("last-modified")
        as_of = to_micros(parsedate_to_datetime(changed)) if changed else request.until
    except (BadInput, *MALFORMED) as error:
        problem = (
            f"aws/-: Spot Advisor: the file at {response.url} has another format "
            f"({str(error)[:200]})"
        )
        raise NoAnswer(problem, _CURE) from error
    read = rejects.good(partial(figures, bands, as_of, request), entries)
    yield FetchedRows(interruptions=tuple(chain.from_iterable(read)))
    rejects.report()
