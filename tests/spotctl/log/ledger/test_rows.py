"""Rows of a ledger, by hand."""

from __future__ import annotations

import numpy as np

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, SECOND
from spotctl.log import events as ev
from spotctl.log.events import Event
from spotctl.log.ledger.rows import ChargeKind, Use, micro_dollars
from spotctl.log.state import LogRow
from tests.spotctl.log.ledger.random_runs import RandomRun
from tests.spotctl.log.ledger.test_ledger import no_prices, settled
from tests.spotctl.show.costs.made import project

SMALL = Market.parse("local/sim-east/a/c4.xlarge")


def test_a_correction_is_a_new_row_and_changes_no_other() -> None:
    run = RandomRun(np.random.default_rng(3))
    settled(run)
    before = project(run.rows, no_prices())
    wrong = next(iter(run.machines))
    run.end(ev.Corrected(wrong, run.now, -7, "the bill says so"))
    after = project(run.rows, no_prices())
    assert after.rows[:-1] == before.rows
    last = after.rows[-1]
    assert (last.kind, last.machine, last.amount, last.settled) == (
        ChargeKind.CORRECTION,
        wrong,
        -7,
        True,
    )
    assert after.amount == before.amount - 7


def test_an_evicted_machine_by_hand() -> None:
    """Two paid hours and a free third; warned, it stops working five minutes before the
    eviction."""
    market = SMALL
    at = DAY * 20_000 + 23 * HOUR
    rows: list[tuple[int, Event]] = [
        (0, ev.RunBegan("job", "local", {"kind": "agileml"}, "", 0)),
        (0, ev.RentIntended(1, market, 1, 500, 400, 4.0, False, at + HOUR)),
        (0, ev.Rented(1, (ev.Granted("m", at),))),
        (60, ev.MachineRan("m")),
        (7200, ev.Progressed(1, None, 1, ready=(ev.Moment("m", at + 180 * SECOND),))),
        (
            8000,
            ev.Progressed(2, None, 1, redone=(ev.Stretch(at + 7000 * SECOND, at + 7400 * SECOND),)),
        ),
        (8400, ev.Progressed(3, None, 1, left=(ev.Moment("m", at + 8100 * SECOND),))),
        (8400, ev.MachineEnded("m", at + 8400 * SECOND, "evicted")),
        (
            8400,
            ev.Priced(
                market,
                "hourly-refund",
                (at, at + 3599 * SECOND, at + 9000 * SECOND),
                (100, 200, 200),
            ),
        ),
        (8400, ev.RunEnded("done", "", 0)),
    ]
    made = project(
        [
            LogRow(number, "job-1", at + moment * SECOND, event)
            for number, (moment, event) in enumerate(rows)
        ],
        no_prices(),
    ).rows
    assert [
        (row.kind, row.use, (row.begin - at) // SECOND, row.price, row.amount, row.on_demand)
        for row in made
    ] == [
        (ChargeKind.COMPUTE, Use.STARTING, 0, 100, 6_000, 24_000),
        (ChargeKind.COMPUTE, Use.LOADING, 60, 100, 12_000, 48_000),
        (ChargeKind.COMPUTE, Use.WORKING, 180, 100, 342_000, 1_368_000),
        (ChargeKind.COMPUTE, Use.WORKING, 3600, 200, 680_000, 1_360_000),
        (ChargeKind.COMPUTE, Use.REDONE, 7000, 200, 40_000, 0),
        (ChargeKind.COMPUTE, Use.REDONE, 7200, 200, 40_000, 0),
        (ChargeKind.REFUND, Use.REDONE, 7200, 200, -40_000, 0),
        (ChargeKind.COMPUTE, Use.WORKING, 7400, 200, 140_000, 280_000),
        (ChargeKind.REFUND, Use.WORKING, 7400, 200, -140_000, 0),
        (ChargeKind.COMPUTE, Use.IDLE, 8100, 200, 60_000, 120_000),
        (ChargeKind.REFUND, Use.IDLE, 8100, 200, -60_000, 0),
    ]


def test_a_node_of_a_gang_waits_between_two_attempts() -> None:
    at = DAY * 20_000
    rows: list[tuple[int, Event]] = [
        (0, ev.RunBegan("job", "local", {"kind": "command"}, "", 0)),
        (0, ev.RentIntended(1, SMALL, 1, None, 400, 4.0, True, at + HOUR)),
        (0, ev.Rented(1, (ev.Granted("m", at),))),
        (5, ev.MachineRan("m")),
        (20, ev.Progressed(1, None, 0, ready=(ev.Moment("m", at + 20 * SECOND),))),
        (50, ev.Progressed(1, None, 0, left=(ev.Moment("m", at + 50 * SECOND),))),
        (70, ev.Progressed(2, None, 0, ready=(ev.Moment("m", at + 70 * SECOND),))),
        (95, ev.Progressed(2, None, 0, redone=(ev.Stretch(at + 70 * SECOND, at + 80 * SECOND),))),
        (95, ev.StopRequested("done", "")),
        (99, ev.MachineEnded("m", at + 99 * SECOND, "returned")),
        (99, ev.Priced(SMALL, "per-second", (), ())),
        (99, ev.RunEnded("done", "", 0)),
    ]
    made = project(
        [
            LogRow(number, "job-1", at + moment * SECOND, event)
            for number, (moment, event) in enumerate(rows)
        ],
        no_prices(),
    ).rows
    assert [(row.use, (row.end - at) // SECOND) for row in made] == [
        (Use.STARTING, 5),
        (Use.LOADING, 20),
        (Use.WORKING, 50),
        (Use.IDLE, 70),
        (Use.REDONE, 80),
        (Use.WORKING, 95),
        (Use.IDLE, 99),
    ]


def test_the_rest_of_a_paid_hour_is_unused() -> None:
    """And not a time in which the machine waited."""
    market, at = SMALL, DAY * 20_000
    rows: list[Event] = [
        ev.RunBegan("job", "local", {}, "", 0),
        ev.RentIntended(1, market, 1, None, 400, 4.0, True, at + HOUR),
        ev.Rented(1, (ev.Granted("m", at),)),
        ev.MachineRan("m"),
        ev.MachineEnded("m", at + 600 * SECOND, "returned"),
        ev.Priced(market, "hourly-refund", (), ()),
        ev.RunEnded("done", "", 0),
    ]
    made = project(
        [LogRow(number, "job-1", at, event) for number, event in enumerate(rows)], no_prices()
    ).rows
    assert [(row.use, row.begin - at, row.end - at, row.amount) for row in made] == [
        (Use.WORKING, 0, 600 * SECOND, 600 * 400),
        (Use.UNUSED, 600 * SECOND, 600 * SECOND, 3000 * 400),
    ]


def test_one_rounding_half_to_even() -> None:
    assert [micro_dollars(3600 * nanos) for nanos in (0, 499, 500, 501, 1500, 2500, -500, -501, -1500)] == [
        0, 0, 0, 1, 2, 2, 0, -1, -2,
    ]  # fmt: skip
