"""The simulation of a training: workers and servers on simulated machines, the real role code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from agileml.core.controller import Controller
from agileml.core.events import ControllerInstruction, ControllerSettings, Iteration
from agileml.engines.sim.job import JobSimulation, Machines
from agileml.params.layout import Layout
from agileml.protocol.actions import Compute, Fetch, Save
from agileml.roles.node import JobSettings, Node
from agileml.slowdowns import Slowdown, Slowness, SlowServer
from agileml.trainer import Trainer, initial_model, plan_of, shards_of


class Simulation(JobSimulation[Node, Controller]):
    """A training on simulated nodes. `observe` is called after each event."""

    def __init__(
        self,
        trainer: Trainer,
        settings: ControllerSettings,
        job: JobSettings,
        machines: Machines | None = None,
        seed: int = 0,
        observe: Callable[[Simulation], None] | None = None,
        slowdowns: Sequence[Slowdown] = (),
    ) -> None:
        self.trainer = trainer
        self.job = job
        self.shards = list(shards_of(trainer))
        self.plan = plan_of(trainer, self.shards)
        self.layout = Layout.cut(initial_model(trainer, job.seed), job.partitions)
        self._slowdowns = slowdowns
        self._slowness: dict[str, Slowness] = {}
        control = partial(Controller.resume, self.plan, self.layout.partition_bytes(), settings)
        super().__init__(settings, control, self._node, machines, seed, job.frame_bytes, observe)

    def _node(self, name: str) -> Node:
        return Node(
            name, self.trainer, self.shards, self.plan, self.job, self.layout, lambda: self.now
        )

    def describe(self) -> str:
        """The job's state, for the message that says that it is stuck."""
        controller = self.controller
        return (
            f"{controller.mode.value} in epoch {controller.epoch}, stable {controller.stable},"
            f" {controller.planned.assignment}, nodes {sorted(self.nodes)}"
        )

    def _tick(self) -> None:
        ledger = self.controller.clocks.ledger
        for name, node in self.nodes.items():
            if self.controller.members.get(name) is not None:
                ledger.note_underway(name, node.worker.unreported)
        super()._tick()

    def _carry_out(self, instruction: ControllerInstruction) -> None:
        if isinstance(instruction, Iteration) and not self.log:
            owners = sorted(set(self.controller.table.owners))
            for slowdown in self._slowdowns:
                if isinstance(slowdown, SlowServer):
                    slow = dict.fromkeys(owners[: slowdown.count], slowdown.to)
                    self._wire.slow.update(slow)
                    if slowdown.until < inf:
                        self.at(slowdown.until, self._wire.slow.clear)
        super()._carry_out(instruction)

    def _begin(self, name: str, action: Compute | Save | Fetch) -> None:
        if isinstance(action, Compute):
            seconds = (
                self.machines.seconds_per_chunk + self.machines.seconds_per_item * action.work.items
            )
            if self._slowdowns:
                slowness = self._slowness.setdefault(
                    name, Slowness(self._slowdowns, self.job.seed, name)
                )
                seconds *= slowness.factor(action.work.clock, seconds, self.now)
            node = self.nodes[name]
            work = action.work

            def computed() -> None:
                if self.nodes.get(name) is node:
                    result = node.chunk_runner.run(work)
                    self._act(name, node.take_result(replace(result, seconds=seconds)))

            self.time.later(seconds, computed)
        else:
            super()._begin(name, action)
