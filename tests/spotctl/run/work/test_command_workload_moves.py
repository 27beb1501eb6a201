"""A gang that may not have the machines it wants to move to goes on where it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import NoCapacity, QuotaReached
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import MachineRequest, MachineState
from spotctl.log import events as ev
from spotctl.planning.facts import OVERHEADS
from spotctl.run.work import command_workload
from tests.spotctl.clouds.fake import (
    Call,
    FakeProvider,
    Fault,
    LostAnswer,
    LostRequest,
    PartialGrant,
    Refusal,
)
from tests.spotctl.run.gangs import GangRun
from tests.spotctl.run.worlds import MARKETS, OFFERS, PRICES, ROUND_SECONDS, RULE, START

NODES = 2
WORK = NODES * OFFERS[0].nu * HOUR
LIMITS = MachineLimits(NODES, NODES, {}, together=True)
BASELINE = Rent(OFFERS[1], NODES, None)
DONE_AFTER = 3600 // ROUND_SECONDS
WRITTEN_AT = 15


class Rounds:
    """The command needs an hour, and writes one checkpoint at the beginning: soon too much is at
    risk on spot.
    """

    def __init__(self) -> None:
        self.worked = 0

    def __call__(self, run: GangRun) -> None:
        assert run.rounds < 10 * DONE_AFTER, "it stands still"
        working = run.working
        self.worked += len(working) == NODES
        if self.worked == WRITTEN_AT:
            run.journal.write(ev.Checkpointed(1, 0, 1, 10, 1.0, 600.0))
        for machine in working if self.worked >= DONE_AFTER else ():
            run.cloud.finish(machine.id, 0)


def gang(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_demand: Fault | None,
    markets: Sequence[Market] = MARKETS,
) -> GangRun:
    """On-demand orders in these markets meet the fault. Spot machines are in the first, the
    baseline in the second.
    """
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)
    cloud = FakeProvider(Replayed.of(PRICES.values()), START)

    def weather(call: Call) -> Fault | None:
        asked = call.asked
        meets = isinstance(asked, MachineRequest) and asked.bid is None and asked.market in markets
        return on_demand if meets else None

    cloud.weather = weather
    deadline = START + HOUR + 25 * MINUTE
    decider = Decider(
        OFFERS[:1], BASELINE, None, 8.0, LIMITS, OVERHEADS, deadline, Standard(), RULE, HOUR
    )
    return GangRun(cloud, folder, decider, Rounds(), WORK)


def kinds(run: GangRun) -> list[bool]:
    """Of each attempt, whether it ran on spot machines."""
    state = run.journal.state
    return [
        state.allocations[state.machines[one.machines[0]].allocation].bid is not None
        for one in run.attempts
    ]


@pytest.mark.parametrize(
    ("on_demand", "spot"),
    [
        (None, [True, False]),
        (Refusal(NoCapacity("sold out")), [True]),
        (Refusal(QuotaReached("a quota of 0")), [True]),
        (PartialGrant(1), [True]),
        (LostRequest(), [True]),
        (LostAnswer(), [True]),
    ],
)
def test_spot_machines_go_on_close_to_the_deadline_unless_their_replacements_were_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_demand: Fault | None, spot: list[bool]
) -> None:
    run = gang(tmp_path, monkeypatch, on_demand)
    ended = run.run()
    assert ended.outcome == "done", ended.message
    orders = [call.asked for call in run.cloud.calls if isinstance(call.asked, MachineRequest)]
    assert any(order.bid is None for order in orders)
    assert kinds(run) == spot
    assert run.cloud.now() <= START + HOUR + 25 * MINUTE
    assert all(machine.state is MachineState.GONE for machine in run.cloud.everything)


def test_where_on_demand_machines_are_refused_those_of_another_market_are_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = gang(tmp_path, monkeypatch, Refusal(NoCapacity("sold out")), MARKETS[1:])
    ended = run.run()
    assert ended.outcome == "done", ended.message
    assert kinds(run) == [True, False]
    assert {one.market for one in run.cloud.everything} == {MARKETS[0]}
    assert run.cloud.now() <= START + HOUR + 25 * MINUTE
