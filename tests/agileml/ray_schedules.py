"""Random fault schedules on a Ray cluster of this computer: nodes killed and warned as on `local`,
machines drained.

`python -m tests.agileml.ray_schedules 0 3` runs the schedules of these seeds, one after the other,
and compares each model with the undisturbed one, bit for bit. A seed takes a minute.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Act, Chaos, FaultSchedule, Join, RunningMachine
from agileml.engines.ray import RayEngine
from tests.agileml.engines.ray_cluster import Cluster, ray_cluster
from tests.agileml.local_faults import CLOCKS, LENGTHS, LocalSchedule, check, undisturbed

SOURCE = TrainerSource("tests.agileml.toys:Slow", {"lengths": LENGTHS, "chunk": 2})

MACHINES = ("add", "kill", "drain")


class RayFaults(FaultSchedule):
    """The faults of a schedule, and machines of the cluster that come and go with everything on
    them.
    """

    def __init__(self, schedule: LocalSchedule, cluster: Cluster) -> None:
        super().__init__(Chaos.parse(schedule.chaos, schedule.seed))
        chance = random.Random(schedule.seed)
        self._chance, self._cluster = chance, cluster
        self._left = sorted(
            (chance.randint(1, CLOCKS - 2), chance.choice(MACHINES))
            for _ in range(chance.randint(1, 3))
        )
        self._killed: list[Any] = []
        self.done: list[str] = []

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        """Also what happens to machines of the cluster."""
        acts = [*super().due(clock, seconds, machines)]
        while self._left and self._left[0][0] <= clock:
            acts += self._happens(self._left.pop(0)[1])
        return acts

    def _happens(self, what: str) -> Sequence[Act]:
        self.done.append(what)
        alive = [machine for machine in self._cluster.added if machine not in self._killed]
        if what == "add" or not alive:
            self._cluster.add()
            return [Join(1)]
        machine = self._chance.choice(alive)
        if what == "kill":
            self._cluster.kill(machine)
            self._killed.append(machine)
        else:
            self._cluster.drain(machine)
        return ()


def happened(seed: int, cluster: Cluster) -> str:
    """Runs the schedule of a seed. Raises an exception unless its model is that of the undisturbed
    run.
    """
    schedule, log = LocalSchedule(seed), list[Iteration]()
    cluster.add()
    faults = RayFaults(schedule, cluster)
    try:
        trained = RayEngine().run(
            replace(schedule.job, source=SOURCE), faults, log.append, lambda _: None
        )
    finally:
        cluster.remove_added()
    check(trained, log, undisturbed())
    return (
        f"{schedule.chaos}; machines: {', '.join(faults.done)}; {sum(one.redone for one in log)} "
        "chunks redone"
    )


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds and prints what happened in each."""
    failed = 0
    with ray_cluster() as cluster:
        for seed in range(first, last):
            try:
                text = happened(seed, cluster)
            except Exception as error:  # noqa: BLE001 - every exception is a finding
                failed += 1
                text = f"FAILED, {LocalSchedule(seed).chaos}: {type(error).__name__}: {error}"
            sys.stdout.write(f"seed {seed}: {text}\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"seeds {first} to {last - 1}: {last - first - failed} ended with the undisturbed model\n"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
