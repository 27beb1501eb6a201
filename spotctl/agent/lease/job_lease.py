"""A training script's side of its lease: when it saves and when it ends.

`JobLease` decides, and reports progress to the agent. `LeaseIterator`, wrapped around a data loader,
makes a script movable between machines:

    batches = LeaseIterator(
        loader, load=load, save=save, checkpoints=Checkpoints(Path("checkpoints"))
    )
    for epoch in batches.epochs(10):
        for batch in batches:
            train(batch)

`save` writes the script's state into an empty folder, and `load` reads the state back. The iterator
itself stores the position in the data; on a resume it skips the batches of the epoch that are done.
Without a lease the script only saves from time to time and resumes. This is the GavelIterator of
section 5.6 of the dissertation.
"""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from os import getpid
from pathlib import Path
from types import FrameType
from typing import Generic, TypeVar

from spotctl.agent.checkpoints.local import CheckpointPlanReader, Checkpoints, TrainingPosition
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.lease.lease_files import (
    JobPace,
    JobProgress,
    LeaseAct,
    LeaseDecision,
    LeaseHolder,
    SecondsClock,
    decide,
)

SAVED_AND_ENDED = 75
"""The exit code of a job that saved its state to be moved: EX_TEMPFAIL, try again elsewhere."""

_REPORT_SECONDS = 1.0
_SAVE_SECONDS = 600.0
# A slow step counts for some time, so that a job with uneven steps does not end too late.
_SLOWEST_DECAY = 0.9


