"""How much time a job with a deadline can still lose, and what that time must be kept for. Pure.

Times are in microseconds. Work is measured as time on the job's on-demand machines (the baseline), all of them running.

Why no job misses a deadline that on-demand machines could meet: entering machines loses at most `enter`, and an
eviction of everything on spot, replaced on demand, at most `evict`. A job enters or moves machines only with slack for
both. Once less is left, it does nothing but fill what is missing on demand. While the whole job runs, no slack is lost;
every eviction is followed by a decision. Several evictions could use up more than `evict`: as soon as less than that is
left, or would be left once what is missing has started, spot machines are replaced while they still run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bidbrain.strategies.base import Holding, Situation
from bidbrain.values import Overheads

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """`slack` is the time that can still be lost. `missing` and `on_spot` are the shares of the job's full rate that
    nothing provides, and that spot machines provide. `enter` and `evict`: see the module; `leave` is the slack below
    which spot machines are replaced, and `move` what replacing them loses."""

    slack: float
    missing: float
    on_spot: float
    enter: float
    evict: float
    leave: float
    move: float

    def pressed(self, look: int) -> bool:
        """Whether another `look` without on-demand machines could cost the deadline."""
        return self.slack - (1.0 - self.on_spot) * look < self.enter + self.evict

    @property
    def must_leave_spot(self) -> bool:
        """Whether one more eviction could cost the deadline."""
        return self.on_spot > 0 and self.slack < self.leave


def time_left(
    situation: Situation,
    deadline: int,
    full: float,
    overheads: Overheads,
    running: Sequence[Holding],
    look: int,
    *,
    speed: float = 1.0,
) -> TimeLeft:
    """The time left to a deadline; `running` are the holdings that do the work, and stay.

    `full` is the work per hour of the baseline, and `speed` is the part of it that checkpoints leave. `look` is the
    time to the next decision, in which more work may come to be at risk.
    """
    rate, now = full, situation.now
    share = {holding.allocation: holding.nu / rate for holding in running}
    on_spot = min(sum(share[holding.allocation] for holding in running if holding.rent.spot), 1.0)
    starting = [holding for holding in running if holding.ready > now]
    pending = sum(min(share[holding.allocation], 1.0) * (holding.ready - now) for holding in starting)
    if len(running) > len(starting):
        pending += overheads.resize * len({holding.ready for holding in starting})
    unsaved = situation.unsaved / (rate * speed)
    missing = max(1.0 - sum(share.values()), 0.0)
    change, starts = overheads.startup + overheads.resize, on_spot * overheads.startup
    filling = missing * overheads.startup
    entering = filling + overheads.resize if missing > _ROUNDING else 0.0
    return TimeLeft(
        slack=deadline - now - situation.work_left / (rate * speed) - pending,
        missing=missing,
        on_spot=on_spot,
        enter=change,
        evict=change + overheads.eviction + overheads.resize + unsaved,
        leave=starts + entering + overheads.eviction + 2 * overheads.resize + (unsaved + look if unsaved else 0.0),
        move=starts + filling + 2 * overheads.resize + (0.0 if situation.record.resumes else unsaved),
    )
