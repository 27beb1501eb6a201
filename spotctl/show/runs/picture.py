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
    first = [_cut(line, width) for line in head(run.view)]
    parts: list[RenderableType] = [Text("\n").join(first[: max(height, 1)])]
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
        latest = run.events[-room + 1 :]
        parts += [_title("events", "newest first", width), events(latest, width)]
    return Group(*parts)


def whole(run: WatchedRun, width: int) -> Group:
    """A run in as many lines as it needs, for output that is no terminal."""
    latest, every_market = run.events[-_WHOLE_EVENTS:], len(run.view.markets)
    return Group(
        Text("\n").join(head(run.view)),
        footprint(run, width, _WHOLE_CHART),
        losses(run, width, 1),
        markets(run, width, every_market),
        _title("events", "newest first", width),
        events(latest, width),
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
    first = Text(view.run, style="bold")
    first.append(f"   {'   '.join(progress)}", style="not bold")

    money, cost = view.money, f"spent {spent_text(view)}"
    if money.budget is not None:
        budget, used = _usd(money.budget), percent(money.used)
        cost += f" of {budget} budget ({used})"
    unknown = money.on_demand_unknown
    on_demand = f"unknown: {unknown}" if unknown else _usd(money.on_demand)
    cost += f"   on demand {on_demand}"
    if money.saved is not None:
        word = "saved" if money.saved >= 0 else "more expensive"
        cost += f": {percent(abs(money.saved))} {word}"
    if view.is_replayed:
        cost += "   replayed"

    machines = f"machines {view.reliable} reliable + {view.transient} spot"
    if view.warned:
        machines += f" ({view.warned} warned)"
    machines += f"   evictions {view.evictions}   market time {clock(view.now)}"
    return [first, Text(cost), Text(machines)]


def footprint(run: WatchedRun, width: int, height: int) -> Text:
    """Machines over time, from the start of the run to now."""
    view = run.view
    most = max((count.reliable + count.transient for count in run.footprint), default=0)
    values = over_time(run.footprint, view.started, view.now, width)
    micros = view.now - view.started
    hours = micros / HOUR
    span = age(micros / SECOND)
    if 1 <= hours < 48:
        span = f"{hours:.1f} h"
    title = _title("machines", f"over {span}, at most {most}", width)
    bars = bar_columns(values, most, height)
    return Text("\n").join([title, *(Text(line, style="green") for line in bars)])


def losses(run: WatchedRun, width: int, height: int) -> Text:
    """The loss by clock."""
    if not run.losses:
        return _title("loss", "not reported yet", width)

    known = np.array([loss for _, loss in run.losses])
    clocks = np.array([clock for clock, _ in run.losses])
    begin, end = clocks[0], clocks[-1]
    places = np.linspace(begin, end, width)
    values = np.interp(places, clocks, known)
    first, last = f"{known[0]:.4g} at clock {begin:,}", f"{known[-1]:.4g} at clock {end:,}"
    title = _title("loss", f"{first}, {last}", width)
    highest = float(known.max())
    bars = bar_columns(values, highest, height)
    return Text("\n").join([title, *(Text(line, style="magenta") for line in bars)])


def markets(run: WatchedRun, width: int, most: int) -> Table:
    """Prices by market, those with machines first; at most `most` rows."""
    wide, lines = width >= _WIDE, run.view.markets
    synthetic = not wide and any(line.market.is_synthetic for line in lines)
    table = Table(box=None, header_style="bold", pad_edge=False)
    heading = "prices (synthetic)" if synthetic else "prices"
    table.add_column(heading, no_wrap=True, overflow="ellipsis")
    gpus = any(line.gpus is not None for line in lines)
    names = ["machines", "spot", "bid", "on demand"]
    if gpus:
        names += ["gpu", "memory"]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    sparks = width >= _WIDE_WITH_GPUS or not gpus
    if sparks:
        table.add_column("since the run started" if wide else "", no_wrap=True)

    for line in lines[:most]:
        full: Text | str = Text(f"{line.market.zone}/{line.market.instance_type}")
        if wide:
            full = market_name(line.market)
        price, listed = run.price_of(line), dollars(line.on_demand)
        spot = _UNKNOWN if price is None else dollars(price)
        cells: list[str | Text] = [machines_of(line), spot, bid_text(line), listed]
        if gpus:
            cells += ("", "") if line.gpus is None else map(percent, line.gpus)
        if sparks:
            series, spark = run.prices.get(line.market), ""
            if series is not None:
                spark = sparkline(series, _SPARK_WIDE if wide else _SPARK_NARROW)
            cells.append(Text(spark, style="cyan"))
        table.add_row(full, *cells, style="" if line.machines else "dim")

    return table


def machines_of(line: MarketView) -> str:
    """`3`, or `3 (1!)` if one of them has an eviction warning."""
    if not line.warned:
        return str(line.machines)
    return f"{line.machines} ({line.warned}!)"


def bid_text(line: MarketView) -> str:
    """The highest bid that is held, or what stands for it: `reliable`, `reserved`, `none` on a
    cloud without bids.
    """
    if line.reliable or line.market.reservation:
        return "reliable" if line.reliable else "reserved"
    if not markets_of(line.market.cloud).takes_bids:
        return "none"
    if line.bid is None:
        return _UNKNOWN
    return dollars(line.bid)


def events(shown: Sequence[TimelineEvent], width: int) -> Text:
    """A line per event, the newest first."""
    lines = list[Text]()
    for event in reversed(shown):
        time = (f"{clock(event.at)}  ", "dim")
        line = Text.assemble(time, str(event))
        lines.append(_cut(line, width))
    return Text("\n").join(lines)


def clock(at: int) -> str:
    """The time of day. The date is left out to save width."""
    return to_datetime(at).strftime("%H:%M:%S")


def _title(name: str, what: str, width: int) -> Text:
    return _cut(Text.assemble((name, "bold"), (f"  {what}", "dim")), width)


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def over_time(counts_at: Sequence[MachineCount], begin: int, end: int, width: int) -> Floats:
    """The mean number of machines in each of `width` equal intervals."""
    after = max(end, begin + SECOND)
    edges = np.linspace(begin, after, width + 1)
    moments, machines = [begin], [0]
    for count in counts_at:
        moments.append(count.at)
        machines.append(count.reliable + count.transient)

    times, counts = np.array(moments, dtype=float), np.array(machines, dtype=float)
    between = counts[:-1] * np.diff(times)
    passed = np.concatenate([[0.0], np.cumsum(between)])
    at = np.searchsorted(times, edges, "right") - 1
    since = edges - times[at]
    area = passed[at] + counts[at] * since
    means: Floats = np.diff(area) / np.diff(edges)
    return means


def _usd(amount: int | None) -> str:
    if amount is None:
        return _UNKNOWN
    return usd_text(usd(amount))
