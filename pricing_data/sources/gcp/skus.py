"""Machine prices composed of the price list's rates per vCPU, GiB, GPU and local SSD. Pure.

The price list has no field for a machine's series: only the description of a SKU tells what it is the price of, such as
`Spot Preemptible N2 Instance Core running in Americas`. A description is matched whole. What resembles one (custom
machines, sole tenancy, commitments, reservations, Dynamic Workload Scheduler) has other prices and must not slip in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.sources.gcp.machines import Machine
from pricing_data.sources.gcp.money import usd_nanos
from pricing_data.sources.rejects import Rejects
from pricing_data.units import to_micros

if TYPE_CHECKING:
    from google.cloud.billing_v1 import Sku

SOURCE = "gcp price list"

Term = Literal["on-demand", "spot"]
Resource = Literal["core", "ram", "gpu", "ssd"]


class Part(NamedTuple):
    """One thing a machine is billed for: a resource, and whose (a series of machines, a card)."""

    resource: Resource
    of: str


class Rate(NamedTuple):
    """Nano-dollars an hour for one unit of a part (vCPU, GiB, GPU), as of a time."""

    nanos: Fraction
    as_of: int


class Quote(NamedTuple):
    """A machine's price in nano-dollars an hour, as of the newest of the rates in it."""

    price: int
    as_of: int


Offer = tuple[str, Term, Part]


@dataclass(frozen=True, slots=True)
class Rates:
    """The price list: what each part costs in each region, and which parts' entries could not be understood."""

    known: dict[Offer, Rate] = field(default_factory=dict)
    unclear: dict[Offer, str] = field(default_factory=dict)

    def rate(self, offer: Offer) -> Rate:
        """The rate of an offer."""
        region, term, part = offer
        if offer in self.unclear:
            raise UnknownPrice(f"{term} {part.resource} of {part.of} in {region}: {self.unclear[offer]}")
        if offer not in self.known:
            raise UnknownPrice(f"{term} {part.resource} of {part.of} in {region} is not on the price list")
        return self.known[offer]


# The first parts of a machine type's name, and how the descriptions name its series. Left out on purpose: memory-
# optimised series (several overlapping entries), series with disks of other sizes (Z3), and `n1-megamem` and
# `n1-ultramem`, which are billed as M1.
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
# Regions that opened later spell some of them otherwise.
_SYNONYMS = {"Compute optimized Instance": "Compute optimized", "Nvidia H100 80GB Plus": "Nvidia H100 80GB Mega"}
_PRICED = frozenset(
    [Part(resource, series) for series in _SERIES.values() for resource in ("core", "ram")]
    + [Part("gpu", card) for card in _CARDS.values()]
    + [Part("ssd", series) for series in (*_SSDS.values(), _ANY_SSD)]
)

_INSTANCE = re.compile(r"(?P<spot>Spot Preemptible )?(?P<of>.+?) (?P<resource>Core|Ram) running in .+")
_GPU = re.compile(r"(?P<of>.+?) GPU (?P<spot>attached to Spot Preemptible VMs )?running in .+")
_SSD = re.compile(r"(?P<spot>Spot Preemptible )?(?P<of>.+?) Local SSD running in .+")
_COMMON_SSD = re.compile(
    r"SSD backed Local Storage(?P<spot> attached to Spot Preemptible VMs)?(?: (?:running )?in .+)?"
)

_SSD_GIB = 375
# Google bills a month as 730 hours.
_HOURS = {"h": 1, "GiBy.h": 1, "GiBy.mo": 730}
_UNITS = {"core": ("h",), "gpu": ("h",), "ram": ("GiBy.h",), "ssd": ("GiBy.mo", "GiBy.h")}
# Machines that share a physical core show two vCPUs, and are billed for a part of one.
_BILLED_VCPUS = {"e2-micro": Fraction(1, 4), "e2-small": Fraction(1, 2), "e2-medium": Fraction(1)}


