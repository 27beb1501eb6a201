"""Ledgers of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import DAY
from spotctl.log import events as ev, store
from tests.spotctl.log.ledger import seconds
from tests.spotctl.log.ledger.random_runs import RandomRun
from tests.spotctl.log.ledger.test_ledger import by_machine, no_prices, raw, settled
from tests.spotctl.show.costs.made import project


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


def test_rows_survive_the_log(tmp_path: Path) -> None:
    run = RandomRun(np.random.default_rng(8))
    settled(run)
    with store.EventLog(tmp_path / "log.sqlite") as opened:
        for row in run.rows:
            opened.append(row.run, row.at, row.event)
        assert project(opened.of_run(run.run), no_prices()) == project(run.rows, no_prices())
