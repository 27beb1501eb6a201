"""A rehearsal: a job's own command on this computer, killed and started again, before anything is rented.

The command runs in a copy of the job's folder until it has saved. It is killed without warning at a random moment
after that, and started again as on the next machine: in a new copy, with what the job file brings back. It is killed
once more while it saves, and started again. Whether it repeats work is seen (`seen_work`), not asserted. If the command
writes checkpoints, the job is planned with their size and time.
"""

import os
import shutil
import tarfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from statistics import median

from agileml.errors import AgileMLError
from agileml.runtime.prepared_job import isolated_shape_of
from pricing_data.units import SECOND, counted
from spotctl.agent.checkpoints.interval import CHECKPOINT_VARIABLE
from spotctl.agent.checkpoints.sync import CheckpointSync
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.container.processes import MARK, RunningCommand, marked
from spotctl.agent.data.transfer import FolderListing, listing, local_copy
from spotctl.agent.errors import AgentError
from spotctl.agent.lease.job_lease import SAVED_AND_ENDED
from spotctl.agent.node import EVERY_VARIABLE
from spotctl.clouds.remote.job_folder import check_folder, job_archive
from spotctl.files.job.programs import Command, Training
from spotctl.files.job.spec import JobSpec, data_variable, output_variable
from spotctl.home.errors import BadRequest
from spotctl.planning.facts import transfer_time
from spotctl.planning.values import GB
from spotctl.run.environment import secrets_of
from spotctl.run.notify import hidden
from spotctl.run.start import trial_probe
from spotctl.run.start.sandbox import (
    ALLOWABLE,
    CREDENTIALS,
    MAX_DISK,
    READ_ONLY,
    guards,
    memory_limit,
    safe_environment,
    scratch_folder,
    shut_in,
)
from spotctl.run.start.seen_work import Judgement, SeenMarks, Verdict, WorkMark, is_progress, judged
from spotctl.run.work.gang import node_variables
from spotctl.run.work.training_nodes import free_port
from spotctl.run.work.training_workload import training_job

