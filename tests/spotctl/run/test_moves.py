"""A job with a deadline moves to another region when the capacity of its own goes, and pays for that."""

from __future__ import annotations

from pathlib import Path

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
from spotctl.ledger.project import project
from spotctl.ledger.rows import ChargeKind, micro_dollars
from spotctl.machines.fake import FakeProvider
from spotctl.machines.replayed import Replayed
from spotctl.planning.regimes import OVERHEADS
from spotctl.planning.roaming import roaming_of, transfer_time
from spotctl.run import command_workload
from spotctl.runlog import events as ev
from spotctl.runlog.budget import Tariff
from tests.spotctl.run.gangs import GangRun
from tests.spotctl.run.worlds import ROUND_SECONDS, RULE, START, flat

EAST, WEST = (Market("local", f"sim-{side}", f"sim-{side}-a", "c4.xlarge") for side in ("east", "west"))
OFFERS = tuple(Offer(market, 4.0, 200_000_000) for market in (EAST, WEST))
PRICES = {EAST: flat(EAST, 50_000_000), WEST: flat(WEST, 60_000_000)}
GONE_AT, WRITTEN_AT, DONE_AFTER = 40, 20, 60
SIZE = 50 * 10**9


class Rounds:
    """The east has machines for a while and is then empty for ever; the job has a checkpoint by then."""

    def __init__(self) -> None:
        self.worked = 0

    def __call__(self, run: GangRun) -> None:
        if run.rounds == WRITTEN_AT:
            run.journal.write(ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0))
        for machine in run.working:
            self.worked += 1
            if self.worked >= DONE_AFTER:
                run.cloud.finish(machine.id, 0)


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
    run = GangRun(cloud, tmp_path, decider, Rounds(), work, SIZE, tariff)
    ended, log, journal = run.run(), run.log, run.journal
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
