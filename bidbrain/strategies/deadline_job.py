"""A job with a deadline: what it needs, where it stands, and the net that keeps it from missing.

Time is cut into ticks. At the start of each it is known whether a spot machine can be had, and one of three things is
chosen for the whole tick: no machine, a spot machine, an on-demand machine. Whoever enters a machine (the first, after
a change of kind, after a loss) loses the delay before work goes on. Every field of a `Standing` holds one element per
job, so that thousands of replayed jobs are decided at once; a live job is a batch of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bidbrain.errors import BidBrainError
from pricing_data.series import Ints
from pricing_data.units import HOUR

Bools = NDArray[np.bool_]

WAIT: Final = 0
SPOT: Final = 1
ON_DEMAND: Final = 2
CHOICES: Final = ("wait", "spot", "on-demand")


class ImpossibleJob(BidBrainError):
    """No scheme could finish the job in the time it has, or what it is asked to do makes no sense."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a job needs and what it pays: `work` and the `delay` of an entry in microseconds on a machine.

    `price_ratio` is the on-demand price over the spot price; nothing else about prices matters to a choice.
    """

    work: int
    delay: int
    price_ratio: float

    def __post_init__(self) -> None:
        if self.work <= 0:
            raise ImpossibleJob(f"a job of {self.work / HOUR:g} hours has no work; it needs more than 0")
        if self.delay < 0:
            raise ImpossibleJob(f"a delay of {self.delay / HOUR:g} hours is below 0")
        if not 0 < self.price_ratio < float("inf"):
            raise ImpossibleJob(f"an on-demand price of {self.price_ratio:g} times the spot price is not above 0")


@dataclass(frozen=True, slots=True)
class Standing:
    """Where jobs stand at the start of a tick, after losses: a machine that was taken away is no longer held.

    `at` says which tick of the observed availability this is; times are microseconds.
    """

    terms: Terms
    tick: Ints
    elapsed: Ints
    remaining: Ints
    work_left: Ints
    delay_left: Ints
    machine: Ints
    spot_up: Bools
    at: Ints

    @property
    def slack(self) -> Ints:
        """Time that may yet be lost: what remains beyond the work and the rest of a delay that is being paid."""
        return self.remaining - self.work_left - self.delay_left


class Scheme(Protocol):
    """One way of choosing."""

    @property
    def name(self) -> str:
        """What it is called in results."""
        ...

    def choose(self, standing: Standing, /) -> Ints:
        """A choice for each job; the replay overrules it where the safety net holds."""
        ...


class SafetyNet(Protocol):
    """Says which jobs have to be on an on-demand machine from now on."""

    def __call__(self, standing: Standing, /) -> Bools:
        """One answer per job."""
        ...


def net_when_idle(standing: Standing) -> Bools:
    """At remaining time <= work + 2 delays, rounded up to ticks, whoever is not running on spot goes on demand.

    Why nobody misses: a job outside the net keeps, after one more tick without progress, at least its work and two
    delays; entering spot and losing it costs at most one of them, and the other pays for the on-demand machine. A job
    on spot loses no slack by staying, so the net may wait for its loss. Once on demand, the slack no longer changes.
    """
    caught: Bools = within_two_delays(standing) & (standing.machine != SPOT)
    return caught


def within_two_delays(standing: Standing) -> Bools:
    """The literal rule, which takes a job off a spot machine that still works."""
    need = standing.work_left + 2 * standing.terms.delay
    caught: Bools = standing.remaining <= -(-need // standing.tick) * standing.tick
    return caught
