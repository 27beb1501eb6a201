"""Orders within a shared quota."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Thread
from types import FrameType
from typing import Any

import pytest

from bidbrain.strategies.base import Strategy
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR, SECOND
from spotctl.home.config import Settings
from spotctl.home.quotas import quotas_from
from spotctl.log import events as ev
from spotctl.log.outcomes import DONE
from spotctl.log.queue import LOCAL
from spotctl.log.store import EventLog
from spotctl.run.start import live_markets, shared_queue
from spotctl.run.start.live_markets import OtherRuns
from spotctl.run.start.shared_queue import SharedQueue
from spotctl.run.turn import execute
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from tests.spotctl.run.start.conftest import QUOTAS, Home
from tests.spotctl.run.start.test_shared_queue import joined
from tests.spotctl.run.worlds import (
    MARKETS,
    ON_DEMAND,
    RUN,
    START,
    TARIFF,
    environment,
    life,
    terms,
)


@pytest.mark.parametrize("holders", [1, 4])
def test_orders_never_exceed_a_quota(home: Home, holders: int) -> None:
    """All at the same time, from plans that each leave room for one order of two machines beside
    what is held.
    """
    home.attend("held", "p", "q", "r")
    home.begins("held", holders)
    fits, barrier = list[bool](), Barrier(3, timeout=60)

    def order(name: str) -> bool:
        with EventLog(home.paths.log) as log:
            journal = Journal(log, f"{name}-1", lambda: home.now)
            journal.write(ev.RunBegan(name, "local", {}, "", 0, None, QUOTAS))
            intent = ev.RentIntended(1, MARKETS[1], 2, 1, ON_DEMAND, 4.0, False, START + HOUR)
            barrier.wait()
            leave_room = OtherRuns(home.settings).leave_room
            return journal.write_within(intent, lambda log, now: leave_room(log, intent, now))

    with ThreadPoolExecutor(3) as pool:
        fits = list(pool.map(order, ("p", "q", "r")))
    assert fits.count(True) == (4 - holders) // 2


def test_an_order_without_room_is_placed_once_there_is_some(home: Home, tmp_path: Path) -> None:
    """And the log says once what the run wants meanwhile."""
    home.begins("other", 4)
    one = life(tmp_path / "home", rounds=600)
    one.terms = terms(reliable=0)
    with EventLog(home.paths.log) as log:
        journal = Journal(log, RUN, one.cloud.now)
        journal.write(ev.RunBegan("mine", one.cloud.name, {}, "", 0, None, QUOTAS))
        ordered = list[int]()

        def strategy() -> tuple[Strategy, StrategyTerms]:
            return Standard(), one.terms

        def pause() -> None:
            one.world.pass_round()
            ordered.append(len(journal.state.orders))
            if one.world.rounds == 5:
                home.now = one.cloud.now()
                Journal(log, "other-1", lambda: home.now).write(ev.RunEnded(DONE, "", 0, {}))

        rules = replace(RunRules(strategy, TARIFF), fits=OtherRuns(home.settings).leave_room)
        runner = Runner(journal, environment(one.cloud), one.work, rules)
        assert runner.run(pause, lambda: 0).outcome == DONE
        decided = [row for row in log.of_run(RUN) if isinstance(row.event, ev.Decided)]
    assert ordered[:5] == [0] * 5
    assert ordered[5] > 0
    assert (
        sum(row.at <= decided[0].at + 4 * one.world.round_seconds * SECOND for row in decided) == 1
    )


def test_a_scheduler_that_is_paused_at_any_statement_exceeds_nothing(tmp_path: Path) -> None:
    """Between two statements of one process, another with a clock 90 s ahead reads, decides and
    orders everything.
    """

    def turn(home: Home, name: str, clock: int) -> int:
        """Reads the round, or decides it, and orders all machines of the job's part."""
        mine = SharedQueue(home.settings, LOCAL, lambda: clock).parts(name)
        with EventLog(home.paths.log) as log:
            journal = Journal(log, f"{name}-1", lambda: clock)
            journal.write(ev.RunBegan(name, "local", {}, "", 0, None, QUOTAS))
            machines = 0 if mine is None else mine["local/sim-east/c4"] // 4
            intent = ev.RentIntended(
                1, MARKETS[1], machines, 1, ON_DEMAND, 4.0, False, START + HOUR
            )
            if not machines:
                return 0
            leave_room = OtherRuns(home.settings).leave_room
            fits = journal.write_within(intent, lambda log, now: leave_room(log, intent, now))
            return machines if fits else 0

    def paused(at: int) -> tuple[int, int, Home]:
        """Statements of the first process, the machines of both, and the home."""
        home = Home(Settings(home=tmp_path / str(at), quotas=quotas_from(QUOTAS)))
        home.settings.home.mkdir()
        home.attend("p", "q")
        home.queue().join([joined("p", 10.0, most=3), joined("q", 9.0, most=3)])
        statements, other = 0, list[int]()
        thread = Thread(target=lambda: other.append(turn(home, "q", START + 90 * SECOND)))

        def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
            nonlocal statements
            if event == "line" and frame.f_code.co_filename in traced:
                statements += 1
                if statements == at:
                    thread.start()
                    # It may have to wait for a transaction of this one.
                    thread.join(0.2)
            return trace

        sys.settrace(trace)
        try:
            own = turn(home, "p", START)
        finally:
            sys.settrace(None)
        if at:
            thread.join()
        return statements, own + sum(other), home

    traced = {str(module.__file__) for module in (shared_queue, execute, live_markets)}
    statements, _, home = paused(0)
    assert statements > 50
    for at in range(1, statements, 3):
        _, machines, home = paused(at)
        assert 0 < machines <= 4
        last = home.last_round()
        assert sum(count for held in last.machines.values() for count in held.values()) <= 4
        assert last.machines.keys() == {"p", "q"}
        for name in ("p", "q"):
            home.leave(name)
