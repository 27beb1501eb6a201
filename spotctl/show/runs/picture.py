"""`spotctl status --watch`: a run as a picture of text, which fits a terminal or is as long as it
needs to be.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from bidbrain.arrays import Floats
from bidbrain.billing import usd
from pricing_data.known_clouds import markets_of
from pricing_data.units import HOUR, SECOND, age, counted, to_datetime, usd_text
from spotctl.show.runs.lines import command_progress
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import MarketView, RunView
from spotctl.show.runs.status import shown_loss, spent_text
from spotctl.show.runs.timeline import MachineCount, TimelineEvent
from spotctl.show.terminal import bar_columns, dollars, market_name, percent, sparkline

_UNKNOWN = "-"
_WIDE, _WIDE_WITH_GPUS = 110, 130
"""Narrower terminals get the columns that matter most."""
_SIDE_BY_SIDE = 120
"""From this width on, machines and loss are next to each other."""
_SPARK_NARROW, _SPARK_WIDE = 12, 30
_HEAD_LINES = 3
_HIGHEST_CHART = 15
_MIN_HEIGHT = 5
"""Lines of a run's part of a terminal that is shared by several: its head, and an event."""
_WHOLE_EVENTS = 8
_WHOLE_CHART = 4


class LivePicture:
    """The runs that are watched, within the height of the terminal: each has its part of it, the
    last one the rest."""

    def __init__(self, watched: Sequence[WatchedRun]) -> None:
        self._watched = watched

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Group | Text]:
        width, height = options.max_width, (options.height or options.max_height) - 1
        shown = self._watched[: max(height // _MIN_HEIGHT, 1)]
        left = len(self._watched) - len(shown)
        height -= left > 0

        for number, run in enumerate(shown):
            share = height // (len(shown) - number)
            height -= share
            yield fitting(run, width, share - (len(shown) > 1))
            if len(shown) > 1:
                yield Text()

        if left:
            yield _cut(
                Text(f"and {counted(left, 'more run')}: spotctl status --watch JOB", style="dim"),
                width,
            )


def fitting(run: WatchedRun, width: int, height: int) -> Group:
    """A run in at most `height` lines: its head always, then charts and prices as far as there is
    room, and events in the rest."""
    parts: list[RenderableType] = [
        _lines([_cut(line, width) for line in head(run.view)][: max(height, 1)])
    ]
    room = height - _HEAD_LINES
    chart = min(room // 4, _HIGHEST_CHART)

    if chart > 0:
        if width < _SIDE_BY_SIDE:
            parts += [footprint(run, width, chart), losses(run, width, 1)]
            room -= chart + 3
        else:
            side, table = (width - 2) // 2, Table.grid(padding=(0, 2, 0, 0))
            table.add_row(footprint(run, side, chart), losses(run, side, chart))
            parts.append(table)
            room -= chart + 1

    most = min(len(run.view.markets), max(height // 6, 2), room - 1)
    if most > 0:
        parts.append(markets(run, width, most))
        room -= most + 1

    if room > 1:
        parts += [_title("events", "newest first", width), events(run.events[-room + 1 :], width)]
    return Group(*parts)


def whole(run: WatchedRun, width: int) -> Group:
    """A run in as many lines as it needs, for output that is no terminal."""
    return Group(
        _lines(head(run.view)),
        footprint(run, width, _WHOLE_CHART),
        losses(run, width, 1),
        markets(run, width, len(run.view.markets)),
        _title("events", "newest first", width),
        events(run.events[-_WHOLE_EVENTS:], width),
    )


def head(view: RunView) -> list[Text]:
    """Three lines: the run with its progress, its cost, and its machines."""
    progress = [view.status]
    if view.command is not None:
        progress.append(command_progress(view.command))
    if view.stage is not None:
        progress.append(f"stage {view.stage}")
    if view.clock is not None:
        of_goal = "" if view.goal is None else f" of {view.goal:,}"
        progress.append(f"clock {view.clock:,}{of_goal}")
    if view.model_loss is not None:
        progress.append(f"loss {shown_loss(view.model_loss)}")
    first = Text(view.run, style="bold").append(f"   {'   '.join(progress)}", style="not bold")
    warned = f" ({view.warned} warned)" if view.warned else ""
    machines = f"machines {view.reliable} reliable + {view.transient} spot{warned}"
    machines += f"   evictions {view.evictions}   market time {clock(view.now)}"

    money, cost = view.money, f"spent {spent_text(view)}"
    if money.budget is not None:
        cost += f" of {_usd(money.budget)} budget ({percent(money.used)})"
    unknown = money.on_demand_unknown
    on_demand = f"unknown: {unknown}" if unknown else _usd(money.on_demand)
    cost += f"   on demand {on_demand}"
    if money.saved is not None:
        word = "saved" if money.saved >= 0 else "more expensive"
        cost += f": {percent(abs(money.saved))} {word}"
    cost += "   replayed" if view.is_replayed else ""
    return [first, Text(cost), Text(machines)]


def footprint(run: WatchedRun, width: int, height: int) -> Text:
    """Machines over time, from the start of the run to now."""
    view = run.view
    most = max((count.reliable + count.transient for count in run.footprint), default=0)
    values = over_time(run.footprint, view.started, view.now, width)
    micros = view.now - view.started
    hours = micros / HOUR
    span = f"{hours:.1f} h" if 1 <= hours < 48 else age(micros / SECOND)
    title = _title("machines", f"over {span}, at most {most}", width)
    return _lines([title, *_chart(values, most, height, "green")])


def losses(run: WatchedRun, width: int, height: int) -> Text:
    """The loss by clock."""
    if not run.losses:
        return _title("loss", "not reported yet", width)

    known = np.array([loss for _, loss in run.losses])
    clocks = np.array([clock for clock, _ in run.losses])
    places = np.linspace(clocks[0], clocks[-1], width)
    values = np.interp(places, clocks, known)
    first = f"{known[0]:.4g} at clock {clocks[0]:,}"
    last = f"{known[-1]:.4g} at clock {clocks[-1]:,}"
    title = _title("loss", f"{first}, {last}", width)
    return _lines([title, *_chart(values, float(known.max()), height, "magenta")])


def markets(run: WatchedRun, width: int, most: int) -> Table:
    """Prices by market, those with machines first; at most `most` rows."""
    wide, lines = width >= _WIDE, run.view.markets
    synthetic = not wide and any(line.market.is_synthetic for line in lines)
    table = Table(box=None, header_style="bold", pad_edge=False)
    heading = "prices (synthetic)" if synthetic else "prices"
    table.add_column(heading, no_wrap=True, overflow="ellipsis")
    for name in ("machines", "spot", "bid", "on demand"):
        table.add_column(name, justify="right", no_wrap=True)
    gpus = any(line.gpus is not None for line in lines)
    sparks = width >= _WIDE_WITH_GPUS or not gpus
    for name in ("gpu", "memory") if gpus else ():
        table.add_column(name, justify="right", no_wrap=True)
    if sparks:
        table.add_column("since the run started" if wide else "", no_wrap=True)

    for line in lines[:most]:
        full = (
            market_name(line.market)
            if wide
            else Text(f"{line.market.zone}/{line.market.instance_type}")
        )
        price = run.price_of(line)
        spot = _UNKNOWN if price is None else dollars(price)
        cells: list[str | Text] = [machines_of(line), spot, bid_text(line), dollars(line.on_demand)]
        if gpus:
            cells += ("", "") if line.gpus is None else map(percent, line.gpus)
        if sparks:
            series = run.prices.get(line.market)
            spark = (
                "" if series is None else sparkline(series, _SPARK_WIDE if wide else _SPARK_NARROW)
            )
            cells.append(Text(spark, style="cyan"))
        table.add_row(full, *cells, style="" if line.machines else "dim")

    return table


def machines_of(line: MarketView) -> str:
    """`3`, or `3 (1!)` if one of them has an eviction warning."""
    return str(line.machines) if not line.warned else f"{line.machines} ({line.warned}!)"


def bid_text(line: MarketView) -> str:
    """The highest bid that is held, or what stands for it: `reliable`, `reserved`, `none` on a
    cloud without bids.
    """
    if line.reliable or line.market.reservation:
        return "reliable" if line.reliable else "reserved"
    if not markets_of(line.market.cloud).takes_bids:
        return "none"
    return _UNKNOWN if line.bid is None else dollars(line.bid)


def events(shown: Sequence[TimelineEvent], width: int) -> Text:
    """A line per event, the newest first."""
    lines = [
        Text.assemble((f"{clock(event.at)}  ", "dim"), str(event)) for event in reversed(shown)
    ]
    return _lines([_cut(line, width) for line in lines])


def clock(at: int) -> str:
    """The time of day. The date is left out to save width."""
    return to_datetime(at).strftime("%H:%M:%S")


def _title(name: str, what: str, width: int) -> Text:
    return _cut(Text.assemble((name, "bold"), (f"  {what}", "dim")), width)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def _lines(lines: Sequence[Text]) -> Text:
    return Text("\n").join(lines)


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
    return [Text(line, style=style) for line in bar_columns(values, top, height)]


def _usd(amount: int | None) -> str:
    return _UNKNOWN if amount is None else usd_text(usd(amount))
