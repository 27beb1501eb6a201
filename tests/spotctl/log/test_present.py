"""What an interrupted run, and one on another computer, has cost: the same in status, live and in
reports.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agileml.runtime.blob_store import FileBlobStore
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, usd
from spotctl.home import config
from spotctl.home.config import Settings
from spotctl.log import budget, events as ev, ledger_reader
from spotctl.log.budget import Tariff
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock
from spotctl.log.ledger.project import spending, unrecorded
from spotctl.log.store import EventLog
from spotctl.run.remote_runner.homes import LogCopier, LogCopy, add_missing
from spotctl.show.runs.reading import Watcher, latest_views
from tests.samples import LONG_RUN
from tests.spotctl.command_line import spotctl
from tests.spotctl.run import worlds
from tests.spotctl.show.costs.made import AWS, NIGHT, RELIABLE, MadeRun, write_log

SPOT, BID, LISTED = 100_000_000, 340_000_000, 96_000_000
"""Of a spot machine, its price and its bid, and of an on-demand machine, per hour."""


def interrupted(*, priced: bool = True) -> MadeRun:
    """A run of an on-demand and a spot machine: its last event is after 90 minutes, leases end an
    hour later.
    """
    made = MadeRun("train-00000a", "train", NIGHT)
    made.begin(kind="command", run="true", resources={"clouds": ["aws"], "types": ["c6i.2xlarge"]})
    for number, (market, bid, listed) in enumerate(
        [(RELIABLE, None, LISTED), (AWS[0], BID, BID)], 1
    ):
        made.add(
            NIGHT,
            ev.RentIntended(number, market, 1, bid, listed, 1.0, bid is None, NIGHT + 150 * MINUTE),
        )
        made.add(NIGHT, ev.Rented(number, (ev.Granted(f"i-{number}", NIGHT),)))
        made.add(NIGHT + MINUTE, ev.MachineRan(f"i-{number}"))
    if priced:
        made.add(
            NIGHT + MINUTE, ev.Priced(AWS[0], "per-second-first-hour-free", (NIGHT,), (2 * SPOT,))
        )
        made.add(
            NIGHT + HOUR, ev.Priced(AWS[0], "per-second-first-hour-free", (NIGHT + HOUR,), (SPOT,))
        )
    made.add(NIGHT + 90 * MINUTE, ev.Progressed(3, 0.5, 1))
    return made


@dataclass
class Clock:
    """This computer's clock, which the test moves."""

    now: int

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(NIGHT + 90 * MINUTE)
    monkeypatch.setattr(ledger_reader, "wall_us", made)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    write_log([interrupted()], home)
    return home


def costs() -> dict[str, Any]:
    """What a run has cost, and its bounds: the same from each command."""
    report = spotctl("report", "cost", "--json")
    assert report.code == 0, report.err
    (status,) = spotctl("status", "--json").json["jobs"]
    bounds = {name: report.json[f"total{name}_usd"] for name in ("", "_low", "_high")}
    assert bounds == pytest.approx({name: status[f"spent{name}_usd"] for name in bounds})
    with closing(Watcher("train", config.load(os.environ, None))) as watcher:
        seen = watcher.look().view.money.spending
    assert seen is not None
    amounts = {"": seen.amount, "_low": seen.low, "_high": seen.high}
    assert bounds == pytest.approx(
        {name: amount and float(usd(amount)) for name, amount in amounts.items()}
    )
    return bounds


@LONG_RUN
def test_an_interrupted_run_costs_at_most_the_time_until_its_leases_end(
    home: Path, clock: Clock
) -> None:
    assert home.is_dir()
    # The price of a spot hour is that at its start; in the third, it may have risen to the bid
    # since the last event.
    for minutes, spot in (
        (90, 0.25),
        (120, 0.3),
        (135, 0.3 + 0.085),
        (150, 0.47),
        (180, 0.47),
        (9999, 0.47),
    ):
        clock.now = NIGHT + minutes * MINUTE
        seen = costs()
        assert seen[""] == pytest.approx(0.096 * min(minutes, 150) / 60 + spot)
        assert seen["_high"] == seen[""]
        assert seen["_low"] == pytest.approx(0.096 * 85 / 60 + 0.2 + 0.1 * 25 / 60)


def test_texts_say_at_most(home: Path, clock: Clock) -> None:
    assert home.is_dir()
    clock.now = NIGHT + 9 * HOUR
    assert "train: at most $0.7100 paid so far" in spotctl("report", "cost").out
    assert "at least $0.3777" in spotctl("report", "cost").out
    assert (
        "| train (running) | at most $0.7100 |" in spotctl("report", "cost", "--format", "md").out
    )
    assert "at most $0.7100 paid so far" in spotctl("report", "cost", "--format", "html").out
    assert "at most $0.71" in spotctl("status").out
    assert "spent at most $0.71" in spotctl("status", "train", "--watch").out


