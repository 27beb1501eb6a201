"""The ledger compared with an independent count by the second, and its invariants."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from pricing_data.units import DAY
from spotctl.log import budget, events as ev
from spotctl.log.event_json import to_json
from spotctl.log.folding import fold
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.log.ledger.project import Ledger, priced
from spotctl.log.ledger.rows import ChargeKind, SameWork
from spotctl.show.costs import cost
from spotctl.show.costs.periods import By
from tests.spotctl.log.ledger import seconds
from tests.spotctl.log.ledger.random_runs import RandomRun
from tests.spotctl.show.costs.made import in_order, parts, project

RUNS = 400


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
    # Of a draw without refunds, nothing is a group.
    paid = Counter({name: amount for name, amount in paid.items() if amount})
    assert {group.key[by]: group.figures.total for group in found} == pytest.approx(paid, abs=close)
    assert {group.key[by]: group.figures.on_demand for group in found} == pytest.approx(
        {name: listed[name] for name in paid}, abs=close
    )
