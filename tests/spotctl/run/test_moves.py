"""A job with a deadline moves to another region when the capacity of its own goes, and pays for that."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.replay.market import Capacity
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.on_demand import AlwaysOnDemand
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE
from spotctl.files.job.programs import Checkpoint, Command
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import JobSpec, LocalMarket, Range
from spotctl.files.job.values import Nodes
from spotctl.ledger.project import project
from spotctl.ledger.rows import ChargeKind, micro_dollars
from spotctl.machines.base import MachineState
from spotctl.machines.fake import FakeProvider
from spotctl.machines.replayed import Replayed
from spotctl.planning.regimes import OVERHEADS
from spotctl.planning.roaming import roaming_of, transfer_time
from spotctl.run import command_workload
from spotctl.run.command_workload import CommandWorkload
from spotctl.run.execute import Journal
from spotctl.run.live_strategy import LiveStrategy
from spotctl.run.reconcile import StrategyTerms
from spotctl.run.service import Runner, RunRules
from spotctl.runlog import events as ev
from spotctl.runlog.budget import Tariff
from tests.spotctl.run import worlds
from tests.spotctl.run.worlds import ONCE, ROUND_SECONDS, RULE, RUN, START, MemoryLog, flat

if TYPE_CHECKING:
    from spotctl.planning.values import JobPlan

EAST, WEST = (Market("local", f"sim-{side}", f"sim-{side}-a", "c4.xlarge") for side in ("east", "west"))
OFFERS = tuple(Offer(market, 4.0, 200_000_000) for market in (EAST, WEST))
PRICES = {EAST: flat(EAST, 50_000_000), WEST: flat(WEST, 60_000_000)}
GONE_AT, WRITTEN_AT, DONE_AFTER = 40, 20, 60
SIZE = 50 * 10**9
SPEC = JobSpec(
    "job",
    Command("work", Nodes(1, 1), Checkpoint("kept", size=SIZE)),
    Resources(("local",), Range(1, 1), Reliable(0)),
    Path("/"),
    local=LocalMarket(speed=1),
)


@dataclass
class World:
    """The east has machines for a while and is then empty for ever; the job has a checkpoint by then."""

    cloud: FakeProvider
    journal: Journal
    rounds: int = 0
    worked: int = 0

    def pass_round(self) -> None:
        self.rounds += 1
        self.cloud.advance(ROUND_SECONDS)
        if self.rounds == WRITTEN_AT:
            self.journal.write(ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0))
        for machine in self.cloud.everything:
            if machine.state is not MachineState.GONE and machine.work.startswith("run-") and machine.exit_code is None:
                self.worked += 1
                if self.worked >= DONE_AFTER:
                    self.cloud.finish(machine.id, 0)


def test_a_job_moves_when_the_capacity_of_its_region_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)
    gone = START + GONE_AT * ROUND_SECONDS * 1_000_000
    empty = Capacity(np.array([START, gone]), np.array([4, 0]))
    cloud = FakeProvider(Replayed.of(PRICES.values(), {EAST: empty}), START)
    tariff = Tariff(lambda _: RULE, lambda market, _: PRICES[market])
    baseline = Rent(OFFERS[0], 1, None)
    past = {market: PriceSeries(market, one.times - DAY, one.prices) for market, one in PRICES.items()}
    roaming = roaming_of(OFFERS, past, dict.fromkeys(PRICES), START)
    work = 4.0 * 10 * HOUR
    limits = MachineLimits(1, 1, {}, together=True)
    deadline = START + 20 * HOUR
    decider = Decider(OFFERS, baseline, None, 4.0, limits, OVERHEADS, deadline, AlwaysOnDemand(), RULE, roaming=roaming)
    log = MemoryLog()
    journal = Journal(log, RUN, cloud.now)
    journal.write(ev.RunBegan("job", cloud.name, {}, "", 0))
    plan = SimpleNamespace(
        decider=decider,
        work_left=work,
        worded=str,
        checkpoints=object(),
        job=SimpleNamespace(spec=SPEC),
        market_history=None,
    )
    live = LiveStrategy(cast("JobPlan", plan), lambda: journal.state, lambda: (inf, 0.0), tariff)
    around = worlds.environment(cloud, tmp_path)
    terms = StrategyTerms(OFFERS, baseline, 4.0, work, None)
    workload = CommandWorkload(SPEC, around, lambda *_: inf, 1)
    runner = Runner(journal, around, workload, RunRules(lambda: (live, terms), tariff), ONCE)
    ended = runner.run(World(cloud, journal).pass_round, lambda: 0)
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
    assert [(micro_dollars(row.amount), row.target) for row in egress] == [(1_000_000, f"{WEST.cloud}/{WEST.region}")]
    assert sum(row.amount for row in rows) == ended.facts["spent"]
    assert any("on spot in sim-west-a" in one.reason for one in events if isinstance(one, ev.Decided))
