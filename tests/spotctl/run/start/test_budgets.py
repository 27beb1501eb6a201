"""The budget of a run is set while it goes on: by several people at once, and while its runner is
dead.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pricing_data.units import NANO_SECONDS_PER_DOLLAR
from spotctl.home.paths import Paths
from spotctl.log.events import BudgetSet
from spotctl.log.jobs import is_running, runner_of
from spotctl.log.store import EventLog
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, state_of
from tests.waiting import eventually

BUDGETS = (3, 4, 5)


def budgets_in(home: Path) -> list[float]:
    with EventLog(home / "log.sqlite") as log:
        rows = log.of_run(state_of(home).run)
    return [
        row.event.limit / NANO_SECONDS_PER_DOLLAR
        for row in rows
        if isinstance(row.event, BudgetSet)
    ]


@pytest.mark.slow
def test_a_budget_is_set_at_once_by_several_and_while_the_runner_is_dead(tmp_path: Path) -> None:
    home, words = tmp_path / "home", [sys.executable, "-m", "spotctl"]
    job = command(tmp_path, "touch begun; until [ -e go ]; do sleep 0.1; done")
    job.write_text(f"{job.read_text()}hours: 1h\nbudget: 2 USD\n")
    # As `spotctl` below.
    begin: Callable[..., subprocess.Popen[bytes]] = lambda *more: subprocess.Popen(  # noqa: E731
        [*words, *map(str, more)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    launched = begin("launch", job, "--yes", "--json")
    eventually((tmp_path / "begun").exists)

    setting = [begin("resume", "small", "--budget", str(dollars)) for dollars in BUDGETS]
    assert [process.wait() for process in setting] == [0] * len(BUDGETS)
    assert sorted(budgets_in(home)) == [*map(float, BUDGETS)]

    refused = spotctl("resume", "small", "--budget", "0.000001")
    assert refused.code == 2
    assert (
        "is spent, or committed until its leases end, so its budget cannot be <$0.01"
        in refused.error
    )
    assert (
        "--budget 'all' is not a decimal number"
        in spotctl("resume", "small", "--budget", "all").error
    )

    runner = runner_of(Paths(home).locks, "small")
    assert runner == launched.pid
    os.kill(runner, signal.SIGKILL)
    launched.wait()
    assert not is_running(Paths(home).locks, "small")
    answer = spotctl("resume", "small", "--budget", "6", "--json").json
    assert (answer["run"], answer["budget_usd"], answer["earlier_usd"]) == (
        state_of(home).run,
        6,
        budgets_in(home)[-2],
    )

    (tmp_path / "go").touch()
    assert begin("resume", "small", "--json").wait() == 0
    state = state_of(home)
    assert state.limit(None) == 6 * NANO_SECONDS_PER_DOLLAR
    assert spotctl("report", "cost", "--by", "run", "--json").json["groups"][0]["budget_usd"] == 6
    ended = spotctl("resume", "small", "--budget", "7")
    assert f"run {state.run} has ended, so its budget stays" in ended.error
    assert "job other has no run" in spotctl("resume", "other", "--budget", "7").error