SECONDS = 60.0
_ALONE_SECONDS = 10.0
"""For a command without a checkpoint, of which only a failure can be seen."""
_GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.02
_STILL_SECONDS = 0.5
"""A checkpoint is written once its folder has not changed for so long."""
_SAVES = 5
"""How often the command is asked to save."""
_FIRST_SHARE, _SECOND_SHARE = 0.55, 0.8
"""By these parts of the time, the first start has saved, and the second has been killed, or no more is seen."""
_COPIES, _PATIENCE_SECONDS = 2, 10.0
"""The copies that the first start makes before it is killed, unless the second takes longer than this."""
_CHECK_SECONDS, _STABLE_SECONDS = 0.5, 0.1
_CLOCK_SECONDS = 0.05
"""Times of files are by a coarser clock than those of marks."""
_LONGEST_QUOTE = 300
_HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A job with the size and the time of a checkpoint that were seen, and whether it resumes."""

    spec: JobSpec
    seen: Judgement


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """How long a trial may take, what its command may use, files of the job's folder with other contents, and the
    random moments of the kills."""

    seconds: float = SECONDS
    allowed: Collection[str] = ALLOWABLE
    changed: Mapping[str, str] = field(default_factory=dict)
    random: Random = field(default_factory=Random)


def rehearse(spec: JobSpec, cache: Path, terms: TrialTerms, say: Callable[[str], object] = lambda _: None) -> Rehearsal:
    """Tries a job's command, or loads its trainer, in a copy of the job's folder. BadRequest: it fails.

    Its checkpoints and outputs are lost. The setup is not run, because it could change this computer.
    """
    _check(spec)
    with scratch_folder("spotctl-rehearsal-") as scratch:
        # The files that machines get.
        archive = job_archive(spec.workdir, scratch).path
        variables = {**os.environ, **spec.env, **secrets_of(spec)}
        try:
            variables |= {data_variable(name): str(local_copy(place, cache)) for name, place in spec.data.items()}
        except AgentError as error:
            raise BadRequest(f"{spec.name}: {error}") from error
        if isinstance(spec.program, Command):
            trial = _CommandTrial(spec, scratch, archive, variables, terms, say)
            seen = trial.conduct()
            return Rehearsal(_with_sizes(spec, spec.program, trial.watch, say), seen)
        if isinstance(spec.program, Training):
            folder = _unpacked(archive, scratch / "job", {})
            try:
                isolated_shape_of(training_job(replace(spec, workdir=folder)), folder, variables)
            except AgileMLError as error:
                raise _failure(spec, str(error).replace(str(folder), str(spec.workdir))) from error
    return Rehearsal(spec, Judgement(Verdict.NOT_SEEN, "a trainer was loaded, and does not restart"))


def _unpacked(archive: Path, folder: Path, changed: Mapping[str, str]) -> Path:
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="fully_trusted")  # noqa: S202 - the user's own files, packed just now
    for name, text in changed.items():
        (folder / name).write_text(text)
    return folder


def _with_sizes(spec: JobSpec, program: Command, watch: "_SaveWatch", say: Callable[[str], object]) -> JobSpec:
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
        trial = "the command with a plan of its own" if isinstance(spec.program, Command) else "lab parallel train"
        raise BadRequest(f"{spec.name}: --rehearse cannot split a model; try {trial}")
    remote = [location for location in spec.data.values() if "://" in location]
    if remote and not spec.is_local:
        raise BadRequest(f"{spec.name}: --rehearse does not copy {remote[0]} to this computer")
    if not spec.is_local:
        check_folder(spec.workdir)


class _SaveWatch:
    """The saves of a command into a folder: the `seconds` of each, from its first change to its last, and the `size` of
    the folder."""

    def __init__(self, folder: Path) -> None:
        self.seconds, self.size = list[float](), 0
        self.turn_to(folder)

    def turn_to(self, folder: Path) -> None:
        """Watches the folder of another start, as it is now."""
        self._folder = folder
        self._began: float | None = None
        self._files: FolderListing = listing(folder, unfinished=True)
        self._looked = self._changed = time.monotonic()

    def look(self, *, is_last: bool = False) -> None:
        """Compares the folder with the last look. Nothing changes it after the last one."""
        # Files that are still being written, too.
        files, now = listing(self._folder, unfinished=True), time.monotonic()
        if files != self._files:
            self._began = self._looked if self._began is None else self._began
            self._changed = now
        if self._began is not None and (is_last or now - self._changed >= _STILL_SECONDS):
            self.seconds.append(self._changed - self._began)
            self._began = None
            self.size = sum(size for _, size, *_ in listing(self._folder))
        self._files, self._looked = files, now


class _Start:
    """One start of the command, on what stands for a machine: a new copy of the job's folder, with what is kept."""

    def __init__(self, trial: "_CommandTrial", number: int, cut: int, *, has_steps: bool) -> None:
        scratch, spec, self._trial = trial.scratch, trial.spec, trial
        self.folder = _unpacked(trial.archive, scratch / f"job-{number}", trial.terms.changed)
        self._given = set(listing(self.folder))
        self.checkpoint, seen = scratch / f"checkpoint-{number}", scratch / f"seen-{number}"
        folders = {CHECKPOINT_VARIABLE: self.checkpoint}
        folders |= {output_variable(name): scratch / "outputs" / str(number) / name for name in spec.outputs}
        for place in (seen, scratch / "tmp", *folders.values()):
            place.mkdir(parents=True, exist_ok=True)
        policy = CheckpointPolicy(str(scratch / "kept"), 1.0, None, 0.0, 1.0)
        self._sync = CheckpointSync(
            policy, NodeTask(f"start-{number}"), self.checkpoint, scratch / "plan", lambda: None
        )
        self._sync.restore()
        roots = (self.folder, self.checkpoint, scratch / "outputs" / str(number), spec.workdir)
        environment = {
            **trial.variables,
            "SPOTCTL_JOB": spec.name,
            "SPOTCTL_RUN": f"{spec.name}-rehearsal",
            "SPOTCTL_ATTEMPT": str(number),
            EVERY_VARIABLE: f"{trial.terms.seconds / _SAVES:g}",
            **node_variables(0, [_HERE], free_port()),
            **{variable: str(place) for variable, place in folders.items()},
            MARK: str(scratch),
            "TMPDIR": str(scratch / "tmp"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(trial.probe), trial.variables.get("PYTHONPATH", "")))),
            "SPOTCTL_TRIAL_SEEN": str(seen),
            "SPOTCTL_TRIAL_ROOTS": os.pathsep.join(map(str, roots)),
            "SPOTCTL_TRIAL_CUT": str(cut),
            "SPOTCTL_TRIAL_STEPS": str(int(has_steps)),
        }
        self._reader, self.marks = SeenMarks(seen), list[WorkMark]()
        self.printed, self.began = scratch / f"printed-{number}", time.monotonic()
        self._saves, self._looked = list[object](), self.began
        self.first_copy = inf
        trial.watch.turn_to(self.checkpoint)
        words = trial.shut_in(["/bin/sh", "-c", trial.program.run])
        self.command = RunningCommand(words, self.folder, environment, self.printed, scratch)

    def look(self, *, is_over: bool = False) -> None:
        """Notes what was done since the last look, and copies a checkpoint, as a machine does until its end."""
        self.marks = self._reader.all()
        self._trial.watch.look()
        now = time.monotonic()
        # No machine copies what it was ended in the middle of.
        is_over |= any(mark.kind == "cut" for mark in self.marks)
        if is_over or self._trial.program.checkpoint is None or now - self._looked < _STABLE_SECONDS:
            return
        if self._sync.look():
            self.first_copy = min(self.first_copy, now)
            self.marks = self._reader.all()
            written = max(map(self._written, self._sync.copied)) - (time.time() - time.monotonic())
            save = self._save_before(written)
            # A save of several files may be copied in parts, and is one save.
            copied = written if save is None else save.position
            if any(is_progress(mark) for mark in self.marks) and copied not in self._saves:
                self._saves.append(copied)
            newest = max(self._sync.copied, key=lambda file: file[2])[0]
            self._trial.kept = (self.marks, written if save is None else save.at, newest)
        self._looked = now

    @property
    def copies(self) -> int:
        """How many saves were copied, each counted once."""
        return len(self._saves)

    def _save_before(self, written: float) -> WorkMark | None:
        """The last save that was begun before its files were written or renamed: later ones may not be copied yet."""
        folder = str(self.checkpoint)
        saves = [mark for mark in self.marks if is_progress(mark) and mark.path.startswith(folder)]
        return max((m for m in saves if m.at <= written + _CLOCK_SECONDS), key=lambda mark: mark.at, default=None)

    def _written(self, file: tuple[str, int, int, int]) -> float:
        """When a file was written, or got its name."""
        name, _, changed, number = file
        try:
            now = (self.checkpoint / name).stat()
        except OSError:
            return changed / 1e9
        return (now.st_ctime_ns if (now.st_mtime_ns, now.st_ino) == (changed, number) else changed) / 1e9

    def steps(self) -> int:
        """How many steps, or else saves, were seen."""
        return sum(mark.kind == "step" for mark in self.marks) or sum(map(is_progress, self.marks))

    @property
    def own_saves(self) -> list[WorkMark]:
        """Saves that the next machine does not get."""
        return [mark for mark in self.marks if is_progress(mark) and mark.path.startswith(str(self.folder))]

    def changed_files(self) -> list[str]:
        """Files of the job's folder that are new or other than at the start, the newest first; logs do not count."""
        files = [file for file in listing(self.folder) if file not in self._given]
        files = [file for file in files if not file[0].endswith(trial_probe.NO_SAVES) and "tfevents" not in file[0]]
        return [name for name, *_ in sorted(files, key=lambda file: -file[2])]

    def runs_python(self) -> bool:
        return bool(self.marks)

    def last_line(self) -> str:
        lines = [line.strip() for line in self.printed.read_text(errors="replace").splitlines() if line.strip()]
        said = lines[-1][-_LONGEST_QUOTE:] if lines else "it printed nothing"
        spec = self._trial.spec
        return hidden(said.replace(str(self.folder), str(spec.workdir)), secrets_of(spec).values())


