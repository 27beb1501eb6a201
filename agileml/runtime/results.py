"""What an engine tells while a job runs, and gives back when it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agileml.core.events import Iteration
from agileml.job import Counters, Listener
from agileml.params.layout import Layout, Params
from agileml.protocol.messages import Version
from agileml.work.covers import FINGERPRINT_MASK
from agileml.work.plan import WorkPlan


class Clocks:
    """Passes each finished clock on once. A controller that took over may tell one again, with events of its own."""

    def __init__(self, listener: Listener, last: int = 0) -> None:
        self.last = last
        self._listener = listener
        self._untold: tuple[str, ...] = ()

    def hear(self, iteration: Iteration) -> bool:
        """Whether the clock is new; the events of one that is not come with the next."""
        events = self._untold + iteration.events
        if iteration.clock <= self.last:
            self._untold = events
            return False
        self.last, self._untold = iteration.clock, ()
        self._listener(replace(iteration, events=events))
        return True


def model_of(layout: Layout, versions: Sequence[Version]) -> Params:
    """The named arrays of a model, from its partitions."""
    model = layout.allocate()
    for partition, version in enumerate(versions):
        # Optimizer slots follow the segments of the model.
        segments = len(layout.partitions[partition])
        layout.place(partition, version.state[:segments], model)
    return model


def counted(plan: WorkPlan, clocks: int, versions: Sequence[Version]) -> Counters:
    """What the versions' tallies tell: chunks that are missing, and chunks that are there twice.

    A tally whose number is right and whose fingerprint is not holds another chunk in place of one that is missing.
    """
    accepted = [plan.accept_all(clock) for clock in range(1, clocks + 1)]
    expected = sum(one.chunks for one in accepted)
    fingerprint = sum(one.fingerprint for one in accepted) & FINGERPRINT_MASK
    lost = doubled = 0
    for version in versions:
        surplus = version.tally.chunks - expected
        wrong = int(surplus == 0 and version.tally.fingerprint != fingerprint)
        lost += max(-surplus, 0) + wrong
        doubled += max(surplus, 0) + wrong
    applied = sum(version.tally.chunks for version in versions)
    return Counters(expected * len(versions), applied, lost, doubled)
