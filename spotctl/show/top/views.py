"""A snapshot of a run as text of a given width and height, for the live view and for `--once`."""

from collections.abc import Sequence
from itertools import islice

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from bidbrain.arrays import Floats
from bidbrain.billing import usd
from pricing_data.known_clouds import markets_of
from pricing_data.units import MINUTE, SECOND, age, to_datetime, usd_text
from spotctl.show.bars import columns, sparkline
from spotctl.show.phrases import spending_text
from spotctl.show.runs.figures import Money
from spotctl.show.terminal import dollars, market_name, percent
from spotctl.show.top.snapshot import MarketLine, RunSnapshot
from spotctl.show.top.timeline import MachineCount, TimelineEvent

_UNKNOWN = "-"
_WIDE, _WIDE_WITH_GPUS = 110, 130
"""Narrower terminals get the columns that matter most."""
_SPARK_NARROW, _SPARK_WIDE = 12, 30
_ONCE_EVENTS = 8
_ONCE_CHART = 4


def head(snapshot: RunSnapshot) -> Text:
    """Three lines: the run with its progress, its cost, and its machines."""
    progress = [snapshot.status, *([snapshot.command] if snapshot.command else [])]
    if snapshot.stage is not None:
        progress.append(f"stage {snapshot.stage}")
    if snapshot.clock is not None:
        progress.append(f"clock {snapshot.clock:,}{'' if snapshot.goal is None else f' of {snapshot.goal:,}'}")
    if snapshot.loss is not None:
        progress.append(f"loss {snapshot.loss:.4g}")
    first = Text(snapshot.run, style="bold").append(f"   {'   '.join(progress)}", style="not bold")
    return Text("\n").join([first, Text(_money(snapshot)), Text(_machines(snapshot))])


def _money(snapshot: RunSnapshot) -> str:
    return f"{_compared(snapshot.money)}{'   replayed' if snapshot.is_replayed else ''}"


def _compared(money: Money) -> str:
    spent = f"spent {_UNKNOWN if money.spending is None else spending_text(money.spending)}"
    if money.budget is not None:
        spent += f" of {_usd(money.budget)} budget ({percent(money.used)})"
    if money.saved is None:
        return f"{spent}   on demand {_usd(money.on_demand)}"
    difference = f"{percent(abs(money.saved))} {'saved' if money.saved >= 0 else 'more expensive'}"
    return f"{spent}   on demand {_usd(money.on_demand)}: {difference}"


def _machines(snapshot: RunSnapshot) -> str:
    warned = f" ({snapshot.warned} warned)" if snapshot.warned else ""
    return (
        f"machines {snapshot.reliable} reliable + {snapshot.transient} transient{warned}"
        f"   evictions {snapshot.evictions}   market time {clock(snapshot.now)}"
    )


def footprint(snapshot: RunSnapshot, width: int, height: int) -> Text:
    """Machines over time, from the start of the run to now."""
    most = max((count.reliable + count.transient for count in snapshot.footprint), default=0)
    values = over_time(snapshot.footprint, snapshot.started, snapshot.now, width)
    title = _title("machines", f"over {_span(snapshot.now - snapshot.started)}, at most {most}", width)
    return Text("\n").join([title, *_chart(values, most, height, "green")])


def losses(snapshot: RunSnapshot, width: int, height: int) -> Text:
    """The loss by clock."""
    if not snapshot.losses:
        return _title("loss", "not reported yet", width)
    known = np.array([loss for _, loss in snapshot.losses])
    clocks = np.array([clock for clock, _ in snapshot.losses])
    places = np.linspace(clocks[0], clocks[-1], width)
    values = np.interp(places, clocks, known)
    title = _title("loss", f"{known[0]:.4g} at clock {clocks[0]:,}, {known[-1]:.4g} at clock {clocks[-1]:,}", width)
    return Text("\n").join([title, *_chart(values, float(known.max()), height, "magenta")])


