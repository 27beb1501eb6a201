"""A gang's launcher is killed around its writes and calls: attempts never overlap, and the job is
done all the same.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Rent
from bidbrain.strategies.standard import Standard
from pricing_data.units import HOUR
from spotctl.agent.layout import TASK_VARIABLE
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Machine, MachineState
from spotctl.files.job.programs import Command
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import JobSpec, LocalMarket, Range
from spotctl.files.job.values import Nodes
from spotctl.log.events import RunBegan, RunEnded
from spotctl.log.store import EventLog
from spotctl.planning.facts import OVERHEADS
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work import command_workload
from spotctl.run.work.command_workload import CommandWorkload
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run import worlds
from tests.spotctl.run.worlds import (
    OFFERS,
    ONCE,
    PRICES,
    ROUND_SECONDS,
    RULE,
    RUN,
    START,
    TARIFF,
    DeadlyLog,
    DeadlyProvider,
    Death,
    Killed,
)

WARNED, CRASHED = 6, 14
WORK, SAVING = 12, 3
BASELINE = Rent(OFFERS[0], 2, None)
RULES = Decider(
    OFFERS,
    BASELINE,
    None,
    8.0,
    MachineLimits(2, 2, {}, together=True),
    OVERHEADS,
    None,
    Standard(),
    RULE,
    HOUR,
)
SPEC = JobSpec(
    "job",
    Command("work", Nodes(2, 2)),
    Resources(("local",), Range(2, 2), Reliable(0)),
    Path("/"),
    local=LocalMarket(speed=1),
)


@dataclass
class World:
    """Two nodes work while both are there. One is warned, and takes some rounds to save; later one
    crashes.
    """

    cloud: FakeProvider
    rounds: int = 0
    done: int = 0
    saving: int = 0
    attempts: list[str] = field(default_factory=list)

    def pass_round(self) -> None:
        self.rounds += 1
        self.cloud.advance(ROUND_SECONDS)
        alive = [one for one in self.cloud.everything if one.state is not MachineState.GONE]
        if self.rounds == WARNED and alive:
            self.cloud.evict(alive[0].id, 5 * ROUND_SECONDS)
        if self.rounds == CRASHED and alive:
            self.cloud.crash(alive[-1].id)
        self._work([one for one in self.cloud.everything if one.state is not MachineState.GONE])

    def _work(self, alive: Sequence[Machine]) -> None:
        running = [one for one in alive if one.work.startswith("run-") and one.exit_code is None]
        for machine in alive:
            if machine.work.startswith("rest-") and machine.exit_code is None:
                self.cloud.finish(machine.id, 0)
        names = {machine.work for machine in running}
        assert len(names) <= 1, "two attempts overlap"
        self.attempts += [name for name in names if name not in self.attempts]
        ranks = sorted(self._rank(machine.id) for machine in running)
        assert ranks in ([], [0], [1], [0, 1])
        for machine in running:
            if machine.warned_until is not None:
                self.saving += 1
                if self.saving == SAVING:
                    self.cloud.finish(machine.id, 75)
        self.done += len(ranks) == 2
        if self.done >= WORK and len(ranks) == 2:
            for machine in running:
                self.cloud.finish(machine.id, 0)

    def _rank(self, machine: str) -> int:
        payload = self.cloud.payload(machine)
        assert payload is not None
        return int(json.loads(payload.environment[TASK_VARIABLE])["rank"])


def run(path: Path, world: World, death: Death) -> RunEnded:
    """A process that runs the job, from its beginning or from where another died."""
    provider: Any = DeadlyProvider(world.cloud, death)
    with EventLog(path) as log:
        journal = Journal(DeadlyLog(log, death), RUN, world.cloud.now)
        if journal.state.began is None:
            journal.write(RunBegan("job", world.cloud.name, {}, "", 0))
        around = worlds.environment(provider, path.parent)
        work = CommandWorkload(SPEC, around, lambda *_: inf, lambda: 1)
        terms = StrategyTerms(OFFERS, BASELINE, 8.0, inf, None)
        runner = Runner(journal, around, work, RunRules(lambda: (RULES, terms), TARIFF), ONCE)
        return runner.run(world.pass_round, lambda: 0)


def survive(path: Path, deaths: Sequence[int]) -> tuple[World, Death]:
    world, death = World(FakeProvider(Replayed.of(PRICES.values()), START)), Death()
    for at in deaths:
        try:
            run(path, world, Death(at))
        except Killed:
            continue
    assert run(path, world, death).outcome == "done"
    assert all(machine.state is MachineState.GONE for machine in world.cloud.everything)
    with EventLog(path) as log:
        state = Journal(log, RUN, world.cloud.now).state
    assert state.machines.keys() == {machine.id for machine in world.cloud.everything}, (
        "machines missing from the log"
    )
    return world, death


def test_a_gang_survives_its_launchers_death_at_any_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_workload, "PAUSE", 0.0)
    monkeypatch.setattr(worlds, "CHANGING", (*worlds.CHANGING, "assign"))
    world, undisturbed = survive(tmp_path / "undisturbed.sqlite", ())
    assert world.attempts == ["run-1", "run-2", "run-3"]
    points = len(undisturbed.met)
    assert points > 100
    for at in range(0, points, 9):
        survive(tmp_path / f"{at}.sqlite", (at,))
        survive(tmp_path / f"{at}-twice.sqlite", (at, at // 3))
