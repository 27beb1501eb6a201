"""The availability that a run observed: its orders of spot machines, and how their machines ended. Pure."""

from collections.abc import Iterator

from pricing_data.availability import AvailabilitySpan, Ending, run_of_job
from spotctl.log.state import EVICTED, Held, RunState


def availability_of(state: RunState, now: int) -> tuple[AvailabilitySpan, ...]:
    """The spans of a run until a moment, in order; none of a replayed market, where the price alone decides."""
    if state.began is None or state.is_replayed:
        return ()
    source = f"run {state.run}{run_of_job(state.began.job)}"
    return tuple(sorted(_spans(state, now, source)))


def _spans(state: RunState, now: int, source: str) -> Iterator[AvailabilitySpan]:
    for number, order in state.orders.items():
        if order.bid is None or order.reliable:
            continue
        if number in state.sold_out:
            at = state.ordered[number]
            yield AvailabilitySpan(order.market, at, at, 0, order.machines, "refused", source)
        came = [held for held in state.machines.values() if held.allocation == number]
        if not came:
            continue
        since, (until, ended) = min(held.started for held in came), _end(came, now)
        granted = min(len(came), order.machines)
        yield AvailabilitySpan(order.market, since, max(until, since), granted, order.machines, ended, source)


def _end(machines: list[Held], now: int) -> tuple[int, Ending]:
    """When the machines of an order were first evicted, or had all ended, or until when they are known to be held."""
    evicted = [held.ended for held in machines if held.ended is not None and held.end_reason == EVICTED]
    if evicted:
        return min(evicted), "evicted"
    if any(held.alive for held in machines):
        return now, "warned" if any(held.warned_until is not None for held in machines) else ""
    return max(held.ended or 0 for held in machines), "returned"
