"""`status --watch`: runs as text, within a terminal or as a whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from spotctl.log import events as ev
from spotctl.log.ledger.rows import CostSoFar
from spotctl.show.runs import picture
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import Money
from spotctl.show.runs.timeline import MachineCount
from tests.spotctl.show.runs.made_up_run import CALM, WILD, at, run_events, text, watched

NANO_SECONDS = 3600 * 10**9


def at_ten() -> WatchedRun:
    money = Money(
        CostSoFar(3 * NANO_SECONDS, 3 * NANO_SECONDS), 12 * NANO_SECONDS, 6 * NANO_SECONDS
    )
    return watched(run_events(), 10, money, 50)


def head(run: WatchedRun) -> list[str]:
    return [line.plain for line in picture.head(run.view)]


def test_a_run_as_it_is_watched() -> None:
    run = at_ten()
    view = run.view
    assert (view.reliable, view.transient, view.warned, view.evictions) == (1, 1, 0, 4)
    assert (view.stage, view.clock, view.loss, run.losses) == (2, 40, 0.2, ((10, 0.8), (40, 0.2)))
    assert (view.money.saved, view.money.used) == (0.75, 0.5)
    calm, wild = view.markets
    assert (calm.market, calm.machines, calm.bid, run.price_of(calm)) == (CALM, 2, 95_000_000, None)
    assert (wild.market, wild.machines, wild.bid, run.price_of(wild)) == (WILD, 0, None, 80_000_000)
    assert watched(run_events()[:9], 5.5).view.warned == 3


def test_the_loss_of_a_run_that_has_ended_is_that_of_its_model_as_in_status() -> None:
    view = watched(
        [*run_events(), (9.5, ev.RunEnded("done", "", at(9.5), {"loss": 0.19}))], 10
    ).view
    assert (view.model_loss, view.loss) == (0.19, 0.2)


def test_gpus_are_the_mean_of_a_markets_machines() -> None:
    used = [
        (9.0, ev.CardsUsed("r", 80, 50)),
        (9.0, ev.CardsUsed("e", 94, 72)),
        (9.0, ev.CardsUsed("d", 1, 1)),
    ]
    events = [*run_events(), *used]
    one = watched(events, 10)
    assert [line.gpus for line in one.view.markets] == [(0.87, 0.61), None]
    assert text(picture.markets(one, 80, 9)) == [
        "prices (synthetic)    machines     spot       bid  on demand  gpu  memory",
        "sim-east-a/c4.xlarge         2        -  reliable    $0.2000  87%     61%",
        "sim-east-b/c4.xlarge         0  $0.0800         -    $0.2000",
    ]
    wide = text(picture.markets(one, 150, 9), 150)
    assert "87%     61%" in wide[1]
    assert wide[0].endswith("since the run started")
    unknown = [
        *events,
        (10.0, ev.CardsUsed("r", None, None)),
        (10.0, ev.CardsUsed("e", None, None)),
    ]
    assert "gpu" not in "\n".join(text(picture.whole(watched(unknown, 11), 80)))


def test_unknown_amounts_are_not_shown_as_zero() -> None:
    one = watched(run_events()[:1], 0)
    assert head(one) == [
        "small-1   running",
        "spent -   on demand -   replayed",
        "machines 0 reliable + 0 spot   evictions 0   market time 00:00:00",
    ]
    assert text(picture.losses(one, 80, 1)) == ["loss  not reported yet"]


def test_head_at_80_columns() -> None:
    assert head(at_ten()) == [
        "small-1   running   stage 2   clock 40 of 50   loss 0.2",
        "spent $3.00 of $6.00 budget (50%)   on demand $12.00: 75% saved   replayed",
        "machines 1 reliable + 1 spot   evictions 4   market time 00:10:00",
    ]


def test_footprint_as_columns() -> None:
    """Ten minutes in ten columns: at most 6 machines, in three lines of 2."""
    lines = text(picture.footprint(at_ten(), 10, 3))
    assert lines[1:] == ["      █", " ██████▄▄", "▄█████████"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (20, 5)])
def test_nothing_exceeds_the_terminal(width: int, height: int) -> None:
    one = at_ten()
    for part in (
        picture.footprint(one, width, height),
        picture.losses(one, width, height),
        picture.events(one.events, width),
        picture.whole(one, width),
    ):
        assert all(len(line) <= width for line in text(part, width))
    assert len(text(picture.footprint(one, width, height), width)) <= height + 1


@given(
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 9)), max_size=12),
    st.integers(1, 600),
    st.integers(1, 120),
)
def test_footprint_columns_are_means(changes: list[tuple[int, int]], span: int, width: int) -> None:
    """Compared with counting second by second."""
    counts = [
        MachineCount(at(0) + second * 10**6, 0, machines) for second, machines in sorted(changes)
    ]
    means = picture.over_time(counts, at(0), at(0) + span * 10**6, width)
    whole = sum(
        next(
            (count.transient for count in reversed(counts) if count.at <= at(0) + second * 10**6), 0
        )
        for second in range(span)
    )
    assert means.sum() / width * span == pytest.approx(whole)


@pytest.mark.parametrize(
    ("width", "height"), [(80, 24), (200, 50), (119, 30), (120, 16), (60, 9), (20, 5)]
)
@pytest.mark.parametrize("runs", [1, 2, 9])
def test_what_is_watched_fits_the_terminal_and_fills_it(width: int, height: int, runs: int) -> None:
    one = at_ten()
    named = [
        replace(one, view=replace(one.view, run=f"job{i}-1"), events=one.events * 30)
        for i in range(runs)
    ]
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(picture.LivePicture(named), end="")
    lines = captured.get().splitlines()
    assert height - runs - 3 <= len(lines) <= height
    assert all(len(line) <= width for line in lines)
    shown = [line.split()[0] for line in lines if line.startswith("job")]
    assert shown == [f"job{i}-1" for i in range(len(shown))]
    assert any("more run" in line for line in lines) == (len(shown) < runs)


def test_charts_are_next_to_each_other_on_a_wide_terminal() -> None:
    for width, is_wide in ((119, False), (120, True)):
        (title,) = [
            line
            for line in text(picture.fitting(at_ten(), width, 40), width)
            if "at most 6" in line
        ]
        assert ("0.8 at clock 10" in title) is is_wide


def test_a_low_terminal_shows_the_head() -> None:
    assert text(picture.fitting(at_ten(), 80, 3), 80) == head(at_ten())
