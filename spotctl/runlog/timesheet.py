"""What finished clocks tell of machines' time, on the provider's clock: who works from when, and what was done twice.

Nodes are heard of when a clock is done, so that their moments are those of its middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from agileml.core.events import Iteration
from pricing_data.units import SECOND
from spotctl.runlog.events import Moment, Progressed, Stretch

_READY, _LEFT = re.compile(r"(\S+) ready"), re.compile(r"(\S+) left")


class Timesheet:
    """Of one training; `speed` is the provider's time over time on the clock."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._chunks = 0

    def progressed(self, iteration: Iteration, at: int, untold: Progressed | None) -> Progressed:
        """The event of a clock that was done at a moment; what an earlier one tells that was not written is kept."""
        span = round(iteration.seconds * self._speed * SECOND)
        # Before the first clock begins all wait for the last to come: who is ready then works from its beginning.
        heard = at - (span if iteration.clock == 1 else span // 2)
        told = untold or Progressed(0, None, 0)
        return Progressed(
            iteration.clock,
            iteration.loss,
            iteration.stage,
            ready=(*told.ready, *_moments(_READY, iteration.events, heard)),
            left=(*told.left, *_moments(_LEFT, iteration.events, heard)),
            redone=(*told.redone, *self._redone(iteration, at, span)),
        )

    def _redone(self, iteration: Iteration, at: int, span: int) -> tuple[Stretch, ...]:
        """Work is done again before it goes on; of the clock's time it takes as much as it has of the chunks."""
        if not iteration.redone:
            self._chunks = iteration.sums.chunks or self._chunks
            return ()
        new = self._chunks or iteration.sums.chunks
        return (Stretch(at - span * iteration.redone // (iteration.redone + new), at),)


def _moments(what: re.Pattern[str], told: Iterable[str], at: int) -> Iterator[Moment]:
    return (Moment(found[1], at) for event in told if (found := what.fullmatch(event)))
