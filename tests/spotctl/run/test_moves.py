"""A job with a deadline moves to another region when the capacity of its own goes, and pays for
that.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.replay.market import Capacity
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.standard import AlwaysOnDemand
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineState
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.log.ledger.rows import ChargeKind, micro_dollars
from spotctl.planning.decider import roaming_of
from spotctl.planning.facts import OVERHEADS, transfer_time
from spotctl.run.work import command_workload
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run.gangs import GangRun
from tests.spotctl.run.worlds import ROUND_SECONDS, RULE, START, flat
from tests.spotctl.show.costs.made import project

EAST, WEST = (
    Market("local", f"sim-{side}", f"sim-{side}-a", "c4.xlarge") for side in ("east", "west")
)
OFFERS = tuple(Offer(market, 4.0, 200_000_000) for market in (EAST, WEST))
GONE_AT, WRITTEN_AT, DONE_AFTER = 40, 20, 60
SIZE = 50 * 10**9


class Rounds:
    """Writes a checkpoint before the east loses machines, and ends after `done_after` rounds of all
    nodes together.
    """

    def __init__(self, done_after: int) -> None:
        self.worked, self.done_after = 0, done_after

    def __call__(self, run: GangRun) -> None:
        if run.rounds == WRITTEN_AT:
            run.journal.write(ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0))
        for machine in run.cloud.everything:
            if machine.state is not MachineState.GONE and machine.work.startswith("rest-"):
                run.cloud.finish(machine.id, 0)
        for machine in run.working:
            self.worked += 1
            if self.worked >= self.done_after:
                run.cloud.finish(machine.id, 0)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)


def moving(
    folder: Path, limits: MachineLimits, capacity: Capacity, rounds: Rounds, east: int = 50_000_000
) -> tuple[GangRun, ev.RunEnded]:
    """Runs a job to its end that may move west, while the east has machines for `east` only as
    `capacity` allows.
    """
    prices = {EAST: flat(EAST, east), WEST: flat(WEST, 60_000_000)}
    cloud = FakeProvider(Replayed.of(prices.values(), {EAST: capacity}), START)
    tariff = Tariff(lambda _: RULE, lambda market, _: prices[market])
    baseline, rate = Rent(OFFERS[0], limits.most, None), 4.0 * limits.most
    past = {
        market: PriceSeries(market, one.times - DAY, one.prices) for market, one in prices.items()
    }
    roaming = roaming_of(OFFERS, past, dict.fromkeys(prices), START)
    deadline = START + 20 * HOUR
    decider = Decider(
        OFFERS,
        baseline,
        None,
        rate,
        limits,
        OVERHEADS,
        deadline,
        AlwaysOnDemand(),
        RULE,
        HOUR,
        roaming=roaming,
    )
    run = GangRun(cloud, folder, decider, rounds, rate * 10 * HOUR, SIZE, tariff)
    return run, run.run()


def shrinking(*sizes: int) -> Capacity:
    """As many machines from the start, and from the moments at which the east loses some."""
    changes = [START + GONE_AT * number * ROUND_SECONDS * 1_000_000 for number in range(len(sizes))]
    return Capacity(np.array(changes), np.array(sizes))


def test_a_range_of_nodes_goes_on_with_some_where_it_is_and_moves_when_too_few_are_left(
    tmp_path: Path,
) -> None:
    rounds = Rounds(done_after=300)
    limits = MachineLimits(2, 3, {}, together=True)
    run, ended = moving(tmp_path, limits, shrinking(3, 2, 0), rounds, east=20_000_000)
    assert ended.outcome == "done", ended.message
    state = run.journal.state
    places = [
        (len(one.machines), state.allocations[state.machines[one.machines[0]].allocation].market)
        for one in run.attempts
    ]
    assert places == [(3, EAST), (2, EAST), (3, WEST)]
    (sent,) = (row.event for row in run.log.rows if isinstance(row.event, ev.Sent))
    assert sent.bytes == SIZE


def test_a_job_moves_when_the_capacity_of_its_region_goes(tmp_path: Path) -> None:
    limits = MachineLimits(1, 1, {}, together=True)
    run, ended = moving(tmp_path, limits, shrinking(4, 0), Rounds(DONE_AFTER))
    log, journal, tariff = run.log, run.journal, run.tariff
    assert ended.outcome == "done", ended.message
    events = [row.event for row in log.rows]
    rented = [one.market for one in events if isinstance(one, ev.RentIntended)]
    assert rented[0] == EAST
    assert set(rented[1:]) == {WEST}
    (sent,) = (one for one in events if isinstance(one, ev.Sent))
    state = journal.state
    assert state.allocations[state.machines[sent.id].allocation].market == EAST
    assert sent.bytes == SIZE
    # The checkpoint takes its time from one region to the other.
    second = next(one for one in events if isinstance(one, ev.AttemptBegan) and one.attempt == 2)
    arrived = state.machines[second.machines[0]]
    assert sent.at - arrived.started >= transfer_time(SIZE / 10**9) > 4 * MINUTE
    rows = project(log.rows, tariff).rows
    egress = [row for row in rows if row.kind is ChargeKind.EGRESS]
    assert [(micro_dollars(row.amount), row.target) for row in egress] == [
        (1_000_000, f"{WEST.cloud}/{WEST.region}")
    ]
    assert sum(row.amount for row in rows) == ended.facts["spent"]
    assert any(
        "on spot in sim-west-a" in one.reason for one in events if isinstance(one, ev.Decided)
    )
