"""Stopping criteria: number of clocks, time, a target loss, or convergence of the loss."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from agileml.checks import check_number, check_whole
from agileml.errors import BadArgument

MOST_CLOCKS = 10**9
"""More would be a typing error."""

MOST_TOLERANCE = 0.999_999
"""Below 1: no loss improves by its whole value for ever."""


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

    def __post_init__(self) -> None:
        check_number("converged", self.tolerance, 0.0, MOST_TOLERANCE)
        check_whole("the window of converged", self.window, 1)

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
        if self.clocks is not None:
            check_whole("clocks", self.clocks, 1, MOST_CLOCKS)
        if self.seconds is not None:
            check_number("seconds", self.seconds, 0.0, above=True)
        if self.loss is not None:
            check_number("loss", self.loss, -inf)
        if self.converged is not None and not isinstance(self.converged, Convergence):
            raise BadArgument(f"converged is {self.converged!r}; it must be a Convergence(tolerance, window)")

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
