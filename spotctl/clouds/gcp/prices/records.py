"""Parsers of Google's records: machine types with the components of their prices, SKUs and capacity
history. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from pricing_data.availability import Interruption
from pricing_data.catalog import ARM, X86, InstanceType, MachineTraits
from pricing_data.errors import BadInput, CloudError, UnknownPrice
from pricing_data.fetched_rows import PriceEvent
from pricing_data.market import NO_ZONE, Market
from pricing_data.series import WatchRecord, union
from pricing_data.sources.base import Rejects
from pricing_data.units import (
    LATEST,
    MAX_USD_PER_HOUR,
    NANOS_PER_DOLLAR,
    Span,
    parse_time,
    to_micros,
)
from spotctl.clouds.gcp.machine_types import API_NAMES, gpu_name

CLOUD = "gcp"

_OTHER_CARDS = {"a3-megagpu-8g": "nvidia-h100-mega-80gb"}
# The local SSDs that come with a machine.
_BUNDLED_SSDS = {
    **{f"a2-ultragpu-{count}g": count for count in (1, 2, 4, 8)},
    **{f"a3-highgpu-{count}g": 2 * count for count in (1, 2, 4, 8)},
    "a3-megagpu-8g": 16, "a3-ultragpu-8g": 32,
}  # fmt: skip
# These have a fraction of one GPU, which the API counts as a whole one.
_GPU_SHARES = {"g4-standard-6": "1/8", "g4-standard-12": "1/4", "g4-standard-24": "1/2"}


_SSD_GB = 375
_ARCHITECTURES = {"X86_64": X86, "ARM64": ARM}
_RETIRED = ("OBSOLETE", "DELETED")


@dataclass(frozen=True, slots=True)
class GcpMachine:
    """A machine type. `gpu` is the API's name (`nvidia-tesla-a100`); `ssds` counts only bundled
    local SSDs. `retires` is since when it cannot be rented any more."""

    name: str
    vcpus: int
    memory_mib: int
    gpu: str | None = None
    gpus: int = 0
    ssds: int = 0
    architecture: str | None = None
    retires: int | None = None

    @property
    def instance_type(self) -> InstanceType:
        accelerator = gpu_name(self.gpu, _GPU_SHARES.get(self.name)) if self.gpu else None
        traits = MachineTraits(
            self.architecture, local_disk_gb=self.ssds * _SSD_GB or None, retires=self.retires
        )
        memory = self.memory_mib / 1024
        return InstanceType(
            CLOUD, self.name, self.vcpus, memory, accelerator, self.gpus, traits=traits
        )


def known_machine(known: InstanceType) -> GcpMachine:
    """A machine type from the catalog; one with a GPU of an unknown name will have no price."""
    usual = API_NAMES.get(known.accelerator, known.accelerator) if known.accelerator else None
    gpu = _OTHER_CARDS.get(known.name, usual)
    ssds = _BUNDLED_SSDS.get(known.name, 0)
    return GcpMachine(
        known.name, known.vcpus, round(known.memory_gib * 1024), gpu, known.accelerators, ssds
    )


def machine_of(record: Any) -> GcpMachine:  # noqa: ANN401  # the SDK's messages are not annotated
    """The machine type that a record of the API describes."""
    first = record.accelerators[0] if record.accelerators else None
    retires = None
    if record.deprecated.state in _RETIRED:
        # A deprecated type can still be rented. A type that cannot may have no date from which that
        # holds.
        dates = (date for date in (record.deprecated.obsolete, record.deprecated.deleted) if date)
        retires = min(map(parse_time, dates), default=0)

    machine = GcpMachine(
        name=record.name,
        vcpus=record.guest_cpus,
        memory_mib=record.memory_mb,
        gpu=first.guest_accelerator_type if first else None,
        gpus=first.guest_accelerator_count if first else 0,
        ssds=record.bundled_local_ssds.partition_count,
        architecture=_ARCHITECTURES.get(record.architecture),
        retires=retires,
    )

    # Reject here, where the record can be named and left out, what the catalog or a market name
    # would reject later.
    Market(CLOUD, "any", NO_ZONE, machine.name)
    if machine.instance_type.accelerators < 0:
        raise BadInput(f"machine type {machine.name} has {machine.gpus} accelerators")
    return machine


def usd_nanos(units: int, nanos: int, currency: str) -> int:
    """An amount of money in nano-dollars.

    >>> usd_nanos(1, 441435835, "USD")
    1441435835
    """
    total = units * NANOS_PER_DOLLAR + nanos
    if currency != "USD":
        raise BadInput(f"the price is in {currency or 'no currency'}, not in USD")
    if not 0 < total <= MAX_USD_PER_HOUR * NANOS_PER_DOLLAR:
        problem = (
            f"the price of {units} dollars and {nanos} nanos is not above 0 and at most "
            f"{MAX_USD_PER_HOUR} dollars"
        )
        raise BadInput(problem)
    return total


Sku = Any
"""google.cloud.billing_v1.Sku, which carries no annotations."""

SOURCE = "gcp price list"

PriceTerm = Literal["on-demand", "spot"]
PricedResource = Literal["core", "ram", "gpu", "ssd"]


class PricePart(NamedTuple):
    """One component of a machine's price: a resource `of` a machine series or GPU."""

    resource: PricedResource
    of: str


