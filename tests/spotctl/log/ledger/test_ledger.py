"""The ledger compared with an independent count by the second, and its invariants."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR, SECOND
from spotctl.home.config import Settings
from spotctl.log import budget, events as ev, store
from spotctl.log.event_json import to_json
from spotctl.log.events import Event
from spotctl.log.folding import fold
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.log.ledger.project import Ledger, priced
from spotctl.log.ledger.rows import ChargeKind, SameWork, Use, micro_dollars
from spotctl.log.ledger_reader import read
from spotctl.log.state import LogRow
from spotctl.show.costs import cost
from spotctl.show.costs.periods import By
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.ledger import seconds
from tests.spotctl.log.ledger.histories import JOB, nights
from tests.spotctl.log.ledger.random_runs import RandomRun
from tests.spotctl.log.ledger.recount import differences, recounted
from tests.spotctl.show.costs.made import in_order, parts, project

RUNS = 400
SMALL = Market.parse("local/sim-east/a/c4.xlarge")


def raw(run: RandomRun) -> seconds.Raw:
    return [(row.at, type(row.event).__name__, to_json(row.event)) for row in run.rows]


def by_machine(ledger: Ledger, of: str) -> dict[tuple[str, int, str, str], int]:
    sums = Counter[tuple[str, int, str, str]]()
    for row in ledger.rows:
        sums[row.machine, row.begin // DAY, row.kind.value, row.use.value] += getattr(row, of)
    return {key: amount for key, amount in sums.items() if amount}


@pytest.mark.parametrize("seed", range(8))
def test_a_count_by_the_second_gives_the_same_amounts(seed: int) -> None:
    """By machine, day, kind and use, so under every coarser grouping as well."""
    for number in range(RUNS // 8):
        run = RandomRun(np.random.default_rng([seed, number]))
        found = project(run.rows, run.tariff, run.now)
        sums = seconds.counted(raw(run), run.rule, run.steps, run.now)
        assert by_machine(found, "amount") == {
            key: amount for key, amount in sums.billed.items() if amount
        }, number
        assert by_machine(found, "on_demand") == {
            key: amount for key, amount in sums.listed.items() if amount
        }, number
        assert found.amount == budget.spent(fold(run.rows), run.now, run.tariff)
        assert not any(row.settled for row in found.rows)


@pytest.mark.parametrize("seed", range(10))
def test_budget_and_ledger_agree_after_every_event(seed: int) -> None:
    run = RandomRun(np.random.default_rng([5, seed]))
    for count in range(1, len(run.rows) + 1):
        part = run.rows[:count]
        assert project(part, run.tariff, run.now).amount == budget.spent(
            fold(part), run.now, run.tariff
        )


def settled(run: RandomRun) -> None:
    """Ends a run as the runner does."""
    for held in fold(run.rows).machines.values():
        if held.alive:
            run.end(ev.MachineEnded(held.id, run.now, "returned"))
    for event in priced(fold(run.rows), run.now, run.tariff):
        run.end(event)
    run.end(ev.RunEnded("done", "", 1))


def no_prices() -> budget.Tariff:
    def unavailable(*_: object) -> Any:  # noqa: ANN401 - nothing comes back
        raise AssertionError("what is settled needs no prices but those of the log")

    return budget.Tariff(unavailable, unavailable)


@pytest.mark.parametrize("seed", range(60))
def test_the_log_alone_is_enough_for_a_run_that_has_ended(seed: int) -> None:
    run = RandomRun(np.random.default_rng([99, seed]))
    settled(run)
    sums = seconds.counted(raw(run), run.rule, run.steps)
    found = project(run.rows, no_prices())
    assert by_machine(found, "amount") == {
        key: amount for key, amount in sums.billed.items() if amount
    }
    assert found == project(run.rows, run.tariff, run.now + 99 * DAY)
    assert all(row.settled for row in found.rows)


def test_a_run_that_ended_without_its_prices_is_not_settled() -> None:
    run = RandomRun(np.random.default_rng(12))
    settled(run)
    poor = [row for row in run.rows if not isinstance(row.event, ev.Priced)]
    found, expected = project(poor, run.tariff, run.now), project(run.rows, no_prices())
    assert found.amount == expected.amount
    assert not any(row.settled for row in found.rows)


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


def test_runs_are_kept_apart() -> None:
    one, two = (RandomRun(np.random.default_rng(seed), f"job-{seed}") for seed in (4, 5))
    for run in (one, two):
        settled(run)
    mixed = [row for pair in zip(one.rows, two.rows, strict=False) for row in pair]
    rest = [*one.rows[len(mixed) // 2 :], *two.rows[len(mixed) // 2 :]]
    together = project([*mixed, *rest], no_prices())
    assert (
        together.rows == project(one.rows, no_prices()).rows + project(two.rows, no_prices()).rows
    )


@pytest.mark.parametrize("seed", range(30))
def test_rows_cover_each_life_within_days(seed: int) -> None:
    run = RandomRun(np.random.default_rng([7, seed]))
    state, rows = fold(run.rows), project(run.rows, run.tariff, run.now).rows
    for held in state.machines.values():
        mine = [
            row
            for row in rows
            if row.machine == held.id and row.kind is ChargeKind.COMPUTE and row.begin < row.end
        ]
        edges = [held.started, *(row.end for row in mine)]
        assert [row.begin for row in mine] == edges[:-1]
        assert edges[-1] == budget.life_of(held, run.now).end
        assert all(row.begin // DAY == (row.end - 1) // DAY for row in mine)


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


def test_the_unused_rest_of_a_paid_hour_is_idle() -> None:
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
        (Use.IDLE, 600 * SECOND, 600 * SECOND, 3000 * 400),
    ]


def test_one_rounding_half_to_even() -> None:
    assert [micro_dollars(3600 * nanos) for nanos in (0, 499, 500, 501, 1500, 2500, -500, -501, -1500)] == [
        0, 0, 0, 1, 2, 2, 0, -1, -2,
    ]  # fmt: skip


def test_rows_survive_the_log(tmp_path: Path) -> None:
    run = RandomRun(np.random.default_rng(8))
    settled(run)
    with store.EventLog(tmp_path / "log.sqlite") as opened:
        for row in run.rows:
            opened.append(row.run, row.at, row.event)
        assert project(opened.of_run(run.run), no_prices()) == project(run.rows, no_prices())


def test_the_log_of_a_runner_is_counted_from_its_file(tmp_path: Path) -> None:
    """Two nights on the bundled market: the raw rows of the file, the raw history of prices, second
    by second.
    """
    runs = nights(tmp_path, 2, seed=2, job=JOB.replace("c4.2xlarge, c4.xlarge", "c4.2xlarge"))
    library = Library(PriceStore(tmp_path / "prices"))
    steps = {
        str(one.market): list(zip(one.times.tolist(), one.prices.tolist(), strict=True))
        for one in library.table(library.require(Selection(clouds=("local",))))
    }
    ledgers = {run.events[0].run: run.ledger for run in read(Settings(home=tmp_path))}
    assert list(ledgers) == runs
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as file:
        for run, ledger in ledgers.items():
            rows = file.execute(
                "SELECT at_us, kind, body FROM events WHERE run = ? ORDER BY id", (run,)
            ).fetchall()
            sums = seconds.counted(rows, "hourly-refund", steps)
            assert by_machine(ledger, "amount") == {
                key: amount for key, amount in sums.billed.items() if amount
            }
            assert by_machine(ledger, "on_demand") == {
                key: amount for key, amount in sums.listed.items() if amount
            }
            ended = json.loads(rows[-1][2])
            assert ended["facts"]["spent"] == ledger.amount == sum(sums.billed.values())
    found = recounted(tmp_path / "log.sqlite")
    answer = spotctl("--home", tmp_path, "report", "cost", "--by", "run", "--json").json
    assert differences(found, answer) == []
    assert all(one.on_demand for one in found.values())
    off = {
        runs[0]: replace(found[runs[0]], bill=found[runs[0]].bill + 1),
        runs[1]: replace(found[runs[1]], low=10**12),
    }
    assert sorted(line.split()[1] for line in differences(off, answer)) == ["on", "paid"]
    uses = {row.use for ledger in ledgers.values() for row in ledger.rows}
    assert {Use.STARTING, Use.LOADING, Use.WORKING, Use.IDLE} <= uses


GROUPS: Mapping[By, Callable[[RandomRun, str, str], str]] = {
    By.JOB: lambda run, _, __: run.job,
    By.RUN: lambda run, _, __: run.run,
    By.CLOUD: lambda _, market, __: market.split("/")[0],
    By.REGION: lambda _, market, __: market.split("/")[1],
    By.TYPE: lambda _, market, __: market.split("/")[3],
    By.MARKET: lambda _, market, __: market,
    By.DAY: lambda _, __, day: day,
    By.MONTH: lambda _, __, day: day[:7],
    By.TAG: lambda run, _, __: tag_of(run),
}


KINDS = {"refund": "refunds", "disk": "disks", "address": "addresses", "egress": "traffic"}


def tag_of(run: RandomRun) -> str:
    began = json.loads(raw(run)[0][2])
    return f"team={began['spec']['tags']['team']}" if began["spec"]["tags"] else "untagged"


@pytest.mark.parametrize("by", [*GROUPS, By.PRICING, By.KIND])
def test_groups_are_what_is_counted_by_the_second(by: By) -> None:
    runs = [
        RandomRun(np.random.default_rng([11, number]), f"job-{number}", f"job{number % 2}")
        for number in range(12)
    ]
    paid, listed = Counter[str](), Counter[str]()
    for run in runs:
        settled(run)
        machines, sums = (
            seconds.read_rows(raw(run)).machines,
            seconds.counted(raw(run), run.rule, run.steps),
        )
        for into, counted in ((paid, sums.billed), (listed, sums.listed)):
            for (name, day, kind, _), amount in counted.items():
                date = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
                pricing = "on-demand" if machines[name].order["bid"] is None else "spot"
                if by in GROUPS:
                    into[GROUPS[by](run, machines[name].order["market"], date)] += amount
                else:
                    into[
                        pricing if by is By.PRICING else KINDS.get(kind, f"{pricing} machines")
                    ] += amount
    rows = [row for run in runs for row in project(run.rows, no_prices()).rows]
    # What the work costs on demand is not counted here: of some runs it is unknown.
    timelines = (replace(timeline_of(run.rows), same_work=SameWork()) for run in runs)
    found = cost.groups(parts(rows, in_order(timelines)), (by,))
    # Groups have whole nano-dollars of each row.
    close = 3600 * len(rows)
    assert {group.key[by]: group.figures.total for group in found} == pytest.approx(paid, abs=close)
    assert {group.key[by]: group.figures.on_demand for group in found} == pytest.approx(
        {name: listed[name] for name in paid}, abs=close
    )
