"""A gang with a range of nodes where a cloud refuses orders for all of them: runs and backtests use
what it has.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.replay.job import run_job
from bidbrain.replay.market import Capacity, MarketReplay
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import NoCapacity, ProviderError, QuotaReached
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.log import events as ev
from spotctl.planning.facts import OVERHEADS
from spotctl.run.work import command_workload
from tests.spotctl.clouds.fake import Call, FakeProvider, Fault, Refusal
from tests.spotctl.run.gangs import GangRun
from tests.spotctl.run.worlds import MARKETS, OFFERS, PRICES, RULE, START

THERE = 2
BASELINE = Rent(OFFERS[1], 4, None)
LIMITS = MachineLimits(2, 4, {}, together=True)
DECIDER = Decider(OFFERS[:1], BASELINE, None, 16.0, LIMITS, OVERHEADS, None, Standard(), RULE, HOUR)


@pytest.mark.parametrize(
    "error", [NoCapacity("fewer are left"), QuotaReached("the quota is smaller")]
)
def test_an_order_that_is_refused_as_a_whole_is_repeated_for_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ProviderError
) -> None:
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)
    cloud = FakeProvider(Replayed.of(PRICES.values()), START)

    def few(call: Call) -> Fault | None:
        if not isinstance(asked := call.asked, MachineRequest):
            return None
        held = sum(one.state is not MachineState.GONE for one in cloud.everything)
        return Refusal(error) if asked.bid is None or asked.count + held > THERE else None

    cloud.weather = few

    def each_round(run: GangRun) -> None:
        if cloud.now() == START + 10 * MINUTE:
            run.journal.write(ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0))
        for machine in run.working if cloud.now() - START > HOUR else ():
            cloud.finish(machine.id, 0)

    run = GangRun(cloud, tmp_path, DECIDER, each_round)
    ended = run.run()
    assert ended.outcome == "done", ended.message
    (began,) = run.attempts
    assert len(began.machines) == THERE
    orders = [(call.asked, (call.at - START) // MINUTE) for call in cloud.calls]
    spot = [
        (order.count, at)
        for order, at in orders
        if isinstance(order, MachineRequest) and order.bid is not None
    ]
    # Two come, and the other two are asked for, at once and when the gang has a checkpoint and the
    # back-off is over.
    later = [(1 + turn % 2, 11 + 5 * turn) for turn in range(10)]
    assert spot == [(4, 0), (3, 2), (2, 6), (2, 6), *later]


def test_the_backtest_works_with_as_many_machines_as_there_are() -> None:
    two = Capacity(np.array([START]), np.array([THERE]))
    market = MarketReplay([PRICES[MARKETS[0]]], {MARKETS[0]: two})
    work = 2 * 4.0 * HOUR
    job = ReplayedJob(
        START, work, START + 5 * HOUR, OFFERS[:1], BASELINE, 16.0, nodes=2, most_nodes=4
    )
    run = run_job(job, DECIDER, market, OVERHEADS)
    assert [one.rent.machines for one in run.tenures] == [THERE]
    assert run.end == START + OVERHEADS.startup + HOUR
