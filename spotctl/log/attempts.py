"""The attempts of a command: where each runs, how it was stopped, and how much of its work is safe. A pure fold.

Work is counted in time on all nodes: on half of the nodes, the same work takes twice as long. Work done before the
newest checkpoint is safe; later work is done again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spotctl.log import events as ev


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt that is over, the part of the planned speed that it had, and how much of its work checkpoints kept."""

    begin: int
    end: int
    kept: int
    share: float = 1.0

    @property
    def worked(self) -> int:
        """The work that the attempt did, kept or not."""
        return round((self.end - self.begin) * self.share)

    @property
    def lasting(self) -> int:
        """The time in which the attempt did the work that checkpoints kept."""
        return round(self.kept / self.share)


@dataclass(frozen=True, slots=True)
class CommandWork:
    """The newest attempt (None before the first) and its start; its stop, if it was stopped, and when.

    `safe` is the work, in microseconds of the provider's clock on all nodes, that checkpoints hold; `base` is what they
    held when the attempt began, and `lost` what had been done beyond that. `checkpoint` is the newest of the first
    node, which became known at `checkpointed_at`.
    `moves` counts stops in a row that the program itself asked for, `failures` those after it had failed, by status.
    """

    attempt: ev.AttemptBegan | None = None
    since: int = 0
    stopped: ev.AttemptStopped | None = None
    stopped_at: int = 0
    base: int = 0
    lost: int = 0
    safe: int = 0
    checkpoint: ev.Checkpointed | None = None
    checkpointed_at: int = 0
    spells: tuple[AttemptSpan, ...] = ()
    setups_failed: int = 0
    moves: int = 0
    failures: Mapping[int, int] = field(default_factory=dict)

    @property
    def runs(self) -> bool:
        """Whether an attempt is running."""
        return self.attempt is not None and self.stopped is None

    @property
    def number(self) -> int:
        """The newest attempt's number, 0 before the first."""
        return 0 if self.attempt is None else self.attempt.attempt

    @property
    def share(self) -> float:
        """The part of the planned speed that the newest attempt has."""
        return 1.0 if self.attempt is None else float(self.attempt.share)

    def until(self, moment: int) -> int:
        """The work that was done by a moment of the newest attempt."""
        return self.base + round((moment - self.since) * self.share)

    def done(self, now: int) -> int:
        """Work that is not lost, if nothing is evicted now."""
        return self.until(now) if self.runs else self.safe

    def redone(self, now: int) -> tuple[ev.Stretch, ...]:
        """The time in which the newest attempt repeated work that had been lost before."""
        span = round(self.lost / self.share)
        return (ev.Stretch(self.since, min(self.since + span, now)),) if span else ()


def _began(work: CommandWork, event: ev.AttemptBegan, at: int) -> CommandWork:
    lost = 0 if work.stopped is None else max(work.until(work.stopped_at) - work.safe, 0)
    return replace(work, attempt=event, since=at, stopped=None, base=work.safe, lost=lost)


def _stopped(work: CommandWork, event: ev.AttemptStopped, at: int) -> CommandWork:
    spells = (*work.spells, AttemptSpan(work.since, at, work.safe - work.base, work.share))
    moves = work.moves + 1 if event.by_program else 0
    failures = work.failures
    if event.code is not None:
        failures = {**failures, event.code: failures.get(event.code, 0) + 1}
    return replace(work, stopped=event, stopped_at=at, spells=spells, moves=moves, failures=failures)


def _checkpointed(work: CommandWork, event: ev.Checkpointed, at: int) -> CommandWork:
    if event.rank:
        return work
    if event.attempt != work.number:
        return replace(work, checkpoint=event, checkpointed_at=at)
    # A checkpoint stored after the stop was written at the stop.
    until = at if work.stopped is None else min(at, work.stopped_at)
    safe = max(work.safe, work.until(until))
    spells = work.spells
    if work.stopped is not None:
        spells = (*spells[:-1], replace(spells[-1], kept=safe - work.base))
    return replace(work, checkpoint=event, checkpointed_at=at, safe=safe, spells=spells)


STEPS: Mapping[type[ev.Event], Callable[[CommandWork, Any, int], CommandWork]] = {
    ev.AttemptBegan: _began,
    ev.AttemptStopped: _stopped,
    ev.Checkpointed: _checkpointed,
    ev.SetupFailed: lambda work, *_: replace(work, setups_failed=work.setups_failed + 1),
}
"""The change that each event makes."""
