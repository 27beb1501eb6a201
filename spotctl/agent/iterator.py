"""`LeaseIterator`: wrapped around a data loader, it makes a training script movable between machines.

    batches = LeaseIterator(loader, load=load, save=save, checkpoints=Checkpoints(Path("checkpoints")))
    for epoch in batches.epochs(10):
        for batch in batches:
            train(batch)

`save` writes the script's state into an empty folder, and `load` reads it back. The iterator itself stores the position
in the data; on a resume it draws the finished batches of the epoch from the loader again and drops them. Without a
lease the script only saves from time to time and resumes.
This is the GavelIterator of section 5.6 of the dissertation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from os import getpid
from pathlib import Path
from typing import Generic, TypeVar

from spotctl.agent.checkpoints import Checkpoints, TrainingPosition
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.interval import CheckpointPlanReader
from spotctl.agent.lease import Clock, JobPace, JobProgress, LeaseAct, LeaseDecision, LeaseHolder, decide

Batch = TypeVar("Batch")

SAVED_AND_ENDED = 75
"""The exit code of a job that saved its state to be moved: EX_TEMPFAIL, try again elsewhere."""

_REPORT_SECONDS = 1.0
_SAVE_SECONDS = 600.0
# One slow step counts for some time, so that a job with uneven steps does not end too late.
_FORGET = 0.9


class LeaseEnded(SystemExit):
    """The job has saved and must end here. Uncaught, it exits with `SAVED_AND_ENDED` and no traceback."""

    def __init__(self, reason: str) -> None:
        super().__init__(SAVED_AND_ENDED)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class IteratorOptions:
    """How a job saves, and how it stays in step with its other ranks.

    `agree` returns the minimum of the values that all ranks pass (an all-reduce with MIN): then all ranks save and end
    at the same step, and resume from a step that each of them has. Each rank has a checkpoint folder of its own. The
    lease and notices are read, and the ranks agree, every `look_every` steps.
    `save_every_seconds` None: the interval that the agent derives from evictions; without an agent, ten minutes.
    `on_epoch` is called with an epoch's number before its data is drawn. Seed the shuffling there
    (`sampler.set_epoch`), or a job that is moved within an epoch sees other batches than one that is not.
    """

    save_every_seconds: float | None = None
    look_every: int = 1
    agree: Callable[[int], int] = int
    on_epoch: Callable[[int], None] = lambda _: None


class LeaseIterator(Generic[Batch]):
    """Iterates over a loader from where the job stopped, for as long as the lease is renewed."""

    def __init__(
        self,
        loader: Iterable[Batch],
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        checkpoints: Checkpoints,
        holder: LeaseHolder | None = None,
        options: IteratorOptions = IteratorOptions(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._loader, self._load, self._save = loader, load, save
        self._checkpoints, self._options, self._clock = checkpoints, options, clock
        self._holder = holder or LeaseHolder.of()
        self._plan = CheckpointPlanReader.of()
        self._position = TrainingPosition()
        self._resumed = False
        self._here = 0
        self._saved: TrainingPosition | None = None
        self._saving: float | None = None
        self._last_save = self._last_step = self._last_report = clock()
        self._slowest = 0.0
        self._wants: int | None = None

    @property
    def position(self) -> TrainingPosition:
        """The job's position; the first call restores the newest checkpoint."""
        self._resume()
        return self._position

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the remaining epochs of `count`. After the last one, saves and reports the end."""
        self._resume()
        while (epoch := self._position.epoch) < count:
            yield epoch
            if self._position.epoch == epoch:
                # The script left the epoch early; the rest of it is skipped.
                self._position = TrainingPosition(epoch + 1, 0, self._position.step)
        self._write()
        self._report("finished", force=True)

    def __iter__(self) -> Iterator[Batch]:
        """The remaining batches of the epoch. A batch counts as done when the next one is requested."""
        self._resume()
        position = self._position
        self._options.on_epoch(position.epoch)
        source = iter(self._loader)
        if sum(1 for _ in islice(source, position.batch)) < position.batch:
            raise BadCheckpoint(
                f"{self._checkpoints.folder}: the job stopped after batch {position.batch} of epoch {position.epoch},"
                " but the loader has fewer; use the loader with which the checkpoint was written"
            )
        self._last_step = self._clock()
        for batch in source:
            if self._position.step % self._options.look_every == 0:
                self._attend()
            yield batch
            self._count_step()
        self._position = TrainingPosition(position.epoch + 1, 0, self._position.step)

    def _count_step(self) -> None:
        before = self._position
        self._position = TrainingPosition(before.epoch, before.batch + 1, before.step + 1)
        self._here += 1
        now = self._clock()
        self._slowest = max(now - self._last_step, self._slowest * _FORGET)
        self._last_step = now

    def _attend(self) -> None:
        """Before a batch: saves or ends as lease, notices and time require, together with all ranks."""
        decision = self._decision()
        act = LeaseAct(self._options.agree(decision.act.value))
        if act is LeaseAct.GO:
            self._ask(decision)
            return
        self._write()
        if act is LeaseAct.END:
            reason = decision.reason or "another rank must end"
            self._report("ended", reason, force=True)
            raise LeaseEnded(f"{reason}; saved at step {self._position.step}")
        self._ask(decision)
        self._report("running", decision.reason, force=True)
        self._last_step = self._clock()

    def _decision(self) -> LeaseDecision:
        now = self._clock()
        slowest = self._slowest * self._options.look_every
        pace = JobPace(self._here, slowest, self._saving, now - self._last_save)
        every = self._save_every
        if self._holder is None:
            return decide(now, None, None, pace, 0.0, every)
        lease, notice = self._holder.lease(), self._holder.notice()
        decision = decide(now, lease, notice, pace, self._holder.length, every)
        if notice is not None:
            self._holder.heeded(notice)
        return decision

    @property
    def _save_every(self) -> float:
        if self._options.save_every_seconds is not None:
            return self._options.save_every_seconds
        return (self._plan and self._plan.every()) or _SAVE_SECONDS

    def _ask(self, decision: LeaseDecision) -> None:
        wanted, self._wants = self._wants, decision.ask
        self._report("running", force=decision.ask is not None and decision.ask != wanted)

    def _write(self) -> None:
        if self._saved == self._position:
            return
        begin = self._clock()
        self._checkpoints.write(self._position, self._save)
        self._last_save = self._clock()
        self._saving = self._last_save - begin
        self._saved = self._position

    def _resume(self) -> None:
        if self._resumed:
            return
        self._resumed = True
        checkpoint = self._checkpoints.newest()
        # Each rank passes its step plus one, so 0 means that some rank has no checkpoint.
        step = self._options.agree(checkpoint[0].step + 1 if checkpoint else 0) - 1
        if step >= 0:
            position, path = checkpoint if checkpoint and checkpoint[0].step == step else self._checkpoints.at(step)
            self._load(path)
            self._position = self._saved = position
        self._report("running", force=True)

    def _report(self, state: str, reason: str = "", *, force: bool) -> None:
        """Reports progress; without `force` only from time to time."""
        now = self._clock()
        if self._holder is None or (not force and now - self._last_report < _REPORT_SECONDS):
            return
        self._last_report = now
        lease = self._holder.lease().number
        position, saved = self._position, self._saved.step if self._saved else None
        self._holder.report(
            JobProgress(getpid(), state, position.epoch, position.step, saved, self._saving, lease, self._wants, reason)
        )