def test_a_run_with_a_process_is_charged_until_now(home: Path, clock: Clock) -> None:
    clock.now = NIGHT + 110 * MINUTE
    with JobLock(home / "locks", "train"):
        seen = costs()
    assert (
        seen[""]
        == seen["_low"]
        == seen["_high"]
        == pytest.approx(0.096 * 110 / 60 + 0.2 + 0.1 * 50 / 60)
    )


def test_an_order_without_an_outcome_may_cost_more(tmp_path: Path, clock: Clock) -> None:
    made = interrupted()
    made.add(clock.now, ev.RentIntended(3, AWS[1], 2, BID, BID, 1.0, False, NIGHT + 3 * HOUR))
    (tmp_path / "home").mkdir()
    write_log([made], tmp_path / "home")
    seen = costs()
    assert (seen["_high"], seen["_low"]) == (
        None,
        pytest.approx(0.096 * 85 / 60 + 0.2 + 0.1 * 25 / 60),
    )
    assert "at least $0.38" in spotctl("status").out


def test_a_machine_that_may_have_been_evicted_in_its_free_hour_costs_nothing_at_least(
    tmp_path: Path, clock: Clock
) -> None:
    made = interrupted()
    made.events = [(at, event) for at, event in made.events if at < NIGHT + 5 * MINUTE]
    (tmp_path / "home").mkdir()
    write_log([made], tmp_path / "home")
    clock.now = NIGHT + 9 * HOUR
    assert costs()["_low"] == pytest.approx(0.096 / 60)


def test_an_attached_computer_knows_the_costs_without_any_price(
    tmp_path: Path, home: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the run's log, through which clients see it, has the prices that its bill
    needs."""
    store = FileBlobStore(tmp_path / "place")
    LogCopier(store, home / "log.sqlite", "train-00000a", 1, 0).copy()
    here, client = latest_views(Settings(home), ["train-00000a"]).runs, tmp_path / "client"
    client.mkdir()
    with EventLog(client / "log.sqlite") as log:
        add_missing(log, "train-00000a", LogCopy(store).rows())
    monkeypatch.setenv("SPOTCTL_HOME", str(client))
    there = latest_views(Settings(client), ["train-00000a"]).runs
    assert there == here
    spent = there[0].money.spending
    assert spent is not None
    assert spent.low == spent.amount > 0
    clock.now = NIGHT + 9 * HOUR
    assert costs()["_high"] == pytest.approx(0.71)


def test_without_prices_anywhere_only_that_run_is_unknown(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "home").mkdir()
    write_log([interrupted(priced=False)], tmp_path / "home")
    clock.now = NIGHT + 9 * HOUR
    seen = costs()
    assert (seen["_low"], seen["_high"]) == (pytest.approx(0.096 * 85 / 60), None)


def test_the_log_of_a_killed_runner_has_the_prices_of_its_machines(tmp_path: Path) -> None:
    one = worlds.life(tmp_path)
    with pytest.raises(worlds.Killed):
        one.run(worlds.Death(120))
    state, now = one.state(), one.cloud.now()
    assert any(state.allocations[held.allocation].bid for held in state.alive)

    def unavailable(*_: object) -> PriceSeries:
        raise AssertionError("the log has all prices")

    seen = spending(state, Tariff(worlds.TARIFF.rule, unavailable), now, attended=True)
    assert seen.amount == budget.spent(state, now, worlds.TARIFF) > 0


def test_prices_are_recorded_as_they_change() -> None:
    made = interrupted(priced=False)
    made.price(AWS[0], [NIGHT, NIGHT + 20 * MINUTE, NIGHT + HOUR, NIGHT + 9 * HOUR], [5, 7, 7, 6])
    state, moments = fold(made.log()), list[tuple[int, ...]]()
    for now in (NIGHT, NIGHT + 10 * MINUTE, NIGHT + 30 * MINUTE, NIGHT + 2 * HOUR):
        news = unrecorded(state, now, made.tariff())
        moments.append(tuple((at - NIGHT) // MINUTE for event in news for at in event.times))
        for event in news:
            made.add(made.events[-1][0], event)
        state = fold(made.log())
    assert moments == [(0,), (), (20,), ()]
    assert (state.prices[AWS[0]].prices, RELIABLE in state.prices) == ((5, 7), False)
