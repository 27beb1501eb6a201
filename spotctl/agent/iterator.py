"""`LeaseIterator`: put around a data loader, it lets a training script be moved between machines.

    batches = LeaseIterator(loader, load=load, save=save, checkpoints=Checkpoints(Path("checkpoints")))
    for epoch in batches.epochs(10):
        for batch in batches:
            train(batch)

`save` writes what the script needs into an empty folder, `load` reads it back from such a folder; where the job was in
its data is kept here, and batches of an epoch that were done are drawn from the loader again and dropped. The same
script runs without a runner: then it only saves now and then, and goes on where it was.
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

from spotctl.agent.checkpoints import Checkpoints, Place
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.interval import PlanReader
from spotctl.agent.lease import Act, Clock, Decision, LeaseHolder, Pace, Progress, decide

Batch = TypeVar("Batch")

SAVED_AND_ENDED = 75
"""The exit code of a job that saved and ended because it was to be moved: EX_TEMPFAIL, try again elsewhere."""

_REPORT_SECONDS = 1.0
_SAVE_SECONDS = 600.0
# One slow step counts for some time, so that a lease is not left too late when steps are uneven.
_FORGET = 0.9


class LeaseEnded(SystemExit):
    """The job has saved and has to end here. Not caught, it ends the process with `SAVED_AND_ENDED`, quietly."""

    def __init__(self, reason: str) -> None:
        super().__init__(SAVED_AND_ENDED)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True, slots=True)
class Options:
    """How a job saves, and how it keeps step with its other ranks.

    `agree` gives the least of the values that all ranks pass (an all-reduce with MIN): then all ranks save and end at
    the same step, and go on from a step that each of them has. Ranks have checkpoint folders of their own. Lease and
    notices are looked at, and the ranks agree, every `look_every` steps.
    `save_every_seconds` None: as often as evictions make worth it, says the runner; without one every ten minutes.
    `on_epoch` is called with an epoch's number before its data is asked for: seed the shuffling there
    (`sampler.set_epoch`), or a job that is moved within an epoch sees other batches than one that is not.
    """

    save_every_seconds: float | None = None
    look_every: int = 1
    agree: Callable[[int], int] = int
    on_epoch: Callable[[int], None] = lambda _: None


class LeaseIterator(Generic[Batch]):
    """Iterates over a loader, from where the job was, for as long as the lease is renewed."""

    def __init__(
        self,
        loader: Iterable[Batch],
        *,
        load: Callable[[Path], None],
        save: Callable[[Path], None],
        checkpoints: Checkpoints,
        holder: LeaseHolder | None = None,
        options: Options = Options(),
        clock: Clock = time.monotonic,
    ) -> None:
        self._loader, self._load, self._save = loader, load, save
        self._checkpoints, self._options, self._clock = checkpoints, options, clock
        self._holder = holder or LeaseHolder.of()
        self._plan = PlanReader.of()
        self._place = Place()
        self._resumed = False
        self._here = 0
        self._saved: Place | None = None
        self._saving: float | None = None
        self._last_save = self._last_step = self._last_report = clock()
        self._slowest = 0.0
        self._wants: int | None = None

    @property
    def place(self) -> Place:
        """Where the job is; the first time, it goes to where its newest checkpoint was."""
        self._resume()
        return self._place

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the epochs that are left of `count`. After the last one, saves and reports the end."""
        self._resume()
        while (epoch := self._place.epoch) < count:
            yield epoch
            if self._place.epoch == epoch:
                # The script left the epoch early; what is left of it is not wanted.
                self._place = Place(epoch + 1, 0, self._place.step)
        self._write()
        self._report("finished", force=True)

    def __iter__(self) -> Iterator[Batch]:
        """What is left of the epoch, batch by batch. A batch counts as done when the next one is asked for."""
        self._resume()
        place = self._place
        self._options.on_epoch(place.epoch)
        source = iter(self._loader)
        if sum(1 for _ in islice(source, place.batch)) < place.batch:
            raise BadCheckpoint(
                f"{self._checkpoints.folder}: was left after batch {place.batch} of epoch {place.epoch},"
                " and the loader gives fewer; give the loader that it was written with"
            )
        self._last_step = self._clock()
        for batch in source:
            if self._place.step % self._options.look_every == 0:
                self._attend()
            yield batch
            self._count_step()
        self._place = Place(place.epoch + 1, 0, self._place.step)

    def _count_step(self) -> None:
        before = self._place
        self._place = Place(before.epoch, before.batch + 1, before.step + 1)
        self._here += 1
        now = self._clock()
        self._slowest = max(now - self._last_step, self._slowest * _FORGET)
        self._last_step = now

    def _attend(self) -> None:
        """Before a batch: does what lease, notice and time ask for, together with all ranks."""
        decision = self._decision()
        act = Act(self._options.agree(decision.act.value))
        if act is Act.GO:
            self._ask(decision)
            return
        self._write()
        if act is Act.END:
            reason = decision.reason or "another rank has to end"
            self._report("ended", reason, force=True)
            raise LeaseEnded(f"{reason}; saved at step {self._place.step}")
        self._ask(decision)
        self._report("running", decision.reason, force=True)
        self._last_step = self._clock()

    def _decision(self) -> Decision:
        now = self._clock()
        slowest = self._slowest * self._options.look_every
        pace = Pace(self._here, slowest, self._saving, now - self._last_save)
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

    def _ask(self, decision: Decision) -> None:
        wanted, self._wants = self._wants, decision.ask
        self._report("running", force=decision.ask is not None and decision.ask != wanted)

    def _write(self) -> None:
        if self._saved == self._place:
            return
        begin = self._clock()
        self._checkpoints.write(self._place, self._save)
        self._last_save = self._clock()
        self._saving = self._last_save - begin
        self._saved = self._place

    def _resume(self) -> None:
        if self._resumed:
            return
        self._resumed = True
        found = self._checkpoints.newest()
        # Each rank offers what it has plus one, so that 0 means that one of them has nothing.
        step = self._options.agree(found[0].step + 1 if found else 0) - 1
        if step >= 0:
            place, path = found if found and found[0].step == step else self._checkpoints.at(step)
            self._load(path)
            self._place = self._saved = place
        self._report("running", force=True)

    def _report(self, state: str, reason: str = "", *, force: bool) -> None:
        """Tells the runner; unasked only now and then."""
        now = self._clock()
        if self._holder is None or (not force and now - self._last_report < _REPORT_SECONDS):
            return
        self._last_report = now
        lease = self._holder.lease().number
        place, saved = self._place, self._saved.step if self._saved else None
        self._holder.report(
            Progress(getpid(), state, place.epoch, place.step, saved, self._saving, lease, self._wants, reason)
        )
