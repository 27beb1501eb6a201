"""Stopping criteria: number of clocks, time, a target loss, or convergence of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from agileml.errors import BadArgument


@dataclass(frozen=True, slots=True)
class Observation:
    """The time and loss after a clock; the loss is None if it was not computed."""

    clock: int
    seconds: float
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class Convergence:
    """The best of the last `window` losses improves on the best earlier loss by less than the fraction `tolerance`."""

    tolerance: float = 1e-3
    window: int = 5

    def reached(self, losses: Sequence[float]) -> bool:
        """Whether the losses, in order, no longer fall. False for fewer than `window` + 1 losses."""
        if len(losses) <= self.window:
            return False
        before, lately = min(losses[: -self.window]), min(losses[-self.window :])
        return before - lately < self.tolerance * abs(before)


@dataclass(frozen=True, slots=True)
class Stopping:
    """The first criterion that is met ends the job."""

    clocks: int | None = None
    seconds: float | None = None
    loss: float | None = None
    converged: Convergence | None = None

    def __post_init__(self) -> None:
        if all(criterion is None for criterion in (self.clocks, self.seconds, self.loss, self.converged)):
            raise BadArgument("no stopping criterion; set clocks, seconds, loss or converged")
        if self.clocks is not None and self.clocks < 1:
            raise BadArgument(f"clocks is {self.clocks}; it must be at least 1")
        if self.seconds is not None and not self.seconds > 0:
            raise BadArgument(f"seconds is {self.seconds}; it must be above 0")
        if self.loss is not None and not isfinite(self.loss):
            raise BadArgument(f"loss is {self.loss}; it must be a finite number")
        if self.converged is not None and not (0 <= self.converged.tolerance < 1 and self.converged.window >= 1):
            raise BadArgument(
                f"converged is {self.converged.tolerance:g} over {self.converged.window} clocks;"
                " the tolerance must be from 0 to below 1, and the clocks at least 1"
            )

    @property
    def last_clock(self) -> int | None:
        """The last clock of the job, if it is known in advance."""
        return self.clocks

    def reason(self, history: Sequence[Observation]) -> str | None:
        """Why the job is done, or None if it is not. `history` starts with the first clock."""
        if not history:
            return None
        now = history[-1]
        if self.clocks is not None and now.clock >= self.clocks:
            return f"{self.clocks} clocks done"
        if self.seconds is not None and now.seconds >= self.seconds:
            return f"{now.seconds:.1f} s of {self.seconds:g} s elapsed"
        if self.loss is not None and now.loss is not None and now.loss <= self.loss:
            return f"loss {now.loss:g} reached the target {self.loss:g}"
        losses = [seen.loss for seen in history if seen.loss is not None]
        if self.converged is not None and self.converged.reached(losses):
            return f"loss {losses[-1]:g} fell less than {self.converged.tolerance:g} in {self.converged.window} clocks"
        return None
