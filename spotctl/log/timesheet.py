"""When machines of a training worked, from its finished clocks, in the provider's time.

Nodes report when a clock is done, so that their events are dated to the middle of the clock.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from agileml.core.events import Iteration
from pricing_data.units import SECOND
from spotctl.log.events import Moment, Progressed, Stretch

_READY, _LEFT = re.compile(r"(\S+) ready"), re.compile(r"(\S+) left")


class Timesheet:
    """Collects the events of one training; `speed` is the provider's time per second of this computer's, and
    `machine_of` gives the machine of a node, whose name may not have all characters of an id."""

    def __init__(self, speed: float, machine_of: Callable[[str], str] = lambda node: node) -> None:
        self._speed, self._machine_of = speed, machine_of
        self._chunks = 0
        self._loss: float | None = None
        """The last one that is known: not every clock computes it."""

    def progressed(self, iteration: Iteration, at: int, pending: Progressed | None) -> Progressed:
        """The progress event of a clock that finished `at` a moment; `pending` is an earlier one not yet logged."""
        span = round(iteration.seconds * self._speed * SECOND)
        # The first clock begins when the last node has joined: nodes that are ready work from its start.
        middle = at - (span if iteration.clock == 1 else span // 2)
        before = pending or Progressed(0, None, 0)
        self._loss = self._loss if iteration.loss is None else iteration.loss
        return Progressed(
            iteration.clock,
            self._loss,
            iteration.stage,
            ready=(*before.ready, *self._moments(_READY, iteration.events, middle)),
            left=(*before.left, *self._moments(_LEFT, iteration.events, middle)),
            redone=(*before.redone, *self._redone(iteration, at, span)),
        )

    def _redone(self, iteration: Iteration, at: int, span: int) -> tuple[Stretch, ...]:
        """Redone work comes first; of the time of the clock it takes its share of the chunks."""
        if not iteration.redone:
            self._chunks = iteration.sums.chunks or self._chunks
            return ()
        new = self._chunks or iteration.sums.chunks
        return (Stretch(at - span * iteration.redone // (iteration.redone + new), at),)

    def _moments(self, what: re.Pattern[str], events: Iterable[str], at: int) -> Iterator[Moment]:
        return (Moment(self._machine_of(match[1]), at) for event in events if (match := what.fullmatch(event)))
