"""Runs a gang on the fake cloud, from its decider to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from bidbrain.decision.decider import Decider
from spotctl.clouds.provider import Machine, MachineState
from spotctl.files.job.programs import Checkpoint, Command
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import JobSpec, LocalMarket, Range
from spotctl.files.job.values import Nodes
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.run.environment import LAUNCHER
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.live_strategy import LiveStrategy
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work.command_workload import CommandWorkload
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run import worlds
from tests.spotctl.run.worlds import ONCE, ROUND_SECONDS, RUN, TARIFF, MemoryLog

if TYPE_CHECKING:
    from spotctl.agent.data.locations import StoreIdentity
    from spotctl.planning.values import JobPlan


@dataclass
class GangRun:
    """A command on a fake cloud, perhaps without checkpoints. `each_round` is called after each
    round of the run.
    """

    cloud: FakeProvider
    folder: Path
    decider: Decider
    each_round: Callable[[GangRun], None]
    work: float = inf
    size: int | None = None
    tariff: Tariff = TARIFF
    log: MemoryLog = field(default_factory=MemoryLog)
    rounds: int = 0
    outputs: Mapping[str, str] = field(default_factory=dict)
    saves: bool = True
    identity: StoreIdentity = LAUNCHER

    def __post_init__(self) -> None:
        self.journal = Journal(self.log, RUN, self.cloud.now)

    @property
    def working(self) -> list[Machine]:
        """Machines that run the command."""
        there = (one for one in self.cloud.everything if one.state is not MachineState.GONE)
        return [one for one in there if one.work.startswith("run-") and one.exit_code is None]

    @property
    def spec(self) -> JobSpec:
        """A job file would say this."""
        limits = self.decider.limits
        nodes = Nodes(limits.least, limits.most)
        checkpoint = Checkpoint(str(self.folder / "kept"), size=self.size) if self.saves else None
        return JobSpec(
            "job",
            Command("work", nodes, checkpoint),
            Resources(("local",), Range(nodes.least, nodes.most), Reliable(0)),
            Path("/"),
            outputs=self.outputs,
            local=LocalMarket(speed=1),
        )

    @property
    def attempts(self) -> list[ev.AttemptBegan]:
        """When the command was started, and where."""
        return [row.event for row in self.log.rows if isinstance(row.event, ev.AttemptBegan)]

    def run(self) -> ev.RunEnded:
        """From its beginning to its end."""
        self.journal.write(ev.RunBegan("job", self.cloud.name, {}, "", 0))
        decider, spec = self.decider, self.spec
        job = SimpleNamespace(spec=spec)
        fleet = SimpleNamespace(work=self.work, market_history=None)
        demand = SimpleNamespace(worded=str)
        plan = SimpleNamespace(decider=decider, fleet=fleet, demand=demand, job=job)
        live = LiveStrategy(
            cast("JobPlan", plan), lambda: self.journal.state, lambda: (inf, 0.0), self.tariff
        )
        terms = StrategyTerms(decider.offers, decider.baseline, decider.most_nu, self.work, None)
        around = replace(worlds.environment(self.cloud, self.folder), identity=self.identity)
        workload = CommandWorkload(spec, around, lambda *_: inf, lambda: 1)
        limits = RunLimits(least=decider.limits.least, shrinks=decider.limits.shrinks)
        runner = Runner(
            self.journal,
            around,
            workload,
            RunRules(lambda: (live, terms), self.tariff, limits),
            ONCE,
        )
        return runner.run(self._pass_round, lambda: 0)

    def _pass_round(self) -> None:
        self.rounds += 1
        self.cloud.advance(ROUND_SECONDS)
        self.each_round(self)
