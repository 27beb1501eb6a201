"""`status`, once and watched."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from pricing_data.units import usd
from spotctl.cli import status
from spotctl.cli.session import Session
from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from spotctl.clouds.local.replayed import Replayed
from spotctl.home.config import Settings
from spotctl.log import events as ev
from spotctl.log.store import EventLog
from spotctl.show.runs.reading import Watcher
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.runs.made_up_run import START, at


def test_without_a_terminal_it_prints_once(run: Path) -> None:  # noqa: ARG001
    printed = spotctl("status", "--watch", COLUMNS="80")
    assert (printed.code, printed.err) == (0, "")
    lines = printed.out.splitlines()
    assert lines[0].startswith("small-1   interrupted   stage 2   clock 40   loss 0.2")
    assert lines[1].startswith("spent at most $")
    assert " of $6.00 budget (" in lines[1]
    assert max(map(len, lines)) <= 80
    assert "evicted without warning: 1 x c4.xlarge (sim-east-a)" in printed.out


def test_a_watched_run_costs_what_status_says(run: Path) -> None:
    with closing(Watcher("small", Settings(run))) as watcher:
        view = watcher.look().view
    status = spotctl("status", "--json").json["jobs"][0]
    assert view.money.budget == 6 * 3600 * 10**9
    assert float(usd(view.money.spent or 0)) == pytest.approx(status["spent_usd"], rel=1e-3)
    assert view.evictions == status["evictions"] == 4


def test_cost_is_bounded_after_the_market_was_restarted_at_another_time(run: Path) -> None:
    before = spotctl("status", "--json").json["jobs"][0]["spent_usd"]
    LocalProvider(run / "local", lambda: Replayed.of(()), LocalSettings()).begin(START, 1.0)
    with closing(Watcher("small", Settings(run))) as watcher:
        spending = watcher.look().view.money.spending
    status = spotctl("status", "--json").json["jobs"][0]
    assert spending is not None
    assert 0 < float(usd(spending.amount)) == status["spent_usd"] <= before
    assert float(usd(spending.low)) == status["spent_low_usd"] <= status["spent_usd"]


def test_errors(run: Path, approved: Approved) -> None:  # noqa: ARG001
    refused = spotctl("status", "other", "--watch")
    approved(refused)


def test_before_any_launch(approved: Approved) -> None:
    approved(spotctl("status", "--watch"))
    approved(spotctl("status", "small", "--watch"))


def test_on_a_terminal_it_is_redrawn_until_ctrl_c(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on meanwhile, in another process."""
    out = io.StringIO()
    session = Session(run)
    session.__dict__["out"] = Console(
        file=out, force_terminal=True, width=80, height=24, color_system=None
    )
    pauses = [lambda: None, lambda: _ended(run)]

    def sleep(_: float) -> None:
        if not pauses:
            raise KeyboardInterrupt
        pauses.pop()()

    monkeypatch.setattr("spotctl.cli.status.time.sleep", sleep)
    status._watch(session, "")
    assert "small-1   interrupted" in out.getvalue()
    assert "small-1   done" in out.getvalue()


def _ended(home: Path) -> None:
    with EventLog(home / "log.sqlite") as log:
        log.append("small-1", at(11), ev.RunEnded("done", "", 0, {"spent": 0, "on_demand": 0}))
