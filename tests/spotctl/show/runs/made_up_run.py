"""A made-up run as log rows: machines are granted, warned, evicted and replaced. What is made of
it, and its text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Console

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import MINUTE, parse_time
from spotctl.log import events as ev
from spotctl.log.state import LogRow
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import Money, run_view
from spotctl.show.runs.timeline import Timeline, follow

START = parse_time("2026-01-01T00:00:00Z")
CALM = Market("local", "sim-east", "sim-east-a", "c4.xlarge")
WILD = Market("local", "sim-east", "sim-east-b", "c4.xlarge")
ON_DEMAND = 200_000_000


def at(minutes: float) -> int:
    return START + round(minutes * MINUTE)


def order(intent: int, market: Market, bid: int | None, machines: int) -> ev.RentIntended:
    return ev.RentIntended(intent, market, machines, bid, ON_DEMAND, 4.0, bid is None, at(60))


def granted(intent: int, minutes: float, *names: str) -> ev.Rented:
    return ev.Rented(intent, tuple(ev.Granted(name, at(minutes)) for name in names))


def run_events() -> list[tuple[float, ev.Event]]:
    """One reliable machine throughout; three others are evicted with a warning, then one of two
    more without.
    """
    return [
        (0, ev.RunBegan("small", "local", {}, "/nowhere", 0)),
        (0, order(1, CALM, None, 1)),
        (0, granted(1, 0, "r")),
        (1, order(2, WILD, 60_000_000, 4)),
        (1, granted(2, 1, "a", "b", "c")),
        (2, ev.Progressed(10, 0.8, 1)),
        (5, ev.MachineWarned("a", at(7), "eviction", "local")),
        (5, ev.MachineWarned("b", at(7), "eviction", "local")),
        (5, ev.MachineWarned("c", at(7), "eviction", "local")),
        (6, order(3, CALM, 90_000_000, 2)),
        (6, ev.RentRefused(3, "NoCapacity", "none there")),
        (6, order(4, CALM, 95_000_000, 2)),
        (6, granted(4, 6, "d", "e")),
        (7.5, ev.MachineEnded("a", at(7), "evicted")),
        (7.5, ev.MachineEnded("b", at(7), "evicted")),
        (7.5, ev.MachineEnded("c", at(7), "evicted")),
        (8, ev.Progressed(40, 0.2, 2)),
        (9, ev.MachineEnded("d", at(9), "evicted")),
    ]


def rows(events: Sequence[tuple[float, ev.Event]]) -> list[LogRow]:
    return [
        LogRow(number, "small-1", at(minutes), event)
        for number, (minutes, event) in enumerate(events, 1)
    ]


def prices(market: Market) -> PriceSeries | None:
    """Known for WILD only: its price doubles after five minutes."""
    if market != WILD:
        return None
    return PriceSeries(
        WILD, np.array([at(0), at(5), at(10)]), np.array([40_000_000, 80_000_000, 80_000_000])
    )


def watched(
    events: Sequence[tuple[float, ev.Event]],
    minutes: float,
    money: Money | None = None,
    goal: int | None = None,
) -> WatchedRun:
    """The run after some events, as it is watched."""
    timeline = follow(Timeline(), rows(events))
    view = run_view(timeline.state, at(minutes), attended=True, money=money, goal=goal)
    known = {
        line.market: series for line in view.markets if (series := prices(line.market)) is not None
    }
    return WatchedRun(
        view, timeline.footprint, timeline.losses, timeline.events, timeline.state.planned, known
    )


def text(what: object, width: int = 80) -> list[str]:
    """The lines of something that rich prints."""
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(what)
    return [line.rstrip() for line in captured.get().splitlines()]
