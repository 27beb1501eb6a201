"""The best stage for each mix of nodes in the simulated network of the paper, and the one
`LearnedStage` chooses.

`python -m tests.agileml.stage_trials [CLOCKS [MEGABYTES]]` prints seconds per iteration by stage,
the final stage, and why, for a model of that size. It fails if a job that learns takes more than 5%
longer than the same job in the best stage from its start on.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np

from agileml.core.events import ControllerSettings, Iteration
from agileml.engines.sim.fleet import Simulation
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import HEADER_BYTES, Network
from agileml.params.deltas import nbytes
from agileml.params.layout import state_bytes
from agileml.policies.stage import FixedStage, LearnedStage, TrainingPolicy
from agileml.protocol.messages import Handover, Patch, Push, Restore, Snapshot
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample

GIGABIT = 125e6
MODEL_BYTES = 64e6
"""A model of which every row changes in every clock: the largest load on the paper's network."""

ROWS, SHARDS = 32, 64
COMPUTE_SECONDS = 256.0
"""Per iteration, over all machines."""

MEASURED = 5
MIXES = (
    (8, 8),
    (4, 8),
    (4, 12),
    (2, 10),
    (2, 14),
    (1, 12),
    (1, 15),
    (1, 24),
    (2, 62),
    (1, 48),
    (1, 63),
)
"""From 1:1 to 63:1."""

MAX_BEHIND = 0.05


class Dense:
    """Every chunk reads and updates every row."""

    name = "dense"

    def init(self, rng: np.random.Generator) -> dict[str, np.ndarray]:  # noqa: ARG002
        return {"w": np.zeros((ROWS, 1), np.float32)}

    def shards(self) -> list[range]:
        return [range(1)] * SHARDS

    def step(
        self,
        shard: range,  # noqa: ARG002
        lo: int,  # noqa: ARG002
        hi: int,  # noqa: ARG002
        params: ParamView,
        clock: int,  # noqa: ARG002
        rng: np.random.Generator,  # noqa: ARG002
    ) -> None:
        params.update("w", None, np.ones_like(params.read("w")))

    def loss(self, params: ParamReader, sample: Sample) -> float:  # noqa: ARG002
        return 0.0


def weighed(message: object, model_bytes: float = MODEL_BYTES) -> int:
    """Bytes of a message, scaled to rows of the modeled size."""
    return HEADER_BYTES + round(_array_bytes(message) * model_bytes / (4 * ROWS))


def _array_bytes(message: object) -> int:
    match message:
        case Push():
            return sum(nbytes(entry.delta) for part in message.parts for entry in part.entries)
        case Snapshot():
            return nbytes(message.values)
        case Patch():
            return nbytes(message.values)
        case Restore():
            return state_bytes(message.version.state)
        case Handover():
            return sum(state_bytes(version.state) for version in message.versions)
    return 0


def trained(
    policy: TrainingPolicy, nodes: tuple[int, int], clocks: int, model_bytes: float = MODEL_BYTES
) -> list[Iteration]:
    """The iterations of a job."""
    settings = ControllerSettings(*nodes, clocks, policy)
    network = Network(GIGABIT, weigh=partial(weighed, model_bytes=model_bytes))
    machines = Machines(COMPUTE_SECONDS / SHARDS, network=network)
    simulation = Simulation(Dense(), settings, JobSettings(partitions=8, loss_sample=0), machines)
    for number in range(sum(nodes)):
        simulation.join(reliable=number < nodes[0])
    simulation.run()
    return simulation.log


@dataclass(frozen=True)
class Trial:
    """Seconds per iteration of one mix of nodes in each stage; a job in the best of them, and one
    that learned.
    """

    nodes: tuple[int, int]
    seconds: dict[int, float]
    alone: float
    log: list[Iteration]

    @classmethod
    def of(
        cls, nodes: tuple[int, int], clocks: int = 30, model_bytes: float = MODEL_BYTES
    ) -> Trial:
        """Runs each stage by itself, and a job that learns."""
        steady = {
            stage: median(
                one.seconds
                for one in trained(FixedStage(stage), nodes, 3 + MEASURED, model_bytes)[-MEASURED:]
            )
            for stage in (1, 2, 3)
        }
        best = trained(FixedStage(min(steady, key=steady.__getitem__)), nodes, clocks, model_bytes)
        return cls(
            nodes, steady, _seconds(best), trained(LearnedStage(), nodes, clocks, model_bytes)
        )

    @property
    def best(self) -> int:
        """The fastest stage."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def behind(self) -> float:
        """By which share the job that learns took longer than one that knew the best stage."""
        return self.learning / self.alone - 1

    @property
    def learning(self) -> float:
        """Seconds of the job that learned."""
        return _seconds(self.log)

    @property
    def final(self) -> int:
        """The stage in which the job ended."""
        return self.log[-1].stage

    @property
    def tried(self) -> int:
        """Iterations in other stages."""
        return sum(one.stage != self.final for one in self.log)

    @property
    def decisions(self) -> list[str]:
        """The logged decisions about stages."""
        return [
            f"after clock {one.clock - 1}: {event}"
            for one in self.log
            for event in one.events
            if event.startswith("stage ")
        ]


def _seconds(log: list[Iteration]) -> float:
    return sum(one.seconds for one in log)


CLOCKS = 200


def main(clocks: int = CLOCKS, megabytes: float = MODEL_BYTES / 1e6) -> int:
    """Prints the comparison and the decisions."""
    _print(
        f"iteration in stage           1          2          3   best{clocks:5} of them  learning  "
        "behind  final  tried"
    )
    trials = list[Trial]()
    for nodes in MIXES:
        trials.append(trial := Trial.of(nodes, clocks, megabytes * 1e6))
        times = "".join(f"{trial.seconds[stage]:9.2f} s" for stage in (1, 2, 3))
        label = f"{trial.nodes[0]} + {trial.nodes[1]}"
        totals = f"{trial.best:7}{trial.alone:11.0f} s{trial.learning:8.0f} s"
        _print(f"{label:<19}{times}{totals}{trial.behind:10.1%}{trial.final:7}{trial.tried:7}")
    for trial in trials:
        _print(f"\n{trial.nodes[0]} + {trial.nodes[1]}")
        for decision in trial.decisions:
            _print(f"  {decision}")
    return int(max(trial.behind for trial in trials) > MAX_BEHIND)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
