"""How many gradients of a clock to wait for (dynamic backup workers, DBW).

Waiting for the fastest k of n workers makes a clock shorter and its step less certain. Before each
clock, the policy estimates how much the loss falls with each k, from the spread of the last
gradients, and how long each k takes, from the times of the last clocks, and chooses the k with the
largest fall per second. In the first clock it waits for the fastest few: the times of the others
follow from theirs, well enough to begin with.

What noise costs depends on how far a step goes on the curved loss. A step of the largest rate that
still pays turns the next gradient away from this one entirely; of shorter steps, more of it is
left. So the inner product of successive gradients tells what share of the gain noise can take,
which the paper assumes to be the largest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import sqrt
from statistics import fmean, pstdev

AVERAGED_CLOCKS = 5
"""Clocks of all workers over whose gradients spread and size are averaged (the paper's D): if fewer
are awaited, over as many more clocks."""

SHRINKAGE = 3.0
"""The estimated size of the gradient is lowered by this many times its squared standard error,
divided by itself.

So a size that is known well counts nearly in full, and one below 1.7 standard errors is no reason
to leave anyone out. Near the lowest loss that the noise allows, the estimate is mostly noise: a
small number of workers that looks best then keeps the loss from falling further.
"""

CURVATURE_DECAY = 0.99
"""How much of what was seen of the curvature still counts a clock later: it changes little, and
noise hides it."""

FIRST_CLOCK_DIVISOR = 4
"""The first clock waits for one in this many workers."""

KEPT_TIMES = 16
"""Times that are kept for each k and each number awaited before."""

FORGET_AFTER = 64
"""Clocks after which a time is forgotten: then a k that was not chosen for long is tried again.

A time that is longer than that of a clock is kept for as many times longer, so that trying it again
costs little.
"""

LEAVE_OUT_ABOVE = 1.1
"""The fall of the loss per second, relative to that of waiting for all, at which `auto` begins to
leave work out."""

WAIT_AGAIN_BELOW = 1.02
"""That relation at which `auto` waits for all workers again."""


@dataclass(frozen=True, slots=True)
class ClockBegins:
    """A clock begins on this number of workers; `waited` were awaited in the clock before, 0 if
    that is unknown.
    """

    clock: int
    workers: int
    waited: int = 0


@dataclass(frozen=True, slots=True)
class GradientArrived:
    """The `number`-th gradient of this clock arrived after `seconds`; `waited` were awaited in the
    clock before.
    """

    waited: int
    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class GradientsSummed:
    """The gradients of a clock: how many, counting parts as fractions, in how many contributions.

    `square` is the squared norm of their mean; `spread` the variance of one of them, or None if it
    is unknown; `along` the inner product of their mean with that of the clock before, or None.
    """

    clock: int
    gradients: float
    square: float
    spread: float | None
    along: float | None = None


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Wait for this many gradients. `reason` is empty unless it is worth logging."""

    gradients: int
    reason: str = ""


Times = Mapping[tuple[int, int], tuple[tuple[int, float], ...]]
WaitReport = ClockBegins | GradientArrived | GradientsSummed


@dataclass(frozen=True, slots=True)
class FixedWait:
    """Leaves out the same number of gradients in every clock."""

    backups: int

    def observe(self, report: WaitReport) -> tuple[FixedWait, tuple[WaitFor, ...]]:
        """Learns nothing."""
        if not isinstance(report, ClockBegins):
            return self, ()
        wait_for = WaitFor(max(1, report.workers - self.backups))
        return self, (wait_for,)


@dataclass(frozen=True, slots=True)
class DBW:
    """Estimates of gain and time. With `blind` the gain is k; `auto`: all are awaited until another
    k clearly pays.
    """

    auto: bool = False
    blind: bool = False
    clock: int = 0
    workers: int = 0
    seen: tuple[GradientsSummed, ...] = ()
    """The last clocks, with estimates of spreads that were unknown."""
    turned: float = 0.0
    """Sum over clocks: by how much a step changed the inner product of the gradient with itself."""
    walked: float = 0.0
    """Sum over the same clocks: the squares of their mean gradients."""
    times: Times = field(default_factory=dict)
    """By number awaited before and number of the gradient: clock and seconds."""
    waited: int = 0
    """The number that was awaited last."""
    usual: float = 0.0
    """Weighted mean time of the last clocks; 0: unknown."""
    leaves_out: bool = False
    """Whether `auto` found that it pays."""
    favorable: int = 0
    """Clocks in a row that spoke for changing that."""
    starting: bool = False
    """Whether the last clock was the first one, in which only the fastest few were awaited."""

    def observe(self, report: WaitReport) -> tuple[DBW, tuple[WaitFor, ...]]:
        """The policy that has seen this report, and what it proposes now."""
        match report:
            case GradientArrived():
                key = report.waited, report.number
                kept = (*self.times.get(key, ()), (self.clock, report.seconds))[-KEPT_TIMES:]
                usual = self.usual
                if report.number == self.waited:
                    usual = (usual + report.seconds) / 2 if usual else report.seconds
                return replace(self, times={**self.times, key: kept}, usual=usual), ()
            case GradientsSummed():
                before = self.seen[-1] if self.seen else None
                policy = self
                if (
                    before is not None
                    and before.clock == report.clock - 1
                    and report.along is not None
                ):
                    # With one gradient the noise in its square is only known from others.
                    if before.gradients >= 1.5 and before.spread is not None:
                        true = before.square - before.spread / before.gradients
                        turned = CURVATURE_DECAY * self.turned + true - report.along
                        walked = CURVATURE_DECAY * self.walked + before.square
                        policy = replace(self, turned=turned, walked=walked)
                    if report.spread is None and policy.walked:
                        # What is left of the last gradient and what its step took from it is the
                        # square without noise.
                        noise = report.square - report.along - policy.steepness * before.square
                        report = replace(report, spread=noise * report.gradients)
                gradients = AVERAGED_CLOCKS * self.workers
                return replace(policy, seen=_latest((*self.seen, report), gradients)), ()
            case ClockBegins():
                return self._begin(report)

    @property
    def steepness(self) -> float:
        """The learning rate as a share of the best one without noise; 1 until it is known, as the
        paper assumes.
        """
        if self.walked:
            return min(2.0, max(0.0, self.turned / self.walked))
        return 1.0

    def _estimates(self) -> tuple[float, float] | None:
        """|grad F|^2, or a little less as it is uncertain, and the variance of one gradient, if a
        spread was seen.
        """
        known = [
            (max(1.0, clock.gradients - 1), clock.spread)
            for clock in self.seen
            if clock.spread is not None
        ]

        if not known:
            return None

        weights = sum(weight for weight, _ in known)
        weighted = sum(weight * spread for weight, spread in known)
        spread = max(0.0, weighted / weights)
        noises = [spread / max(clock.gradients, 1e-12) for clock in self.seen]
        squares = [clock.square - noise for clock, noise in zip(self.seen, noises, strict=True)]
        size = fmean(squares)
        error = pstdev(squares) / sqrt(max(1, len(squares) - 1))

        # A gradient that grows or shrinks varies, too. By noise alone its square varies most in one
        # dimension.
        by_noise = fmean(2 * noise * (noise + 2 * max(size, 0.0)) for noise in noises)
        error = min(error, sqrt(by_noise / len(noises)))
        if size <= 0:
            return 0.0, spread
        return max(0.0, size - SHRINKAGE * error**2 / size), spread

    def _begin(self, report: ClockBegins) -> tuple[DBW, tuple[WaitFor, ...]]:
        count = report.workers
        # Times of the k-th of another number of workers say little, and so do those that are too
        # old to say how long it takes now.
        times = dict[tuple[int, int], tuple[tuple[int, float], ...]]()
        if count == self.workers:
            for key, seen in self.times.items():
                recent = [
                    (at, seconds)
                    for at, seconds in seen
                    if (report.clock - at) * self.usual < FORGET_AFTER * max(self.usual, seconds)
                ]
                if recent:
                    times[key] = tuple(recent)
        if self.starting:
            times = {**guessed(times, self.clock, count), **times}
        starting = not (self.auto or self.usual)
        policy = replace(
            self,
            clock=report.clock,
            workers=count,
            times=times,
            waited=report.waited or self.waited,
            starting=starting,
        )

        speeds = policy._speeds()
        best = count
        if speeds:
            # Of equally good numbers the largest.
            fastest = max(speeds)
            best = max(k for k, speed in enumerate(speeds, 1) if speed == fastest)
        if policy.starting:
            # Of fewer than two gradients there is no spread.
            best = max(min(2, count), count // FIRST_CLOCK_DIVISOR)

        if speeds and speeds[best - 1] <= 0:
            best = count
        reason = ""
        if self.auto:
            policy, best, reason = policy._weigh(best, speeds)

        return replace(policy, waited=best), (WaitFor(best, reason),)

    def _speeds(self) -> list[float]:
        """By k, from 1 on, the expected fall of the loss per second, up to a factor; empty if that
        is unknown.
        """
        count = self.workers
        seconds = expected_seconds(self.times, self.waited, count)
        estimates = self._estimates()
        if not seconds or not (self.blind or estimates):
            return []
        if self.blind or estimates is None:
            return [k / max(1e-12, seconds[k - 1]) for k in range(1, count + 1)]

        square, spread = estimates
        steep = self.steepness
        speeds = []
        for k, time in zip(range(1, count + 1), seconds, strict=True):
            gain = (2 - steep) * square - steep * spread / k
            speeds.append(gain / max(1e-12, time))
        return speeds

    def _weigh(self, best: int, speeds: Sequence[float]) -> tuple[DBW, int, str]:
        """The choice of `auto`: the policy, the number to wait for, and the reason to log."""
        count = self.workers
        if not speeds or speeds[-1] <= 0:
            return replace(self, favorable=0), count, ""

        ratio = speeds[best - 1] / speeds[-1]
        changes = ratio < WAIT_AGAIN_BELOW if self.leaves_out else ratio > LEAVE_OUT_ABOVE
        streak = self.favorable + 1 if changes else 0
        if streak < AVERAGED_CLOCKS:
            return replace(self, favorable=streak), best if self.leaves_out else count, ""

        times = f"lowers the loss {ratio:.2f} times as fast as waiting for all"
        if self.leaves_out:
            return (
                replace(self, leaves_out=False, favorable=0),
                count,
                f"no longer pay: no other number {times}",
            )

        return (
            replace(self, leaves_out=True, favorable=0),
            best,
            f"pay: waiting for {best} of {count} workers {times}",
        )


WaitPolicy = FixedWait | DBW
"""An immutable policy: `observe` returns the policy that has seen a report, and what it proposes
then; only `ClockBegins` is answered with a proposal."""


def _latest(seen: tuple[GradientsSummed, ...], gradients: float) -> tuple[GradientsSummed, ...]:
    """The last clocks with that many gradients together."""
    total = 0.0
    for count, clock in enumerate(reversed(seen), 1):
        total += clock.gradients
        if total >= gradients and count >= AVERAGED_CLOCKS:
            return seen[-count:]
    return seen


def guessed(times: Times, clock: int, count: int) -> Times:
    """Times of the numbers after the last one seen, as if the workers that are left took memoryless
    ones.

    Then the time until the next of r workers is inverse to r. The times count as seen in `clock`,
    after none awaited.
    """
    seconds = expected_seconds(times, 0, count)
    last = max((number for _, number in times), default=0)
    if last < 2:
        return {}

    left = [1 / (count - number) for number in range(1, last)]
    pace = (seconds[last - 1] - seconds[0]) / sum(left)
    steps = [pace / (count - number) for number in range(last, count)]
    ahead = accumulate(steps, initial=seconds[last - 1])
    return {
        (0, number): ((clock, time),) for number, time in enumerate(ahead, last) if number > last
    }


def expected_seconds(
    times: Mapping[tuple[int, int], Sequence[tuple[int, float]]], waited: int, count: int
) -> list[float]:
    """The time to each gradient if `waited` were awaited before, which grows with its number; empty
    if unknown.

    Where that was not seen, the times after any other number stand in. A number never seen is taken
    to follow the one before it at once, so that it is tried.
    """
    means: list[float] = []
    weights: list[int] = []
    for number in range(1, count + 1):
        seen = times.get((waited, number), ()) or [
            time for (_, k), kept in times.items() if k == number for time in kept
        ]
        if seen:
            means.append(sum(seconds for _, seconds in seen) / len(seen))
        elif means:
            means.append(means[-1])
        else:
            return []
        weights.append(len(seen))

    return isotonic(means, weights)


def isotonic(values: Sequence[float], weights: Sequence[int]) -> list[float]:
    """The nondecreasing sequence that is nearest in weighted least squares: neighbors in the wrong
    order are pooled.

    A value without weight takes that of its neighbor.
    """
    pools: list[tuple[float, int, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pool = (value, weight, 1)
        while pools and (pools[-1][0] > pool[0] or not pool[1]):
            before = pools.pop()
            total = before[1] + pool[1]
            mean = (before[0] * before[1] + pool[0] * pool[1]) / max(1, total)
            pool = (mean, total, before[2] + pool[2])
        pools.append(pool)

    return [mean for mean, _, length in pools for _ in range(length)]
