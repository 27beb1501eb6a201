"""The observations of a run: the availability of spot machines, from its orders and how their
machines ended, and when the machines of a training worked. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator

from agileml.core.events import Iteration
from pricing_data.availability import AvailabilitySpan, Ending, run_of_job
from pricing_data.units import SECOND
from spotctl.log.events import Moment, Progressed, Stretch
from spotctl.log.state import EVICTED, RunState


def availability_of(state: RunState, now: int) -> tuple[AvailabilitySpan, ...]:
    """The spans of a run until a moment, in order; none of a replayed market, where the price alone
    decides.
    """
    if state.began is None or state.is_replayed:
        return ()

    source = f"run {state.run}{run_of_job(state.began.job)}"
    spans = list[AvailabilitySpan]()
    for number, order in state.orders.items():
        if order.bid is None or order.reliable:
            continue
        if number in state.sold_out:
            at = state.ordered[number]
            spans.append(
                AvailabilitySpan(order.market, at, at, 0, order.machines, "refused", source)
            )
        came = [held for held in state.machines.values() if held.allocation == number]
        if came:
            # When they were first evicted, or had all ended, or until when they are known to be
            # held.
            evicted = [
                held.ended for held in came if held.ended is not None and held.end_reason == EVICTED
            ]
            ended: Ending = "returned"
            if evicted:
                until = min(evicted)
                ended = "evicted"
            elif any(held.alive for held in came):
                until = now
                ended = "warned" if any(held.warned_until is not None for held in came) else ""
            else:
                until = max(held.ended or 0 for held in came)

            since = min(held.started for held in came)
            granted = min(len(came), order.machines)
            until = max(until, since)
            spans.append(
                AvailabilitySpan(order.market, since, until, granted, order.machines, ended, source)
            )

    return tuple(sorted(spans))


_READY, _LEFT = re.compile(r"(\S+) ready"), re.compile(r"(\S+) left")


class Timesheet:
    """When machines of a training worked, from its finished clocks, in the provider's time.

    Nodes report when a clock is done, so that their events are dated to the middle of the clock.

    Collects the events of one training; `speed` is the provider's time per second of this
    computer's, and `machine_of` gives the machine of a node, whose name may not have all characters
    of an id."""

    def __init__(self, speed: float, machine_of: Callable[[str], str] = str) -> None:
        self._speed = speed
        self._machine_of = machine_of
        self._chunks = 0
        self._goes_on = False
        self._loss: float | None = None
        """The last one that is known: not every clock computes it."""

    def progressed(self, iteration: Iteration, at: int, pending: Progressed | None) -> Progressed:
        """The progress event of a clock that finished `at` a moment; `pending` is an earlier one
        not yet logged.
        """
        span = round(iteration.seconds * self._speed * SECOND)
        # The first clock begins when the last node has joined: nodes that are ready work from its
        # start.
        middle = at - (span if iteration.clock == 1 else span // 2)
        before = pending or Progressed(
            0, None, 0, resumed_clock=None if self._goes_on else iteration.clock - 1
        )
        self._goes_on = True
        self._loss = self._loss if iteration.loss is None else iteration.loss
        redone = before.redone

        if iteration.redone:
            # Redone work comes first; of the time of the clock it takes its share of the chunks.
            new = self._chunks or iteration.sums.chunks
            redone += (Stretch(at - span * iteration.redone // (iteration.redone + new), at),)
        else:
            self._chunks = iteration.sums.chunks or self._chunks

        return Progressed(
            iteration.clock,
            self._loss,
            iteration.stage,
            ready=(*before.ready, *self._moments(_READY, iteration.events, middle)),
            left=(*before.left, *self._moments(_LEFT, iteration.events, middle)),
            redone=redone,
            resumed_clock=before.resumed_clock,
        )

    def _moments(self, what: re.Pattern[str], events: Iterable[str], at: int) -> Iterator[Moment]:
        return (
            Moment(self._machine_of(match[1]), at)
            for event in events
            if (match := what.fullmatch(event))
        )