UnitRate = tuple[Fraction, int]
"""Nano-dollars per hour for one unit of a part (vCPU, GiB, GPU), or for a whole machine, and when
that price took effect."""
RateKey = tuple[str, PriceTerm, PricePart]


@dataclass(frozen=True, slots=True)
class Rates:
    """The price list: the rate of each part in each region, and the parts whose entries could not
    be used.
    """

    known: dict[RateKey, UnitRate] = field(default_factory=dict)
    unclear: dict[RateKey, str] = field(default_factory=dict)

    def rate(self, key: RateKey) -> UnitRate:
        """Raises `UnknownPrice` if the price list has no usable rate."""
        region, term, part = key
        if key in self.unclear:
            problem = f"{term} {part.resource} of {part.of} in {region}: {self.unclear[key]}"
            raise UnknownPrice(problem)
        if key not in self.known:
            problem = f"{term} {part.resource} of {part.of} in {region} is not on the price list"
            raise UnknownPrice(problem)

        return self.known[key]


# The first parts of a machine type's name, and the series' name in the descriptions. Left out on
# purpose: memory- optimized series (several overlapping entries), series with other disk sizes
# (Z3), and `n1-megamem` and `n1-ultramem`, which are billed as M1.
_SERIES = {
    "a2": "A2 Instance",
    "a3-highgpu": "A3 Instance",
    "a3-megagpu": "A3Plus Instance",
    "a3-ultragpu": "A3Ultra Instance",
    "c2": "Compute optimized",
    "c2d": "C2D AMD Instance",
    "c3": "C3 Instance",
    "c3d": "C3D Instance",
    "c4": "C4 Instance",
    "c4a": "C4A Arm Instance",
    "c4d": "C4D Instance",
    "e2": "E2 Instance",
    "g2": "G2 Instance",
    "n1-highcpu": "N1 Predefined Instance",
    "n1-highmem": "N1 Predefined Instance",
    "n1-standard": "N1 Predefined Instance",
    "n2": "N2 Instance",
    "n2d": "N2D AMD Instance",
    "n4": "N4 Instance",
    "n4a": "N4A Instance",
    "n4d": "N4D Instance",
    "t2a": "T2A Arm Instance",
    "t2d": "T2D AMD Instance",
}
_CARDS = {
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB",
    "nvidia-h100-80gb": "Nvidia H100 80GB",
    "nvidia-h100-mega-80gb": "Nvidia H100 80GB Mega",
    "nvidia-h200-141gb": "H200 141GB",
    "nvidia-l4": "Nvidia L4",
    "nvidia-tesla-a100": "Nvidia Tesla A100",
    "nvidia-tesla-p100": "Nvidia Tesla P100",
    "nvidia-tesla-p4": "Nvidia Tesla P4",
    "nvidia-tesla-t4": "Nvidia Tesla T4",
    "nvidia-tesla-v100": "Nvidia Tesla V100",
}
_SSDS = {"c4": "C4 Instance", "c4a": "C4A Instance", "c4d": "C4D Instance"}
_ANY_SSD = "any series"
# Newer regions use other names for some of them.
_SYNONYMS = {
    "Compute optimized Instance": "Compute optimized",
    "Nvidia H100 80GB Plus": "Nvidia H100 80GB Mega",
}
_PRICED = frozenset(
    [PricePart(resource, series) for series in _SERIES.values() for resource in ("core", "ram")]
    + [PricePart("gpu", card) for card in _CARDS.values()]
    + [PricePart("ssd", series) for series in (*_SSDS.values(), _ANY_SSD)]
)

