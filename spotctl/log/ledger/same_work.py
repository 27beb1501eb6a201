"""The on-demand cost of the same work: of all that a run has finished. Pure.

Finished work is the clocks of a training, and the time of a command that checkpoints or its end kept. A clock takes the
median over the run's own clocks: some take longer because machines stand still or are replaced, which would not happen
on demand. If the run is slower than its plan knew the machines to be, a clock takes what the plan knew, and a command
what its earlier runs took: slowness is no saving. The machines are the cheapest on-demand machines that the job allows,
as the plan chose them; they start up, and are billed by their provider's rule, with hours that have begun.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import exp

import numpy as np

from bidbrain.billing import End, Life, rule_of_cloud
from pricing_data.units import HOUR
from spotctl.log.budget import life_of
from spotctl.log.events import OnDemandOffer
from spotctl.log.ledger.rows import SameWork, Use
from spotctl.log.ledger.uses import use_spans
from spotctl.log.outcomes import FAILED
from spotctl.log.state import RunState

_UNMEASURED_SPREAD = 0.5
"""Spread of the logarithm of the relative speed of two types, if it follows from their vCPUs alone."""

_QUANTILES = (0.5, 0.25, 0.75)


_Needed = tuple[float, float, float, float]
"""Time of machines at work, weighted with their speed (microseconds times nu): all of this time, the part that the work
needs, and the interval of this part."""


def same_work(state: RunState, now: int) -> SameWork:
    """The on-demand cost of what a run has done; nothing for a run that failed, whose work cannot be used."""
    failed = state.ended is not None and state.ended.outcome == FAILED
    working = [] if failed else list(_working(state, now))
    offer = _offer(state)
    if not working or offer is None:
        return SameWork()
    whole, needed, least, most = _needed(state, working, now, offer)
    if not needed:
        return SameWork()
    spread = _spread(state, offer)
    middle, low, high = (_cost(offer, span) for span in (needed, least * exp(-spread), most * exp(spread)))
    useful = Fraction(min(needed / whole, 1.0))
    return SameWork(middle, min(low, middle), max(high, middle), useful)


_Working = tuple[int, int, float]
"""Begin, end, and nu of a machine at work."""


def _working(state: RunState, now: int) -> Iterator[_Working]:
    """Time at work that was not spent on repeated work, without reliable machines, which only keep the state."""
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        if not allocation.reliable:
            for begin, end, use in use_spans(state, held, life_of(held, now).end):
                if use is Use.WORKING:
                    yield begin, end, allocation.nu


def _needed(state: RunState, working: Sequence[_Working], now: int, offer: OnDemandOffer) -> _Needed:
    whole = sum((end - begin) * nu for begin, end, nu in working)
    if state.work.attempt is None:
        return _of_clocks(state, working, whole, offer) if state.paces else (whole, 0.0, 0.0, 0.0)
    until = now if state.stopped is None else state.stopped
    spells = sum(spell.worked for spell in state.work.spells)
    tried = spells + (state.work.until(until) - state.work.base if state.work.runs else 0)
    kept = whole * min(state.work.done(until) / tried, 1.0) if tried > 0 else 0.0
    needed = kept if offer.work is None else min(kept, offer.work)
    return whole, needed, needed, kept


def _of_clocks(state: RunState, working: Sequence[_Working], whole: float, offer: OnDemandOffer) -> _Needed:
    """The time that the clocks of a training need, if each takes the median of the measured times, or less if the plan
    knew the machines to be faster."""
    clock = state.paces[0][1]
    worked = _until(working, [at for at, _ in state.paces])
    # A resumed training does not begin with clock 0, so the first entry says only how long its clocks took together.
    opening = worked[0]
    spans = [
        ((after - before) / (clocks - done), clocks - done)
        for (before, after), ((_, done), (_, clocks)) in zip(pairwise(worked), pairwise(state.paces), strict=True)
    ]
    middle, low, high = _quantiles([span for span in spans if span[0] > 0] or [(opening / max(clock, 1), clock)])
    clocks = sum(count for _, count in spans) + min(float(clock), opening / middle if middle else 0.0)
    if offer.spread is not None and middle > HOUR:
        # Weighted with the speed that the plan knew, a clock takes an hour of a machine.
        middle, low, high = float(HOUR), min(low, HOUR * exp(-offer.spread)), min(high, HOUR * exp(offer.spread))
    return whole, min(clocks * middle, whole), min(clocks * low, whole), min(clocks * high, whole)


def _until(working: Sequence[_Working], moments: Sequence[int]) -> list[float]:
    """The time at work up to each moment."""
    begins, ends, speeds = (np.array(column) for column in zip(*working, strict=True))
    times: list[float] = ((np.clip(np.array(moments)[:, None], begins, ends) - begins) @ speeds).tolist()
    return times


def _quantiles(weighted: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    """The median and the quartiles."""
    ordered, total = sorted(weighted), sum(weight for _, weight in weighted)
    quantiles = []
    for share in _QUANTILES:
        so_far = 0
        for value, weight in ordered:
            so_far += weight
            if so_far >= share * total:
                quantiles.append(value)
                break
    return tuple(quantiles)


def _offer(state: RunState) -> OnDemandOffer | None:
    """The on-demand machines of the plan. Logs of earlier versions have none: then the cheapest of those rented."""
    if state.planned is not None and state.planned.instead is not None:
        return state.planned.instead
    others = (of for of in state.allocations.values() if not of.reliable and not of.market.reservation)
    used = [allocation for allocation in others if allocation.nu > 0]
    if not used:
        return None
    best = min(used, key=lambda allocation: allocation.on_demand / allocation.nu)
    most = max(sum(held.allocation == allocation.number for held in state.machines.values()) for allocation in used)
    starts = sorted(max(held.turns[0] - held.started, 0) for held in state.machines.values() if held.turns)
    startup = starts[len(starts) // 2] if starts else 0
    return OnDemandOffer(best.market, most, best.on_demand, best.nu, startup)


def _spread(state: RunState, offer: OnDemandOffer) -> float:
    """How uncertain the speed of the on-demand machines is, relative to those that the run measured."""
    used = {allocation.market.instance_type for allocation in state.allocations.values() if not allocation.reliable}
    if used == {offer.market.instance_type}:
        return 0.0
    return _UNMEASURED_SPREAD if offer.spread is None else offer.spread


def _cost(offer: OnDemandOffer, needed: float) -> int:
    span = round(needed / (offer.machines * offer.nu)) + offer.startup
    bill = rule_of_cloud(offer.market.cloud).bill(Life(0, span, End.LEFT), offer.price)
    return offer.machines * bill.amount