def markets(snapshot: RunSnapshot, width: int, most: int) -> Table:
    """Prices by market, those with machines first; at most `most` rows."""
    wide = width >= _WIDE
    synthetic = not wide and any(line.market.is_synthetic for line in snapshot.markets)
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("prices (synthetic)" if synthetic else "prices", no_wrap=True, overflow="ellipsis")
    for name in ("machines", "spot", "bid", "on demand"):
        table.add_column(name, justify="right", no_wrap=True)
    gpus = any(line.gpus is not None for line in snapshot.markets)
    sparks = width >= _WIDE_WITH_GPUS or not gpus
    for name in ("gpu", "memory") if gpus else ():
        table.add_column(name, justify="right", no_wrap=True)
    if sparks:
        table.add_column("since the run started" if wide else "", no_wrap=True)
    for line in islice(snapshot.markets, most):
        full = market_name(line.market) if wide else Text(f"{line.market.zone}/{line.market.instance_type}")
        cells = [*_market(line), *(_gpus(line) if gpus else ())]
        if sparks:
            cells.append(_spark(line, _SPARK_WIDE if wide else _SPARK_NARROW))
        table.add_row(full, *cells, style="" if line.machines else "dim")
    return table


def _market(line: MarketLine) -> tuple[str | Text, ...]:
    machines = str(line.machines) if not line.warned else f"{line.machines} ({line.warned}!)"
    highest = (
        "none" if not markets_of(line.market.cloud).takes_bids else None if line.bid is None else dollars(line.bid)
    )
    bid = "reliable" if line.reliable else "reserved" if line.market.reservation else highest or _UNKNOWN
    return (
        machines,
        _UNKNOWN if line.price is None else dollars(line.price),
        bid,
        dollars(line.on_demand),
    )


def _gpus(line: MarketLine) -> tuple[str, str]:
    return ("", "") if line.gpus is None else (percent(line.gpus[0]), percent(line.gpus[1]))


def _spark(line: MarketLine, width: int) -> str | Text:
    return "" if line.series is None else Text(sparkline(line.series, width), style="cyan")


def events(shown: Sequence[TimelineEvent], width: int) -> Text:
    """A line per event, the newest first."""
    lines = [Text.assemble((f"{clock(event.at)}  ", "dim"), str(event)) for event in reversed(shown)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n").join(lines)


def once(snapshot: RunSnapshot, width: int) -> Group:
    return Group(
        head(snapshot),
        footprint(snapshot, width, _ONCE_CHART),
        losses(snapshot, width, 1),
        markets(snapshot, width, len(snapshot.markets)),
        _title("events", "newest first", width),
        events(snapshot.events[-_ONCE_EVENTS:], width),
    )


def clock(at: int) -> str:
    """The time of day. The date is left out to save width."""
    return to_datetime(at).strftime("%H:%M:%S")


def _title(name: str, what: str, width: int) -> Text:
    title = Text.assemble((name, "bold"), (f"  {what}", "dim"))
    title.truncate(width, overflow="ellipsis")
    return title


def over_time(counts_at: Sequence[MachineCount], begin: int, end: int, width: int) -> Floats:
    """The mean number of machines in each of `width` equal intervals."""
    edges = np.linspace(begin, max(end, begin + SECOND), width + 1)
    times = np.array([begin, *(count.at for count in counts_at)], dtype=float)
    counts = np.array([0, *(count.reliable + count.transient for count in counts_at)], dtype=float)
    passed = np.concatenate([[0.0], np.cumsum(counts[:-1] * np.diff(times))])
    at = np.searchsorted(times, edges, "right") - 1
    area = passed[at] + counts[at] * (edges - times[at])
    means: Floats = np.diff(area) / np.diff(edges)
    return means


def _chart(values: Floats, top: float, height: int, style: str) -> list[Text]:
    return [Text(line, style=style) for line in columns(values, top, height)]


def _usd(amount: int | None) -> str:
    return _UNKNOWN if amount is None else usd_text(usd(amount))


def _span(micros: int) -> str:
    """`48 min`, `3.2 h`."""
    hours = micros / (60 * MINUTE)
    return f"{hours:.1f} h" if 1 <= hours < 48 else age(micros / SECOND)
