"""Ranked offers (`prices best`) as a table and as JSON, and the condition that `prices best
--below` waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.text import Text

from pricing_data.catalog import GPU_MEMORY_GIB
from pricing_data.units import age, counted, format_time, to_usd
from spotctl.home.errors import BadRequest
from spotctl.lab.best.offers import SORTS, RankedOffer, ranked
from spotctl.run.notify import Message
from spotctl.show.columns import UNKNOWN, Column, as_json, chosen, table
from spotctl.show.prices.price_answers import LOST
from spotctl.show.terminal import FRESHNESS, market_name, percent

if TYPE_CHECKING:
    from rich.table import Table


def _usd(value: float) -> str:
    if value < 10:
        return f"{value:.4f}"
    return f"{value:.2f}"


def _share(value: float) -> str:
    if value < 0.001:
        return "<0.1%"
    return f"{value:.1%}"


def _market(offer: RankedOffer) -> Text:
    name = market_name(offer.market)
    if not offer.estimated and not offer.shipped:
        return name

    source = "estimated" if offer.estimated else "list"
    if offer.shipped:
        # A list can be years old, and its date says more than its age.
        day = format_time(offer.seen)[:10]
        source += f", {day}"
    return name.append(f" ({source})", style="yellow")


def _gpus(offer: RankedOffer) -> str:
    machine = offer.machine
    if machine.accelerators:
        return f"{machine.accelerators}x{machine.accelerator}"
    return UNKNOWN


OFFERS: tuple[Column[RankedOffer], ...] = (
    Column("market", "the market", "market", heading="market", cell=_market, form=str),
    Column("usd_per_hour", "current price of a machine", heading="$/h", show=_usd),
    Column("usd_per_gpu_hour", "price per GPU; null without GPUs", heading="$/GPU-h", show=_usd),
    Column("usd_per_vcpu_hour", "price per vCPU", heading="$/vCPU-h", show=_usd),
    Column(
        "usd_per_useful_hour",
        "price per hour of work that evictions do not destroy; null if the eviction rate is "
        "unknown",
        heading="$/useful h",
        show=_usd,
    ),
    Column(
        "eviction",
        "probability of an eviction within an hour, from what the cloud publishes; null if it "
        "publishes nothing",
        heading="evicted/h",
        show=_share,
    ),
    Column(
        "band",
        "published band of interruptions or evictions; null if none is published",
        heading="band",
    ),
    Column(
        "age_seconds", "age of the price", value_at=RankedOffer.age_seconds, heading="age", show=age
    ),
    Column(
        "as_of",
        "moment at which the price was last known to hold, or the date of the list that it is from",
        "seen",
        form=format_time,
    ),
    Column("source", "where the price is from"),
    Column("estimated", "whether the price was estimated from a published discount"),
    Column(
        "placement_score",
        "published placement score, 1 to 10; null if none is stored",
        "score",
        heading="score",
        show="{:g}",
    ),
    Column(
        "discount",
        "price reduction against on demand, as a share",
        lambda offer: 1 - offer.price / offer.on_demand if offer.on_demand else None,
        heading="below list",
        show=percent,
    ),
    Column(
        "on_demand",
        "on-demand price in dollars per hour",
        "on_demand",
        form=to_usd,
    ),
    Column("vcpus", "number of vCPUs of a machine", "machine.vcpus", heading="vCPUs"),
    Column(
        "memory_gib",
        "memory of a machine",
        "machine.memory_gib",
        heading="GiB",
        show="{:g}",
    ),
    Column("gpu", "model of its GPUs; null without", "machine.accelerator"),
    Column(
        "gpus",
        "number of its GPUs",
        "machine.accelerators",
        heading="GPUs",
        cell=_gpus,
    ),
    Column(
        "gpu_memory_gib",
        "memory of one GPU",
        lambda offer: GPU_MEMORY_GIB.get(offer.machine.accelerator or ""),
        heading="GPU GiB",
    ),
    Column(
        "machine_as_of",
        "date of the shipped description of the machine; null if the cloud itself described it",
        "machine.as_of",
        form=format_time,
    ),
    Column("synthetic", "whether the prices are generated", "market.is_synthetic"),
)
BEST: tuple[Column[Any], ...] = (
    Column("offers", "offers in the order of --sort, the best first", each=OFFERS),
    *FRESHNESS,
    Column(
        "removed_by",
        "filter that leaves no offer; absent if an offer fits",
        of=(
            Column("option", "the option", "0"),
            Column(
                "before",
                "number of markets that passed the filters before it",
                "1",
            ),
        ),
        optional=True,
    ),
    *LOST,
)
WATCH: tuple[Column[Any], ...] = (
    Column("holds", "whether the condition holds"),
    Column("condition", "the condition in words"),
    Column("offers", "offers that meet it, the cheapest first", each=OFFERS),
)
_SHOWN_FROM = {
    "market": 0,
    "gpus": 120,
    "gpu_memory_gib": 150,
    "vcpus": 120,
    "memory_gib": 120,
    "usd_per_hour": 0,
    "usd_per_gpu_hour": 0,
    "usd_per_vcpu_hour": 150,
    "usd_per_useful_hour": 90,
    "discount": 130,
    "eviction": 0,
    "band": 100,
    "placement_score": 170,
    "age_seconds": 0,
}
"""The columns of the table in their order, with the width of the terminal from which on each is
shown."""
_ABOUT_GPUS = ("gpus", "gpu_memory_gib", "usd_per_gpu_hour")


def offers_table(offers: Sequence[RankedOffer], now: int, width: int) -> Table:
    """A row per offer; a narrow terminal gets the most important columns, and folds the markets'
    names.

    Columns that would be empty are left out.
    """
    have_gpus, fitting = any(offer.machine.accelerators for offer in offers), list[str]()
    for key, least in _SHOWN_FROM.items():
        if width >= least and (have_gpus or key not in _ABOUT_GPUS):
            fitting.append(key)

    known = list[Column[RankedOffer]]()
    for column in chosen(OFFERS, " ".join(fitting)):
        if any(column.text(offer, now) != UNKNOWN for offer in offers):
            known.append(column)
    return table(known, offers, now=now)


def shipped_machines(offers: Sequence[RankedOffer]) -> list[str]:
    """A line about the machines that no cloud has described yet, and the date of the list that they
    are from.
    """
    dates = [offer.machine.as_of for offer in offers if offer.machine.as_of is not None]
    if not dates:
        return []
    first, last = format_time(min(dates))[:10], format_time(max(dates))[:10]
    when = first
    if first != last:
        when += f" to {last}"
    return [
        f"vCPUs, memory and GPUs are from the shipped list, as of {when}, unless fetched with "
        "credentials"
    ]


_WORDS = {
    "price": "${:,.4g} per hour",
    "gpu": "${:,.4g} per GPU-hour",
    "vcpu": "${:,.4g} per vCPU-hour",
    "useful": "${:,.4g} per useful hour",
    "eviction": "{:.2%} evicted within an hour",
}


@dataclass(frozen=True, slots=True)
class PriceCondition:
    """A limit on a figure of `prices best --sort`; the condition holds while an offer is below the
    limit.
    """

    by: str
    below: float

    def __post_init__(self) -> None:
        if self.by not in _WORDS:
            raise BadRequest(f"--sort {self.by!r} is not one of {', '.join(_WORDS)}")
        if not 0 < self.below < float("inf"):
            raise BadRequest(f"--below {self.below:g} must be above 0")

    @property
    def text(self) -> str:
        """`below $1.5 per GPU-hour`."""
        return f"below {_WORDS[self.by].format(self.below)}"

    def met_by(self, offers: Iterable[RankedOffer]) -> list[RankedOffer]:
        """The offers that meet the condition, the best first."""
        value, met = SORTS[self.by], list[RankedOffer]()
        for offer in ranked(offers, self.by):
            figure = value(offer) or float("inf")
            if figure < self.below:
                met.append(offer)
        return met


def price_message(condition: PriceCondition, offers: Sequence[RankedOffer], now: int) -> Message:
    """The message that a condition holds for these offers; the first is the best."""
    best = offers[0]
    price = f"${best.usd_per_hour:,.4f} per hour"
    if best.estimated:
        price += " (estimated)"
    seen = age(best.age_seconds(now))
    lines = {
        "Condition": condition.text,
        "Price": price,
        "Evicted within an hour": "unknown" if best.eviction is None else f"{best.eviction:.2%}",
        "Price seen": f"{seen} ago",
        "Offers that fit": counted(len(offers), "offer"),
    }

    facts: dict[str, Any] = {"event": "price condition holds", "condition": condition.text}
    facts |= as_json(OFFERS, best, now)
    same = f"{best.market} {best.seen} {best.price} {condition.text}"
    figure = SORTS[condition.by](best)
    assert figure is not None
    title = f"{best.market}: {_WORDS[condition.by].format(figure)}"
    return Message(same, title, good=True, lines=lines, facts=facts)
