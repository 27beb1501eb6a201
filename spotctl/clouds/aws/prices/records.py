"""Parsers of AWS's records. Pure: no SDK, no network.

A parser takes one record as the API gives it and raises `BadInput` if it cannot read it.
"""

import json
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import wraps
from typing import ParamSpec, TypeVar

from pricing_data.accelerators import driver_of
from pricing_data.availability import Interruption
from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits, OnDemandPrice
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import PriceEvent
from pricing_data.market import Market, os_of_product
from pricing_data.units import parse_time, parse_usd
from spotctl.clouds.aws.machine_types import baseline_of
from spotctl.clouds.errors import ApiRecord

P = ParamSpec("P")
T = TypeVar("T")

CLOUD = "aws"
PRICED_SYSTEMS = ("Linux", "Windows", "RHEL", "SUSE")
"""Operating systems as the Price List spells them; the others (Ubuntu Pro, RHEL with HA) have no spot market."""

MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)
"""Errors of parsing an answer that does not have the documented structure."""

# Rows of plain machines in the public price list; other rows are dedicated, reserved, or with software.
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
# Trainium is listed only as a neuron device, AI100 only as an inference accelerator, Inferentia as both.
_ACCELERATORS = (("GpuInfo", "Gpus"), ("NeuronInfo", "NeuronDevices"), ("InferenceAcceleratorInfo", "Accelerators"))


def rejecting(parse: Callable[P, T]) -> Callable[P, T]:
    """Makes a parser raise `BadInput` also for a record that does not have the documented structure."""

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
    """A spot price change. Each product is a market of its own; the price keeps all digits of the API."""
    market = Market.of(CLOUD, region, record["AvailabilityZone"], record["InstanceType"], record["ProductDescription"])
    return PriceEvent(market, parse_time(record["Timestamp"]), parse_usd(record["SpotPrice"]))


@rejecting
def instance_type(record: ApiRecord) -> InstanceType:
    accelerator, count = _accelerator(record)
    return InstanceType(
        CLOUD,
        record["InstanceType"],
        vcpus=record["VCpuInfo"]["DefaultVCpus"],
        memory_gib=record["MemoryInfo"]["SizeInMiB"] / 1024,
        accelerator=accelerator,
        accelerators=count,
        network_gbps=network_gbps(record.get("NetworkInfo", {})),
        traits=_traits(record, accelerator),
    )


def _traits(record: ApiRecord, accelerator: str | None) -> MachineTraits:
    architectures = record.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    usual = (name for name in architectures if name in (X86, ARM))
    burstable, usage, modes = map(
        record.get, ("BurstablePerformanceSupported", "SupportedUsageClasses", "SupportedBootModes")
    )
    return MachineTraits(
        architecture=next(usual, next(iter(architectures), None)),
        baseline=None if burstable is None else baseline_of(record["InstanceType"], burstable=burstable),
        hypervisor="none" if record.get("BareMetal") else record.get("Hypervisor"),
        boots=modes and " ".join(modes),
        spot=usage and "spot" in usage,
        accelerator_gib=_accelerator_gib(record),
        driver=driver_of(accelerator),
        local_disk_gb=float(record.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
    )


def _accelerator_gib(record: ApiRecord) -> float | None:
    devices = (device for info, name in _ACCELERATORS for device in record.get(info, {}).get(name, ()))
    sizes = (device.get("MemoryInfo", {}).get("SizeInMiB") for device in devices)
    return next((round(size / 1024, 1) for size in sizes if size), None)


def _accelerator(record: ApiRecord) -> tuple[str | None, int]:
    for info, devices in _ACCELERATORS:
        for device in record.get(info, {}).get(devices, ()):
            share = Fraction(device.get("GpuPartitionSize", 1)).limit_denominator(64)
            # A slice of a GPU must not count as a whole one: an eighth of an L4 is not an L4.
            count = device["Count"] if share == 1 else device["LogicalGpuCount"]
            return (device["Name"] if share == 1 else f"{device['Name']} ({share})"), count
    return None, 0


def network_gbps(network: ApiRecord) -> float | None:
    """Sustained network speed: the guaranteed one, or the baseline behind "Up to 10 Gigabit" and "Moderate"."""
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
    dated = {parse_time(term.get("effectiveDate") or entry["publicationDate"]): term for term in terms}
    as_of = max(dated)
    usd = _hourly_usd(dated[as_of])
    if float(usd) == 0:  # in the Price List, 0 means "not sold this way": the price is unknown, not free
        return None
    name = attributes["instanceType"]
    return OnDemandPrice(CLOUD, region, name, os_of_product(system), as_of, parse_usd(usd), "aws price list")


def _hourly_usd(term: ApiRecord) -> str:
    rates = [rate for rate in term["priceDimensions"].values() if rate["unit"] == "Hrs"]
    if len(rates) != 1:
        raise BadInput(f"{len(rates)} hourly rates instead of one")
    usd: str = rates[0]["pricePerUnit"]["USD"]
    return usd


@rejecting
def listed_price(region: str, row: ApiRecord) -> OnDemandPrice | None:
    """The hourly price in a row of the public price list; None for anything but a shared machine on demand."""
    if any(row[column] not in values for column, values in _LISTED.items()) or float(row["PricePerUnit"]) == 0:
        return None
    return OnDemandPrice(
        CLOUD,
        region,
        row["Instance Type"],
        os_of_product(row["Operating System"]),
        parse_time(row["EffectiveDate"]),
        parse_usd(row["PricePerUnit"]),
        "aws public price list",
    )


@rejecting
def placement_score(region: str, name: str, as_of: int, zones: Mapping[str, str], record: ApiRecord) -> Interruption:
    """The score of one zone; the API returns zone ids, which `zones` maps to this account's zone names."""
    market = Market.of(CLOUD, region, zones[record["AvailabilityZoneId"]], name)
    return Interruption(market, "placement-score", as_of, record["Score"], record["Score"], "aws placement score")
