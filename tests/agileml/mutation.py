"""A deliberate bug, and how schedules or a trial of its own detect it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from agileml.engines.sim.job import Machines
from tests.agileml.schedules import Schedule
from tests.agileml.targets import Target


@dataclass(frozen=True)
class Mutant:
    """A bug: the function it replaces, and the targets at which schedules detect it, or a trial of
    its own.
    """

    name: str
    where: object
    attribute: str
    fault: Callable[..., Any] | property
    aims: tuple[Target, ...] = ()
    then: tuple[str, str] | None = None
    machines: Machines | None = None
    slack: int | None = 0
    trial: Callable[[int], None] | None = None

    def run(self, seed: int) -> None:
        """Raises if the bug is detected, or if there is another one."""
        if self.trial is not None:
            self.trial(seed)
        else:
            self.schedule(seed).run()

    def schedule(self, seed: int) -> Schedule:
        """A schedule for one of the targets."""
        aim = self.aims[seed % len(self.aims)]
        return Schedule(seed, slack=self.slack, target=aim, then=self.then, machines=self.machines)

    @contextmanager
    def alive(self) -> Iterator[None]:
        """Introduces the bug for the duration of the context."""
        with patch.object(self.where, self.attribute, self.fault):
            yield


def catching(mutant: Mutant, seeds: int) -> Iterator[tuple[int, str]]:
    """The seeds below `seeds` whose schedules fail, with their errors."""
    assert hasattr(mutant.where, mutant.attribute), (
        f"{mutant.where} has no {mutant.attribute} to replace"
    )
    for seed in range(seeds):
        try:
            with mutant.alive():
                mutant.run(seed)
        except Exception as error:  # noqa: BLE001 - every exception counts
            yield seed, f"{type(error).__name__}: {error}"


def aims(stages: str, events: str, kinds: str) -> tuple[Target, ...]:
    return tuple(
        Target(int(stage), event.strip(), kind)
        for kind in kinds.split()
        for event in events.split(",")
        for stage in stages.split()
    )