def rates_of(skus: Iterable[Sku]) -> Rates:
    """The rates on a price list. Two that contradict each other, like one that cannot be read, are no rate at all."""
    rates = Rates()
    for sku in skus:
        named = part_of(sku.description)
        if named is None or (named[0] == "on-demand" and sku.category.usage_type != "OnDemand"):
            continue
        term, part = named
        offers: list[Offer] = [(region, term, part) for region in sku.service_regions]
        try:
            rate = _rate(sku, part.resource)
        except BadInput as error:
            rates.unclear.update(dict.fromkeys(offers, f"SKU {sku.sku_id}: {error}"))
            continue
        for offer in offers:
            if rates.known.setdefault(offer, rate).nanos != rate.nanos:
                rates.unclear[offer] = f"SKU {sku.sku_id}: another SKU gives another price"
    return rates


def part_of(description: str) -> tuple[Term, Part] | None:
    """What a SKU is the price of; `None` for all that no machine here is composed of.

    >>> part_of("Spot Preemptible N2D AMD Instance Core running in Americas")
    ('spot', Part(resource='core', of='N2D AMD Instance'))
    >>> part_of("Nvidia L4 GPU running in Frankfurt")
    ('on-demand', Part(resource='gpu', of='Nvidia L4'))
    """
    kinds: tuple[tuple[re.Pattern[str], Resource], ...] = ((_COMMON_SSD, "ssd"), (_SSD, "ssd"), (_GPU, "gpu"))
    if instance := _INSTANCE.fullmatch(description):
        kinds = ((_INSTANCE, "core" if instance["resource"] == "Core" else "ram"),)
    for pattern, resource in kinds:
        if match := pattern.fullmatch(description):
            of = match.groupdict().get("of", _ANY_SSD)
            part = Part(resource, _SYNONYMS.get(of, of))
            return ("spot" if match["spot"] else "on-demand", part) if part in _PRICED else None
    return None


def recipe(machine: Machine) -> dict[Part, Fraction] | None:
    """How much of which parts a machine is billed for; `None` where that is not known."""
    series, _, rest = machine.name.partition("-")
    kind = f"{series}-{rest.partition('-')[0]}"
    name = _SERIES.get(kind) or _SERIES.get(series)
    if name is None or rest.startswith("custom") or (machine.gpu is not None and machine.gpu not in _CARDS):
        return None
    parts = {
        Part("core", name): _BILLED_VCPUS.get(machine.name, Fraction(machine.vcpus)),
        Part("ram", name): Fraction(machine.memory_mib, 1024),
    }
    if machine.gpu is not None:
        parts[Part("gpu", _CARDS[machine.gpu])] = Fraction(machine.gpus)
    if machine.ssds:
        parts[Part("ssd", _SSDS.get(series, _ANY_SSD))] = Fraction(machine.ssds * _SSD_GIB)
    return parts


def compose(parts: dict[Part, Fraction], region: str, term: Term, rates: Rates) -> Quote:
    """The price of a machine of these parts, rounded once; `UnknownPrice` if any part's rate is missing."""
    found = {part: rates.rate((region, term, part)) for part in parts}
    nanos = sum((rate.nanos * parts[part] for part, rate in found.items()), Fraction(0))
    return Quote(round(nanos), max(rate.as_of for rate in found.values()))


def quotes(
    machines: Iterable[Machine], region: str, term: Term, rates: Rates, rejects: Rejects
) -> Iterator[tuple[Machine, Quote]]:
    """The prices of the machines whose recipe is known; those with a part whose rate is missing are rejected."""
    for machine in machines:
        parts = recipe(machine)
        if parts is None:
            continue
        try:
            quote = compose(parts, region, term, rates)
        except UnknownPrice as error:
            rejects.add(f"{machine.name}: {error}")
        else:
            yield machine, quote


def _rate(sku: Sku, resource: Resource) -> Rate:
    if not sku.pricing_info:
        raise BadInput("no price")
    newest = sku.pricing_info[-1]
    expression = newest.pricing_expression
    if expression.usage_unit not in _UNITS[resource]:
        raise BadInput(f"a {resource} priced by {expression.usage_unit or 'no unit'}")
    if len(expression.tiered_rates) != 1:
        raise BadInput(f"{len(expression.tiered_rates)} tiers instead of one")
    if "effective_time" not in newest:
        raise BadInput("a price without the time it holds from")
    money = expression.tiered_rates[0].unit_price
    nanos = usd_nanos(money.units, money.nanos, money.currency_code)
    # proto-plus gives a datetime where its annotations promise a Timestamp.
    as_of = to_micros(cast(datetime, newest.effective_time))
    return Rate(Fraction(nanos, _HOURS[expression.usage_unit]), as_of)
