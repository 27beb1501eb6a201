"""Messages between a controller and the job loop: the clocks of a job while it runs, and its
result.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agileml.core.events import Iteration
from agileml.job import Counters, Listener, Observation
from agileml.params.layout import Layout, Params
from agileml.protocol.messages import Version


@dataclass(frozen=True, slots=True)
class Result:
    """How a job ended; `tally` counts the chunks that every version must contain.

    The controller sends every partition of the model before this message, and this without
    versions.
    """

    clock: int
    versions: tuple[Version, ...]
    evictions: int
    failures: int
    loss: float | None = None
    tally: tuple[int, int] = (0, 0)
    interrupted: bool = False
    failure: str = ""


@dataclass(frozen=True, slots=True)
class ModelPart:
    """A partition of the finished model, for the job loop."""

    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class RepeatedIteration:
    """A finished clock that an earlier controller may have reported already."""

    iteration: Iteration


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """From the job loop: every clock up to this one has arrived and need not be repeated."""

    clock: int


@dataclass(frozen=True, slots=True)
class Settle:
    """From the job loop, which gets it back once what has arrived before was handled."""


@dataclass(frozen=True, slots=True)
class Attendance:
    """From the controller to the job loop: the nodes that are linked to it, and the chunks that
    workers reported.
    """

    nodes: tuple[str, ...]
    chunks: int = 0
    expelled: tuple[str, ...] = ()
    """Nodes that broke the rules: they do nothing for the job any more."""


class Clocks:
    """Passes each finished clock to the listener once, even if a restarted controller reports it
    again.
    """

    def __init__(self, listener: Listener, last: int = 0) -> None:
        self.last = last
        self._listener = listener
        self._pending_events: tuple[str, ...] = ()

    def accept(self, iteration: Iteration) -> bool:
        """Whether the clock is new. The events of a repeated clock are passed on with the next new
        one.
        """
        events = self._pending_events + iteration.events
        if iteration.clock <= self.last:
            self._pending_events = events
            return False
        self.last = iteration.clock
        self._pending_events = ()
        self._listener(replace(iteration, events=events))
        return True


def observation_of(iteration: Iteration, history: Sequence[Observation]) -> Observation:
    """A finished clock as the stopping criterion sees it; its seconds are those since the job
    began.
    """
    before = history[-1].seconds if history else 0.0
    return Observation(iteration.clock, before + iteration.seconds, iteration.loss)


def model_of(layout: Layout, versions: Sequence[Version]) -> Params:
    """The named arrays of a model, from its partitions."""
    model = layout.allocate()
    for partition, version in enumerate(versions):
        # Optimizer slots follow the segments of the model.
        segments = len(layout.partitions[partition])
        layout.place(partition, version.state[:segments], model)
    return model


def counted(tally: tuple[int, int], versions: Sequence[Version]) -> Counters:
    """Counts missing and doubled chunks by the versions' tallies.

    If a tally has the right number of chunks but a wrong fingerprint, one chunk is missing and
    another is doubled.
    """
    expected, fingerprint = tally
    lost = doubled = 0
    for version in versions:
        surplus = version.tally.chunks - expected
        mismatch = int(surplus == 0 and version.tally.fingerprint != fingerprint)
        lost += max(-surplus, 0) + mismatch
        doubled += max(surplus, 0) + mismatch

    applied = sum(version.tally.chunks for version in versions)
    return Counters(expected * len(versions), applied, lost, doubled)