_INSTANCE = re.compile(
    r"(?P<spot>Spot Preemptible )?(?P<of>.+?) (?P<resource>Core|Ram) running in .+"
)
_GPU = re.compile(r"(?P<of>.+?) GPU (?P<spot>attached to Spot Preemptible VMs )?running in .+")
_SSD = re.compile(r"(?P<spot>Spot Preemptible )?(?P<of>.+?) Local SSD running in .+")
_COMMON_SSD = re.compile(
    r"SSD backed Local Storage(?P<spot> attached to Spot Preemptible VMs)?(?: (?:running )?in .+)?"
)

_SSD_GIB = 375
# Google bills a month as 730 hours.
_HOURS = {"h": 1, "GiBy.h": 1, "GiBy.mo": 730}
_UNITS = {"core": ("h",), "gpu": ("h",), "ram": ("GiBy.h",), "ssd": ("GiBy.mo", "GiBy.h")}
# Shared-core machines show two vCPUs and are billed for a fraction of one.
_BILLED_VCPUS = {"e2-micro": Fraction(1, 4), "e2-small": Fraction(1, 2), "e2-medium": Fraction(1)}


def rates_of(skus: Iterable[Sku]) -> Rates:
    """The rates on a price list. Rates that contradict each other or cannot be read are
    unusable."""
    rates = Rates()
    for sku in skus:
        named = part_of(sku.description)
        if named is None or (named[0] == "on-demand" and sku.category.usage_type != "OnDemand"):
            continue
        term, part = named
        keys: list[RateKey] = [(region, term, part) for region in sku.service_regions]
        try:
            if not sku.pricing_info:
                raise BadInput("it has no price")
            newest = sku.pricing_info[-1]
            expression = newest.pricing_expression
            unit, tiers = expression.usage_unit, expression.tiered_rates
            if unit not in _UNITS[part.resource]:
                raise BadInput(f"the {part.resource} is priced per {unit or 'no unit'}")
            if len(tiers) != 1:
                raise BadInput(f"it has {len(tiers)} price tiers instead of one")
            if "effective_time" not in newest:
                raise BadInput("the price has no start time")

            money = tiers[0].unit_price
            nanos = usd_nanos(money.units, money.nanos, money.currency_code)
            rate = Fraction(nanos, _HOURS[unit]), to_micros(newest.effective_time)
        except BadInput as error:
            rates.unclear.update(dict.fromkeys(keys, f"SKU {sku.sku_id}: {error}"))
            continue
        for key in keys:
            known, _ = rates.known.setdefault(key, rate)
            if known != rate[0]:
                rates.unclear[key] = f"SKU {sku.sku_id}: another SKU gives another price"

    return rates


def part_of(description: str) -> tuple[PriceTerm, PricePart] | None:
    """The part that a SKU prices; `None` if it is part of no machine priced here.

    >>> part_of("Spot Preemptible N2D AMD Instance Core running in Americas")
    ('spot', PricePart(resource='core', of='N2D AMD Instance'))
    >>> part_of("Nvidia L4 GPU running in Frankfurt")
    ('on-demand', PricePart(resource='gpu', of='Nvidia L4'))
    """
    kinds: tuple[tuple[re.Pattern[str], PricedResource], ...] = (
        (_COMMON_SSD, "ssd"),
        (_SSD, "ssd"),
        (_GPU, "gpu"),
    )

    if instance := _INSTANCE.fullmatch(description):
        kinds = ((_INSTANCE, "core" if instance["resource"] == "Core" else "ram"),)
    for pattern, resource in kinds:
        if match := pattern.fullmatch(description):
            of = match.groupdict().get("of", _ANY_SSD)
            part = PricePart(resource, _SYNONYMS.get(of, of))
            return ("spot" if match["spot"] else "on-demand", part) if part in _PRICED else None

    return None


def recipe(machine: GcpMachine) -> dict[PricePart, Fraction] | None:
    """How many units of each part a machine is billed for; `None` if that is unknown."""
    series, _, rest = machine.name.partition("-")
    kind = f"{series}-{rest.partition('-')[0]}"
    name = _SERIES.get(kind) or _SERIES.get(series)
    if (
        name is None
        or rest.startswith("custom")
        or (machine.gpu is not None and machine.gpu not in _CARDS)
    ):
        return None

    parts = {
        PricePart("core", name): _BILLED_VCPUS.get(machine.name, Fraction(machine.vcpus)),
        PricePart("ram", name): Fraction(machine.memory_mib, 1024),
    }
    if machine.gpu is not None:
        parts[PricePart("gpu", _CARDS[machine.gpu])] = Fraction(machine.gpus)
    if machine.ssds:
        parts[PricePart("ssd", _SSDS.get(series, _ANY_SSD))] = Fraction(machine.ssds * _SSD_GIB)

    return parts


