"""A gang with a range of nodes where a cloud refuses orders for all of them: runs and backtests use what it has."""

from __future__ import annotations

from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.replay.job import ReplayedJob, run_job
from bidbrain.replay.market import Capacity, MarketReplay
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR, MINUTE
from spotctl.files.job.programs import Checkpoint, Command
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import JobSpec, LocalMarket, Range
from spotctl.files.job.values import Nodes
from spotctl.machines.base import MachineRequest, MachineState
from spotctl.machines.errors import NoCapacity, ProviderError, QuotaReached
from spotctl.machines.fake import Call, FakeProvider, Fault, Refusal
from spotctl.machines.replayed import Replayed
from spotctl.planning.regimes import OVERHEADS
from spotctl.run import command_workload
from spotctl.run.command_workload import CommandWorkload
from spotctl.run.execute import Journal
from spotctl.run.live_strategy import LiveStrategy
from spotctl.run.patience import RunLimits
from spotctl.run.reconcile import StrategyTerms
from spotctl.run.service import Runner, RunRules
from spotctl.runlog import events as ev
from tests.spotctl.run import worlds
from tests.spotctl.run.worlds import MARKETS, OFFERS, ONCE, PRICES, ROUND_SECONDS, RULE, RUN, START, TARIFF, MemoryLog

if TYPE_CHECKING:
    from spotctl.planning.values import JobPlan

THERE = 2
BASELINE = Rent(OFFERS[1], 4, None)
LIMITS = MachineLimits(2, 4, {}, together=True)
DECIDER = Decider(OFFERS[:1], BASELINE, None, 16.0, LIMITS, OVERHEADS, None, Standard(), RULE)
SPEC = JobSpec(
    "job",
    Command("work", Nodes(2, 4), Checkpoint("kept")),
    Resources(("local",), Range(1, 4), Reliable(0)),
    Path("/"),
    local=LocalMarket(speed=1),
)


@pytest.mark.parametrize("error", [NoCapacity("fewer are left"), QuotaReached("the quota is smaller")])
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

    def pass_round() -> None:
        cloud.advance(ROUND_SECONDS)
        if cloud.now() == START + 10 * MINUTE:
            journal.write(ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0))
        for machine in cloud.everything:
            done = cloud.now() - START > HOUR and machine.work.startswith("run-")
            if done and machine.state is not MachineState.GONE and machine.exit_code is None:
                cloud.finish(machine.id, 0)

    log = MemoryLog()
    journal = Journal(log, RUN, cloud.now)
    journal.write(ev.RunBegan("job", cloud.name, {}, "", 0))
    plan = SimpleNamespace(decider=DECIDER, work_left=inf, worded=str, job=SimpleNamespace(spec=SPEC))
    live = LiveStrategy(cast("JobPlan", plan), lambda: journal.state, lambda: (inf, 0.0), TARIFF)
    around = worlds.environment(cloud, tmp_path)
    terms = StrategyTerms(OFFERS[:1], BASELINE, 16.0, inf, None)
    rules = RunRules(lambda: (live, terms), TARIFF, RunLimits(least=2, shrinks=True))
    ended = Runner(journal, around, CommandWorkload(SPEC, around, lambda *_: inf, 1), rules, ONCE).run(
        pass_round, lambda: 0
    )
    assert ended.outcome == "done", ended.message
    (began,) = (row.event for row in log.rows if isinstance(row.event, ev.AttemptBegan))
    assert len(began.machines) == THERE
    orders = [(call.asked, (call.at - START) // MINUTE) for call in cloud.calls]
    spot = [(order.count, at) for order, at in orders if isinstance(order, MachineRequest) and order.bid is not None]
    # Two come, and the other two are asked for, at once and when the gang has a checkpoint and the back-off is over.
    assert spot == [(4, 0), (3, 2), (2, 6), (2, 6), (1, 14), (2, 30)]


def test_the_backtest_works_with_as_many_machines_as_there_are() -> None:
    two = Capacity(np.array([START]), np.array([THERE]))
    market = MarketReplay([PRICES[MARKETS[0]]], {MARKETS[0]: two})
    work = 2 * 4.0 * HOUR
    job = ReplayedJob(START, work, START + 5 * HOUR, OFFERS[:1], BASELINE, 16.0, nodes=2, most_nodes=4)
    run = run_job(job, DECIDER, market, OVERHEADS)
    assert [one.rent.machines for one in run.tenures] == [THERE]
    assert run.end == START + OVERHEADS.startup + HOUR
