"""The ranked offers of `spotctl prices best`."""

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from pricing_data.units import age, format_time
from spotctl.lab.best.offers import RankedOffer
from spotctl.show.layout import plain_table
from spotctl.show.terminal import market_name, percent

_UNKNOWN = "-"


def offers(ranked: Sequence[RankedOffer], now: int, width: int) -> Table:
    """A row per offer; a narrow terminal gets the most important columns, and folds the markets' names.

    Columns that would be empty are left out.
    """
    columns = [
        (name, cell)
        for name, cell, least, gpus_only in _COLUMNS
        if width >= least and (not gpus_only or any(offer.machine.accelerators for offer in ranked))
    ]
    cells = {name: [cell(offer, now) for offer in ranked] for name, cell in columns}
    known = {name: texts for name, texts in cells.items() if set(texts) != {_UNKNOWN}}
    table = plain_table("market", *known)
    for offer, row in zip(ranked, zip(*known.values(), strict=True), strict=True):
        table.add_row(_name(offer), *row)
    return table


def shipped_machines(ranked: Sequence[RankedOffer]) -> list[str]:
    """A line about the machines that no cloud has described yet, and the date of the list that they are from."""
    dates = [offer.machine.as_of for offer in ranked if offer.machine.as_of is not None]
    if not dates:
        return []
    first, last = (format_time(date)[:10] for date in (min(dates), max(dates)))
    when = first if first == last else f"{first} to {last}"
    return [f"vCPUs, memory and GPUs are from the shipped list, as of {when}, unless fetched with credentials"]


def _name(offer: RankedOffer) -> Text:
    name = market_name(offer.market)
    if not offer.estimated:
        return name
    # A list can be years old, and its date says more than its age.
    dated = f", {format_time(offer.seen)[:10]}" if offer.shipped else ""
    return name.append(f" (estimated{dated})", style="yellow")


def _usd(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{value:.4f}" if value < 10 else f"{value:.2f}"


def _gpus(offer: RankedOffer) -> str:
    machine = offer.machine
    return f"{machine.accelerators}x{machine.accelerator}" if machine.accelerators else _UNKNOWN


def _share(value: float | None) -> str:
    return _UNKNOWN if value is None else "<0.1%" if value < 0.001 else f"{value:.1%}"


# Name, cell, the terminal width from which on the column is shown, and whether it is about GPUs only.
_COLUMNS: tuple[tuple[str, Callable[[RankedOffer, int], str], int, bool], ...] = (
    ("GPUs", lambda offer, _: _gpus(offer), 120, True),
    ("GPU GiB", lambda offer, _: str(offer.gpu_memory_gib or _UNKNOWN), 150, True),
    ("vCPUs", lambda offer, _: str(offer.machine.vcpus), 120, False),
    ("GiB", lambda offer, _: f"{offer.machine.memory_gib:g}", 120, False),
    ("$/h", lambda offer, _: _usd(offer.usd_per_hour), 0, False),
    ("$/GPU-h", lambda offer, _: _usd(offer.usd_per_gpu_hour), 0, True),
    ("$/vCPU-h", lambda offer, _: _usd(offer.usd_per_vcpu_hour), 150, False),
    ("$/useful h", lambda offer, _: _usd(offer.usd_per_useful_hour), 90, False),
    ("below list", lambda offer, _: percent(offer.discount), 130, False),
    ("evicted/h", lambda offer, _: _share(offer.eviction), 0, False),
    ("band", lambda offer, _: offer.band or _UNKNOWN, 100, False),
    ("score", lambda offer, _: _UNKNOWN if offer.score is None else f"{offer.score:g}", 170, False),
    ("age", lambda offer, now: age(offer.age_seconds(now)), 0, False),
)