def compose(
    parts: dict[PricePart, Fraction], region: str, term: PriceTerm, rates: Rates
) -> UnitRate:
    """The exact price of a machine with these parts, as of its newest rate; `UnknownPrice` if any
    part's is missing.
    """
    by_part = {part: rates.rate((region, term, part)) for part in parts}
    nanos = sum((own * parts[part] for part, (own, _) in by_part.items()), Fraction(0))
    return nanos, max(as_of for _, as_of in by_part.values())


def quotes(
    machines: Iterable[GcpMachine], region: str, term: PriceTerm, rates: Rates, rejects: Rejects
) -> Iterator[PriceEvent]:
    """The rounded prices of machines whose recipe is known; one with a missing rate is counted in
    `rejects`.
    """
    for machine in machines:
        parts = recipe(machine)
        if parts is None:
            continue
        try:
            nanos, as_of = compose(parts, region, term, rates)
        except UnknownPrice as error:
            rejects.add(f"{machine.name}: {error}")
        else:
            yield PriceEvent(Market(CLOUD, region, NO_ZONE, machine.name), as_of, round(nanos))


# The SDK's messages carry no annotations. These names follow google.cloud.compute_v1.
CapacityHistoryResponse = Any
CapacityHistoryResponsePreemptionRecord = Any
CapacityHistoryResponsePriceRecord = Any
Interval = Any

HISTORY_SOURCE = "gcp capacity history"


class Unsupported(CloudError):
    """The API keeps no history of this machine type; repeating the call changes nothing."""


PriceInterval = tuple[int, int, int]
"""From when until just before when a price is in force, and the price in nano-dollars per hour."""


def market_of(answer: CapacityHistoryResponse, region: str, machine_type: str) -> Market:
    """The market of an answer: a zone if its location names one, else the whole region."""
    place = answer.location.rsplit("/", 1)[-1]
    named = answer.machine_type.rsplit("/", 1)[-1]
    if named not in ("", machine_type):
        raise BadInput(f"requested {machine_type} in {region}, but the answer is about {named}")
    if place.startswith(f"{region}-"):
        return Market(CLOUD, region, place, machine_type)

    if place not in ("", region):
        problem = f"requested {machine_type} in {region}, but the answer is about {answer.location}"
        raise BadInput(problem)
    return Market(CLOUD, region, NO_ZONE, machine_type)


def price_history(
    market: Market, answer: CapacityHistoryResponse, window: Span, rejects: Rejects
) -> tuple[list[PriceEvent], WatchRecord]:
    """The prices in force during a window, and when they are known to have been."""
    read = rejects.good(_price_interval, answer.price_history, partial(_market_of, market))
    ordered = sorted(read)
    events, spans = list[PriceEvent](), list[Span]()
    # Those that reach into the window, each ending where the next one starts.
    for (start, stated_end, price), following in zip_longest(ordered, ordered[1:]):
        end = min(stated_end, following[0] if following else LATEST)
        if end > max(window.start, start) and start <= window.end:
            events.append(PriceEvent(market, start, price))
            spans.append(Span(start, min(end, window.end)))

    return events, WatchRecord(union(spans))


def interruptions(
    market: Market, answer: CapacityHistoryResponse, window: Span, rejects: Rejects
) -> tuple[Interruption, ...]:
    """The preemption rates of the days that ended within a window; the rate of an unfinished day
    still changes.
    """
    read = partial(_interruption, market)
    rates = rejects.good(read, answer.preemption_history, partial(_market_of, market))
    return tuple(rate for rate in rates if window.start < rate.as_of <= window.end)


def _market_of(market: Market, _: object) -> Market:
    """The name of a record that has none: its market."""
    return market


def _price_interval(record: CapacityHistoryResponsePriceRecord) -> PriceInterval:
    start, end = _bounds(record.interval)
    money = record.list_price
    price = usd_nanos(money.units, money.nanos, money.currency_code)
    return start, end or LATEST, price


def _interruption(market: Market, record: CapacityHistoryResponsePreemptionRecord) -> Interruption:
    _, end = _bounds(record.interval)
    if not end or "preemption_rate" not in record:
        raise BadInput(f"the preemptions from {record.interval.start_time} have no end or no rate")
    rate = record.preemption_rate
    return Interruption(market, "preemption-rate", end, rate, rate, HISTORY_SOURCE)


def _bounds(interval: Interval) -> tuple[int, int | None]:
    start = parse_time(interval.start_time)
    end = parse_time(interval.end_time) if interval.end_time else None
    if end is not None and end <= start:
        problem = f"an interval ends at {interval.end_time}, before its start {interval.start_time}"
        raise BadInput(problem)
    return start, end