class LeaseEnded(SystemExit):
    """The job has saved and must end here. Uncaught, this exits with `SAVED_AND_ENDED` and no
    traceback.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(SAVED_AND_ENDED)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class JobLease:
    """Keeps the pace of a loop and reads its lease. Without an agent (`holder` None) saves are due
    from time to time.

    A command job gets SIGTERM when its machine is about to end. With an agent, and unless the
    program handles SIGTERM itself, the signal no longer ends the process: it makes the next
    decision END.
    """

    def __init__(
        self,
        holder: LeaseHolder | None = None,
        save_every_seconds: float | None = None,
        look_every: int = 1,
        clock: SecondsClock = time.monotonic,
    ) -> None:
        self._holder = holder or LeaseHolder.of()
        self._save_every_seconds, self._look_every, self._clock = (
            save_every_seconds,
            look_every,
            clock,
        )

        self._plan = CheckpointPlanReader.of()
        self._here = 0
        self._slowest = 0.0
        self._saving: float | None = None
        self._saved: int | None = None
        self._wants: int | None = None
        self._last_save = self._last_step = self._last_report = clock()
        self._told_to_end = self._over = False
        handler = signal.getsignal(signal.SIGTERM)
        if handler is signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), JobLease):
            self.listen()

    def listen(self) -> None:
        """Takes SIGTERM over, also from a library that handles the signal."""
        if self._holder is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._on_term)

    def _on_term(self, _: int, __: FrameType | None) -> None:
        self._told_to_end = True
        if self._over:  # a library has put this handler back
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.raise_signal(signal.SIGTERM)

    def start_step(self) -> None:
        """Starts the clock of a step: the time before this call is not part of the step."""
        self._last_step = self._clock()

    def count_step(self) -> None:
        now = self._clock()
        self._here += 1
        self._slowest = max(now - self._last_step, self._slowest * _SLOWEST_DECAY)
        self._last_step = now

    def decision(self) -> LeaseDecision:
        """The act before the next step, and its reason."""
        now, length = self._clock(), 0.0
        lease = notice = None
        if self._holder is not None:
            lease, notice = self._holder.lease(), self._holder.notice()
            length = self._holder.length

        pace = JobPace(
            self._here, self._slowest * self._look_every, self._saving, now - self._last_save
        )

        save_every = self._save_every_seconds
        if save_every is None:
            save_every = (self._plan and self._plan.every()) or _SAVE_SECONDS
        decision = decide(now, lease, notice, pace, length, save_every)
        if self._holder is not None and notice is not None:
            self._holder.seen = notice.number

        if self._told_to_end and decision.act is not LeaseAct.END:
            return LeaseDecision(LeaseAct.END, "SIGTERM: the machine is about to end")
        return decision

    def note_save(self, step: int, since: float | None = None) -> None:
        """Notes that a checkpoint of this step exists, written from `since` until now, or
        restored."""
        self._saved = step
        if since is not None:
            self._last_save = self._clock()
            self._saving = self._last_save - since

    def report_start(self, position: TrainingPosition) -> None:
        """Reports that the loop runs, from this position."""
        self._report("running", position)

    def report_progress(
        self, decision: LeaseDecision, position: TrainingPosition, *, saved: bool
    ) -> None:
        """Reports progress after a decision: at once after a save or with a new request for a
        lease.
        """
        wanted, self._wants = self._wants, decision.ask
        is_news = saved or (decision.ask is not None and decision.ask != wanted)
        self._report("running", position, decision.reason, force=is_news)

    def report_end(self, decision: LeaseDecision, position: TrainingPosition) -> LeaseEnded:
        """Reports that the job has saved and ends; returns the exception to raise."""
        reason = decision.reason or "another rank must end"
        self._release()
        self._report("ended", position, reason)
        return LeaseEnded(f"{reason}; saved at step {position.step}")

    def report_finish(self, position: TrainingPosition) -> None:
        self._release()
        self._report("finished", position)

    def _release(self) -> None:
        """Gives SIGTERM back: from here on, the signal ends the program as it would without a
        lease.
        """
        self._over = True
        if signal.getsignal(signal.SIGTERM) == self._on_term:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _report(
        self, state: str, position: TrainingPosition, reason: str = "", *, force: bool = True
    ) -> None:
        """Reports progress; without `force` only from time to time."""
        now = self._clock()
        if self._holder is None or (not force and now - self._last_report < _REPORT_SECONDS):
            return

        self._last_report = now
        lease = self._holder.lease().number
        self._holder.report(
            JobProgress(
                getpid(),
                state,
                position.epoch,
                position.step,
                self._saved,
                self._saving,
                lease,
                self._wants,
                reason,
            )
        )


BatchT = TypeVar("BatchT")


@dataclass(frozen=True, slots=True)
class IteratorOptions:
    """How a rank of a job saves, and how it stays in step with the other ranks.

    `agree` returns the minimum of the values that all ranks pass (an all-reduce with MIN): then all
    ranks save and end at the same step, and resume from a step that each of them has. Each rank has
    a checkpoint folder of its own. The lease and notices are read, and the ranks agree, every
    `look_every` steps. `save_every_seconds` None: the interval that the agent derives from
    evictions; without an agent, ten minutes. `on_epoch` is called with an epoch's number before its
    data is drawn. Seed the shuffling there (`sampler.set_epoch`), or a job that moves within an
    epoch sees other batches than a job that does not.
    """

    save_every_seconds: float | None = None
    look_every: int = 1
    agree: Callable[[int], int] = int
    on_epoch: Callable[[int], None] = lambda _: None


class LeaseIterator(Generic[BatchT]):
    """Iterates over a loader from where the job stopped, for as long as the lease is renewed."""

    def __init__(
        self,
        loader: Iterable[BatchT],
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        checkpoints: Checkpoints,
        holder: LeaseHolder | None = None,
        options: IteratorOptions = IteratorOptions(),
        clock: SecondsClock = time.monotonic,
    ) -> None:
        self._loader, self._load, self._save = loader, load, save
        self._checkpoints, self._options, self._clock = checkpoints, options, clock
        self._lease = JobLease(holder, options.save_every_seconds, options.look_every, clock)
        self._position = TrainingPosition()
        self._resumed = False
        self._saved: TrainingPosition | None = None

    @property
    def position(self) -> TrainingPosition:
        """The job's position; the first call restores the newest checkpoint."""
        self._resume()
        return self._position

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the remaining epochs of `count`. After the last epoch, saves and reports
        the end.
        """
        self._resume()
        while (epoch := self._position.epoch) < count:
            yield epoch
            if self._position.epoch == epoch:
                # The script left the epoch early; the rest of it is skipped.
                self._position = TrainingPosition(epoch + 1, 0, self._position.step)
        self._write()
        self._lease.report_finish(self._position)

    def __iter__(self) -> Iterator[BatchT]:
        """The remaining batches of the epoch. A batch counts as done when the next batch is
        requested.
        """
        self._resume()
        position = self._position
        self._options.on_epoch(position.epoch)
        source = iter(self._loader)

        if sum(1 for _ in islice(source, position.batch)) < position.batch:
            raise BadCheckpoint(
                f"{self._checkpoints.folder}: the job stopped after batch {position.batch} of "
                f"epoch {position.epoch},"
                " but the loader has fewer; use the loader with which the checkpoint was written"
            )

        self._lease.start_step()
        for batch in source:
            if self._position.step % self._options.look_every == 0:
                # Saves or ends as lease, notices and time require, together with all ranks.
                decision = self._lease.decision()
                act = LeaseAct(self._options.agree(decision.act.value))
                if act is not LeaseAct.GO:
                    self._write()
                if act is LeaseAct.END:
                    raise self._lease.report_end(decision, self._position)

                self._lease.report_progress(decision, self._position, saved=act is LeaseAct.SAVE)
                if act is LeaseAct.SAVE:
                    self._lease.start_step()
            yield batch
            done = self._position
            self._position = TrainingPosition(done.epoch, done.batch + 1, done.step + 1)
            self._lease.count_step()

        self._position = TrainingPosition(position.epoch + 1, 0, self._position.step)

    def _write(self) -> None:
        if self._saved == self._position:
            return
        begin = self._clock()
        self._checkpoints.write(self._position, self._save)
        self._lease.note_save(self._position.step, begin)
        self._saved = self._position

    def _resume(self) -> None:
        if self._resumed:
            return

        self._resumed = True
        checkpoint = self._checkpoints.newest()
        # Each rank passes its step plus one, so 0 means that some rank has no checkpoint.
        step = self._options.agree(checkpoint[0].step + 1 if checkpoint else 0) - 1
        if step >= 0:
            position, path = (
                checkpoint
                if checkpoint and checkpoint[0].step == step
                else self._checkpoints.at(step)
            )
            self._load(path)
            self._position = self._saved = position
            self._lease.note_save(position.step)

        self._lease.report_start(self._position)