class _CommandTrial:
    """The starts of a command, one after another, and what the newest copy of its checkpoint has."""

    def __init__(
        self,
        spec: JobSpec,
        scratch: Path,
        archive: Path,
        variables: Mapping[str, str],
        terms: TrialTerms,
        say: Callable[[str], object],
    ) -> None:
        assert isinstance(spec.program, Command)
        self.spec, self.program, self.scratch, self.archive, self.terms = spec, spec.program, scratch, archive, terms
        self._held = () if set(ALLOWABLE) <= set(terms.allowed) else guards(terms.allowed)
        self.variables = safe_environment(variables, terms.allowed, spec.env.keys() | set(spec.secrets))
        if CREDENTIALS not in terms.allowed and READ_ONLY not in self._held:
            home = Path.home()
            self.variables |= {"HOME": str(scratch), "PYTHONUSERBASE": str(home / ".local")}
        self.probe = scratch / "probe"
        self.probe.mkdir()
        shutil.copy(trial_probe.__file__, self.probe / "sitecustomize.py")
        self.watch = _SaveWatch(self.probe)
        self.kept: tuple[Sequence[WorkMark], float, str] = ((), 0.0, "")
        self._say, self._number, self._checked = say, 0, 0.0
        self._began = time.monotonic()

    def shut_in(self, words: list[str]) -> list[str]:
        """The command line with the guards that hold here."""
        return shut_in(self.scratch, self._held, words) if set(ALLOWABLE) > set(self.terms.allowed) else words

    def conduct(self) -> Judgement:
        """Starts, kills and judges the command. BadRequest: its first start fails, or it takes too much room."""
        if self.program.checkpoint is None:
            start = self._start()
            code = self._until(start, lambda: False, min(_ALONE_SECONDS, self.terms.seconds))
            self._end(start, code, is_last=True)
            return Judgement(Verdict.NOT_SEEN, "the job file has no checkpoint, so each eviction starts it again")
        for copies in range(_COPIES, 0, -1):
            first = self._start()
            code = self._until_saved(first, copies)
            if code is None and not first.copies:
                self._end(first, code, is_last=True)
                if first.own_saves:
                    where = Path(first.own_saves[-1].path).relative_to(first.folder)
                    return Judgement(Verdict.RESTARTED, f"saved {where} in its folder, which the next machine lacks")
                changed = first.changed_files()
                lost = f"; it changed {changed[0]} in its folder, which the next machine lacks" if changed else ""
                return Judgement(Verdict.NOT_SEEN, f"no save was seen in {self._time():.0f} s{lost}")
            if code is None:
                break
            self._end(first, code)
            if not first.copies:
                return Judgement(Verdict.NOT_SEEN, f"ended after {self._time():.0f} s without a save in its loop")
            shutil.rmtree(self.scratch / "kept")
        else:
            return Judgement(Verdict.NOT_SEEN, f"ended after {self._time():.0f} s, too soon to be killed")
        self._until(first, lambda: False, self._time() + self.terms.random.uniform(0.0, _STILL_SECONDS))
        first.command.finish()
        saved = f"saved {self.kept[2]} after {first.first_copy - first.began:.0f} s; killed and started again"
        self._say(f"{saved} ...")
        second, after = self._killed_while_saving(first)
        if after.verdict is Verdict.RESUMED:
            last = self._after_the_last_kill(first, second)
            if last.verdict is Verdict.RESTARTED:
                after = Judgement(last.verdict, f"{after.saw}; killed while it saved, it {last.saw}")
            elif first.copies < _COPIES and last.verdict is Verdict.NOT_SEEN:
                after = Judgement(last.verdict, f"{after.saw}; {last.saw}")
        return Judgement(after.verdict, f"{saved}; {after.saw}")

    def _killed_while_saving(self, first: _Start) -> tuple[_Start, Judgement]:
        kept, saves = self.kept, [mark for mark in first.marks if is_progress(mark)]
        # A save of several files is cut short in any of them; after a single save, one more is to be kept before.
        together = max(sum(mark.position == saves[0].position for mark in saves), 1) if saves else 1
        cut = self.terms.random.randint(1, together) + together * (first.copies < _COPIES)
        second = self._start(cut, has_steps=any(mark.kind == "step" for mark in first.marks))
        code = self._until(second, lambda: False, self._by(_SECOND_SHARE))
        second.command.finish()
        return second, self._judged(first, kept, second, code)

    def _after_the_last_kill(self, first: _Start, second: _Start) -> Judgement:
        kept, third = self.kept, self._start()
        code = self._until(third, lambda: third.steps() > 0, self.terms.seconds)
        self._end(third, None, is_last=True)
        seen = self._judged(first, kept, third, code)
        if first.copies + second.copies < _COPIES and seen.verdict is not Verdict.RESTARTED:
            return Judgement(Verdict.NOT_SEEN, "a minute was too short to see which of several saves it takes")
        return seen

    def _judged(
        self, first: _Start, kept: tuple[Sequence[WorkMark], float, str], start: _Start, code: int | None
    ) -> Judgement:
        start.look(is_over=True)
        if code not in (None, 0, SAVED_AND_ENDED, -9, 137):
            return Judgement(Verdict.RESTARTED, f"failed with status {code}: {start.last_line()}")
        return judged(first.marks, kept[0], kept[1], start.marks)

    def _until_saved(self, start: _Start, copies: int) -> int | None:
        code = self._until(start, partial(self._may_be_killed, start, copies), self._by(_FIRST_SHARE))
        if code is None and not start.runs_python():
            # Nothing but its saves can be seen.
            code = self._until(start, lambda: False, min(_ALONE_SECONDS, self.terms.seconds))
        return code

    def _may_be_killed(self, start: _Start, copies: int) -> bool:
        if not start.runs_python():
            return False
        if not start.copies and len(start.own_saves) >= _COPIES:
            return time.monotonic() - start.own_saves[_COPIES - 1].at > _PATIENCE_SECONDS / 4
        waited = time.monotonic() - start.first_copy
        # A step after the save shows which weights the save has.
        steps = [mark.at for mark in start.marks if mark.kind == "step"]
        is_enough = start.copies >= copies and (not steps or steps[-1] > self.kept[1])
        return is_enough or waited > min(_PATIENCE_SECONDS, self.terms.seconds / 6)

    def _start(self, cut: int = 0, *, has_steps: bool = False) -> _Start:
        self._number += 1
        return _Start(self, self._number, cut, has_steps=has_steps)

    def _time(self) -> float:
        return time.monotonic() - self._began

    def _by(self, share: float) -> float:
        return self.terms.seconds * share

    def _until(self, start: _Start, is_enough: Callable[[], bool], seconds: float) -> int | None:
        """Looks at a start until it ends, there is enough, or this time of the trial is over."""
        while (code := start.command.exit_code()) is None and not is_enough() and self._time() < seconds:
            start.look()
            self._check_room()
            if not start.runs_python() and time.monotonic() - start.began > _ALONE_SECONDS:
                break
            time.sleep(_LOOK_SECONDS)
        start.look(is_over=True)
        return code

    def _end(self, start: _Start, code: int | None, *, is_last: bool = False) -> None:
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
            raise _failure(self.spec, f"status {code}: {start.last_line()}")
        if is_last:
            self.watch.look(is_last=True)

    def _check_room(self) -> None:
        """Refuses a command that fills the memory or the disk of this computer."""
        if time.monotonic() - self._checked < _CHECK_SECONDS:
            return
        self._checked, page = time.monotonic(), os.sysconf("SC_PAGE_SIZE")
        memory = 0
        for pid, mark in marked():
            with suppress(OSError):
                memory += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page * (mark == self.scratch)
        disk = sum(size for _, size, *_ in listing(self.scratch, unfinished=True))
        for what, used, limit in (("memory", memory, memory_limit()), ("disk", disk, MAX_DISK)):
            if used > limit:
                raise _failure(self.spec, f"over {limit >> 30} GiB of {what}")


def _failure(spec: JobSpec, why: str) -> BadRequest:
    setup = "; --rehearse does not run the setup: install here what it installs" if spec.setup else ""
    return BadRequest(f"{spec.name}: the rehearsal failed with {why}{setup}")
