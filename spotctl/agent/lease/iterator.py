"""`LeaseIterator`: wrapped around a data loader, it makes a training script movable between
machines.

    batches = LeaseIterator(loader, load=load, save=save, checkpoints=Checkpoints(Path("checkpoints")))
    for epoch in batches.epochs(10):
        for batch in batches:
            train(batch)

`save` writes the script's state into an empty folder, and `load` reads the state back. The iterator
itself stores the position in the data; on a resume it skips the batches of the epoch that are done.
Without a lease the script only saves from time to time and resumes. This is the GavelIterator of
section 5.6 of the dissertation.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

from spotctl.agent.checkpoints.local import Checkpoints, TrainingPosition
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.lease.job_lease import JobLease
from spotctl.agent.lease.lease_files import LeaseAct, LeaseHolder, SecondsClock

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
                self._attend()
            yield batch
            done = self._position
            self._position = TrainingPosition(done.epoch, done.batch + 1, done.step + 1)
            self._lease.count_step()

        self._position = TrainingPosition(position.epoch + 1, 0, self._position.step)

    def _attend(self) -> None:
        """Saves or ends before a batch as lease, notices and time require, together with all
        ranks."""
        decision = self._lease.decision()
        act = LeaseAct(self._options.agree(decision.act.value))
        if act is not LeaseAct.GO:
            self._write()
        if act is LeaseAct.END:
            raise self._lease.report_end(decision, self._position)

        self._lease.report_progress(decision, self._position, saved=act is LeaseAct.SAVE)
        if act is LeaseAct.SAVE:
            self._lease.start_step()

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
