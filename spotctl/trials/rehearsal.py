"""A rehearsal: a job's own program on this computer, killed and started again, before renting.

A trial has four parts. The command is shut in (`sandbox`), it is started in a copy of the job's
folder (`starts`), its work is seen from inside of it (`script_watch`), and what was seen is judged
(`seen_work`). It runs until it has saved. It is killed without warning at a random moment after
that, and started again as on the next machine: in a new copy, with what the job file brings back.
It is killed once more while it saves, and started again. A trainer is only loaded.

Whether a command repeats work is seen, never asserted: what cannot be seen is no verdict. If it
writes checkpoints, the job is planned with their size and time.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from agileml.errors import AgileMLError
from agileml.runtime.prepared_job import isolated_shape_of
from pricing_data.units import SECOND, counted
from spotctl.agent.container.processes import marked
from spotctl.agent.data.transfer import listing, local_copy
from spotctl.agent.errors import AgentError
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec, data_variable
from spotctl.home.errors import BadRequest
from spotctl.planning.facts import transfer_time
from spotctl.planning.values import GB
from spotctl.run.environment import secrets_of
from spotctl.run.work.environment_here import environment_here
from spotctl.run.work.training_workload import training_job
from spotctl.trials.sandbox import MAX_DISK, memory_limit, scratch_folder
from spotctl.trials.seen_work import Judgement, Verdict, WorkMark, is_progress, judged
from spotctl.trials.starts import (
    STILL_SECONDS,
    SaveWatch,
    TrialGround,
    TrialStart,
    TrialTerms,
    unpacked,
)

_ALONE_SECONDS = 10.0
"""For a command without a checkpoint, of which only a failure can be seen."""
_PROC = Path("/proc")
_READ_ONLY_PLACE = re.compile(r"Read-only file system: '(.+)'")
_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_FIRST_SHARE, _SECOND_SHARE = 0.55, 0.8
"""By these parts of the time, the first start has saved, and the second has been killed, or no more
is seen."""
_COPIES, _PATIENCE_SECONDS = 2, 10.0
"""The copies that the first start makes before it is killed, unless the second takes longer than
this."""
_SAVES_TO_COMPARE = 4
_CHECK_SECONDS, _SHOWN_PLACES = 0.5, 2
_BUSY_SECONDS, _LONGEST_FACTOR = 20.0, 4.0
"""Uncounted time of which the trial tells, and the most of it, in limits of a trial."""
_WITHOUT_SECONDS = 20.0
"""For a start that lacks one of the places that are kept."""


class FailedByItself(BadRequest):
    """The command fails by itself, without a kill."""


def rehearse(
    spec: JobSpec, cache: Path, terms: TrialTerms, say: Callable[[str], object]
) -> tuple[JobSpec, Judgement]:
    """Tries a job's command, or loads its trainer, in a copy of the job's folder: the job with the
    size and the time of a checkpoint that were seen, and whether it resumes. BadRequest: it fails.

    Its checkpoints and outputs are lost. The setup is not run, because it could change this
    computer.
    """
    _check(spec)
    with scratch_folder("spotctl-rehearsal-") as scratch:
        # The files that machines get, and their variables.
        archive = job_archive(spec.workdir, scratch).path
        variables = {**os.environ, **spec.env, **secrets_of(spec)}
        try:
            variables |= {
                data_variable(name): str(local_copy(place, cache))
                for name, place in spec.data.items()
            }
            variables |= environment_here(spec, cache, variables, say)
        except AgentError as error:
            raise BadRequest(f"{spec.name}: {error}") from error
        if isinstance(spec.program, Command):
            ground = TrialGround(spec, scratch, archive, variables, terms)
            seen = _CommandTrial(ground, say).conduct()
            return _with_sizes(spec, spec.program, ground.watch, say), seen

        if isinstance(spec.program, Training):
            folder = unpacked(archive, scratch / "job", {})
            try:
                isolated_shape_of(training_job(replace(spec, workdir=folder)), folder, variables)
            except AgileMLError as error:
                raise _failure(spec, str(error).replace(str(folder), str(spec.workdir))) from error

    return spec, _not_seen("a trainer was loaded, and does not restart")


def _with_sizes(
    spec: JobSpec, program: Command, watch: SaveWatch, say: Callable[[str], object]
) -> JobSpec:
    """The job with the size and the time of a checkpoint, as far as the file does not say them."""
    kept = program.checkpoint
    if kept is None or kept.takes is not None or not watch.seconds:
        return spec

    written, size = median(watch.seconds), kept.size or watch.size
    # It is written there, and copied from its machine.
    takes = max(round(written * SECOND) + transfer_time(size / GB), 1)
    number, megabytes = counted(len(watch.seconds), "checkpoint"), watch.size / 1e6
    each = f"{megabytes:.3g} MB in {written:.2g} s; the plan counts {takes / SECOND:.2g} s for each"
    say(f"{spec.name}: wrote {number} here, of {each}")

    # Job files state sizes in megabytes.
    seen = replace(kept, takes=takes, size=kept.size or max(round(watch.size / 1e6), 1) * 10**6)
    return replace(spec, program=replace(program, checkpoint=seen))


def _check(spec: JobSpec) -> None:
    """Refuses what this computer cannot rehearse."""
    if spec.image.container is not None:
        raise BadRequest(f"{spec.name}: --rehearse runs no containers; try the command with podman")
    if spec.program.parallel is not None:
        trial = "lab parallel train"
        if isinstance(spec.program, Command):
            trial = "the command with a plan of its own"
        raise BadRequest(f"{spec.name}: --rehearse cannot split a model; try {trial}")

    remote = [location for location in spec.data.values() if "://" in location]
    if remote and not spec.is_local:
        raise BadRequest(f"{spec.name}: --rehearse does not copy {remote[0]} to this computer")
    if not spec.is_local:
        check_folder(spec.workdir)


class _CommandTrial:
    """Starts a command one time after another, kills it, and judges what was seen."""

    def __init__(self, ground: TrialGround, say: Callable[[str], object]) -> None:
        self._ground, self._spec, self._terms, self._say = ground, ground.spec, ground.terms, say
        self._checked = self._began = time.monotonic()
        self._delays, self._uncounted = dict[int, int](), 0.0

    def conduct(self) -> Judgement:
        """Starts, kills and judges the command.

        BadRequest: its first start fails, or it takes too much room.
        """
        if self._ground.program.checkpoint is None:
            alone = self._ground.start()
            code = self._until(alone, min(_ALONE_SECONDS, self._terms.seconds))
            self._end(alone, code, is_last=True)
            return _not_seen("the job file has no checkpoint, so each eviction starts it again")

        first = self._start_that_saved()
        if isinstance(first, Judgement):
            return first

        # What is saved after the last copy shows what becomes of that.
        patience = self._time() + _PATIENCE_SECONDS / 4
        self._until(first, patience, first.shows_what_follows, is_lost=True)
        moment = self._time() + self._terms.random.uniform(0.0, STILL_SECONDS)
        self._until(first, moment, is_lost=True)
        first.command.finish()

        waited = first.first_copy - first.began
        saved = f"saved {self._ground.kept[2]} after {waited:.0f} s; killed and started again"
        self._say(f"{saved} ...")
        second, after = self._killed_while_saving(first)

        if after.verdict is Verdict.RESUMED:
            kept, third = self._ground.kept, self._ground.start()
            code = self._until(third, self._terms.seconds, third.has_worked)
            self._end(third, None, is_last=True)
            last = self._judged(first, kept, third, code)
            if first.copies + second.copies < _COPIES and last.verdict is not Verdict.RESTARTED:
                last = _not_seen("a minute was too short to see which of several saves it takes")
            if last.verdict is Verdict.RESTARTED:
                saw = f"{after.saw}; killed while it saved, it {last.saw}"
                after = Judgement(last.verdict, saw)
            elif first.copies < _COPIES and last.verdict is Verdict.NOT_SEEN:
                after = Judgement(last.verdict, f"{after.saw}; {last.saw}")

        if after.verdict is Verdict.RESUMED and self._terms.finds_places:
            self._take_away(first)
        left = tuple(sorted(self._ground.logs))
        saw = f"{saved}; {after.saw}"
        return Judgement(after.verdict, saw, self._ground.keep, left, first.saved())

    def _take_away(self, first: TrialStart) -> None:
        """Keeps only the models that the script saves, and the places without which a start does
        not go on, as far as time allows."""
        ground, models = self._ground, first.models()
        for place in ground.keep if len(ground.keep) > 1 else ():
            if self._time() > self._terms.seconds:
                return
            if any(part.match(place.rstrip("/")) for part in models):
                continue
            kept, before = ground.kept, ground.keep
            ground.keep = tuple(other for other in before if other != place)
            start = ground.start()
            seconds = self._time() + _WITHOUT_SECONDS
            code = self._until(start, seconds, start.has_worked, is_lost=True)
            start.command.finish()
            if self._judged(first, kept, start, code).verdict is not Verdict.RESUMED:
                ground.keep = before

    def _start_that_saved(self) -> TrialStart | Judgement:
        """A start that has saved and still runs; a verdict if there is none.

        A command that ends before two saves were copied is killed after one.
        """
        for copies in range(_COPIES, 0, -1):
            first = self._ground.start()
            may_be_killed = partial(self._may_be_killed, first, copies)
            code = self._until(first, self._terms.seconds * _FIRST_SHARE, may_be_killed)
            if code is None and not first.marks:
                # Nothing but its saves can be seen.
                code = self._until(first, min(_ALONE_SECONDS, self._terms.seconds))
            if code is None and first.copies:
                return first

            self._end(first, code, is_last=code is None)
            if code is None:
                lacks = "in its folder, which the next machine lacks"
                if first.own_saves:
                    where = Path(first.own_saves[-1].path).relative_to(first.folder)
                    cure = "keep it: checkpoint.keep names files and folders"
                    return Judgement(Verdict.RESTARTED, f"saved {where} {lacks}; {cure}")
                if first.outside:
                    places = ", ".join(first.outside[:_SHOWN_PLACES])
                    return _not_seen(f"saves to {places}, outside of the job's folder")
                changed = first.changed_file()
                lost = f"; it changed {changed} {lacks}" if changed else ""
                return _not_seen(f"no save was seen in {self._time():.0f} s{lost}")
            if not first.copies:
                return _not_seen(f"ended after {self._time():.0f} s without a save in its loop")
            shutil.rmtree(self._ground.copies)
        return _not_seen(f"ended after {self._time():.0f} s, too soon to be killed")

    def _killed_while_saving(self, first: TrialStart) -> tuple[TrialStart, Judgement]:
        kept, saves = self._ground.kept, [mark for mark in first.marks if is_progress(mark)]
        # A save of several files is cut short in any of them; after a single save, one more is to
        # be kept before.
        together = max(sum(mark.position == saves[0].position for mark in saves), 1) if saves else 1
        # Without steps, only a whole save shows what the script goes on with.
        has_steps = any(mark.kind == "step" for mark in first.marks)
        cut = self._terms.random.randint(1, together) + together * (
            first.copies < _COPIES or not has_steps
        )
        second = self._ground.start(cut, has_steps=has_steps)
        code = self._until(second, self._terms.seconds * _SECOND_SHARE)
        second.command.finish()

        return second, self._judged(first, kept, second, code)

    def _judged(
        self,
        first: TrialStart,
        kept: tuple[Sequence[WorkMark], float, str],
        start: TrialStart,
        code: int | None,
    ) -> Judgement:
        start.look(is_over=True)
        # A launcher of ranks outlives the rank that was killed while it saved, and fails.
        was_killed = any(mark.kind == "cut" for mark in start.marks)
        if code not in (None, 0, SAVED_AND_ENDED, -9, 137) and not was_killed:
            return Judgement(Verdict.RESTARTED, f"failed with status {code}: {start.last_line()}")
        seen = judged(first.marks, kept[0], kept[1], start.marks)
        if code == 0 and not was_killed and not start.has_worked():
            saw = f"ended early, once it had its save: {start.last_line()}"
            return Judgement(Verdict.RESTARTED, saw)
        return seen

    def _may_be_killed(self, start: TrialStart, copies: int) -> bool:
        if not start.marks:
            return False
        if not start.copies and len(start.own_saves) >= _COPIES:
            return time.monotonic() - start.own_saves[_COPIES - 1].at > _PATIENCE_SECONDS / 4

        waited = time.monotonic() - start.first_copy
        # A step after the save shows which weights the save has.
        steps = [mark.at for mark in start.marks if mark.kind == "step"]
        is_enough = start.copies >= copies and bool(steps) and steps[-1] > self._ground.kept[1]
        if not steps:
            # Only the time between its saves shows what it computes.
            places = {str(mark.position) for mark in start.marks if is_progress(mark)}
            is_enough = start.copies >= copies and len(places) > _SAVES_TO_COMPARE
        return is_enough or waited > min(_PATIENCE_SECONDS, self._terms.seconds / 6)

    def _time(self) -> float:
        """The seconds of this trial, without those of imports and of waiting for a processor."""
        return time.monotonic() - self._began - self._uncounted

    def _count(self, start: TrialStart, pids: Sequence[int]) -> None:
        """Leaves the time since the last check out where the command had no processor, or
        imported."""
        passed, delays = time.monotonic() - self._checked, dict[int, int]()
        for pid in pids:
            # A process may have ended since; other systems do not tell.
            with suppress(OSError):
                delays[pid] = int((_PROC / f"{pid}/schedstat").read_text().split()[1])
        grown = [delay - self._delays.get(pid, delay) for pid, delay in delays.items()]
        waited = max(grown, default=0) / 1e9
        self._delays, before = delays, self._uncounted
        self._uncounted += passed if start.is_importing() else min(waited, passed)

        # However busy it is, a trial ends.
        self._uncounted = min(self._uncounted, _LONGEST_FACTOR * self._terms.seconds)
        if before < _BUSY_SECONDS <= self._uncounted:
            self._say("imports are slow, or this computer is busy: the trial takes longer ...")

    def _until(
        self,
        start: TrialStart,
        seconds: float,
        is_enough: Callable[[], bool] | None = None,
        *,
        is_lost: bool = False,
    ) -> int | None:
        """Looks at a start until it ends, there is enough, or this time of the trial is over.

        What it saves then is copied, unless it is lost.
        """
        begun = self._time()
        while (code := start.command.exit_code()) is None and self._time() < seconds:
            if is_enough is not None and is_enough():
                break
            start.look(is_over=is_lost)
            if time.monotonic() - self._checked >= _CHECK_SECONDS:
                pids = [pid for pid, mark in marked() if mark == self._ground.scratch]
                self._count(start, pids)
                self._checked = time.monotonic()
                # A command that fills the memory or the disk of this computer is refused.
                pages = 0
                for pid in pids:
                    # A process may have ended since.
                    with suppress(OSError):
                        pages += int((_PROC / f"{pid}/statm").read_text().split()[1])

                memory = pages * os.sysconf("SC_PAGE_SIZE")
                disk = sum(size for _, size, *_ in listing(self._ground.scratch, unfinished=True))
                limits = (("memory", memory, memory_limit()), ("disk", disk, MAX_DISK))
                for what, used, limit in limits:
                    if used > limit:
                        raise _failure(self._spec, f"over {limit >> 30} GiB of {what}")

            # On a busy computer, Python begins late.
            if not start.marks and self._time() - begun > _ALONE_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)

        start.look(is_over=True)
        return code

    def _end(self, start: TrialStart, code: int | None, *, is_last: bool = False) -> None:
        """Ends a start; many programs save when they are told to end. BadRequest: it has failed."""
        try:
            if code is None and is_last:
                start.command.terminate()
                give_up = time.monotonic() + _GRACE_SECONDS
                while start.command.exit_code() is None and time.monotonic() < give_up:
                    start.look()
                    time.sleep(_LOOK_SECONDS)
        finally:
            start.command.end(0.0)

        if code not in (None, 0, SAVED_AND_ENDED):
            places = start.outside or _READ_ONLY_PLACE.findall(start.last_line())
            if places:
                where = f"{places[0]}, outside of the job's folder, where a trial may not write"
                cure = "give it another path with an argument"
                raise BadRequest(f"{self._spec.name}: saves to {where}; {cure}")
            raise _failure(self._spec, f"status {code}: {start.last_line()}")
        if is_last:
            self._ground.watch.look(is_last=True)


def _not_seen(why: str) -> Judgement:
    return Judgement(Verdict.NOT_SEEN, why)


def _failure(spec: JobSpec, why: str) -> FailedByItself:
    setup = ""
    if spec.setup:
        setup = "; --rehearse does not run the setup: install here what it installs"
    return FailedByItself(f"{spec.name}: the trial on this computer failed with {why}{setup}")
