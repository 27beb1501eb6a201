"""A start of a job's command on this computer, on what stands for a machine.

Each start has a new copy of the job's folder, as each machine has. It gets what the job file brings
back, its saves are copied as a machine's agent copies them, and its marks are read while it runs.
Nothing but these copies may reach the next start: whatever else did would look like resuming.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from pathlib import Path
from random import Random

from spotctl.agent.checkpoints.copying import CheckpointSync
from spotctl.agent.checkpoints.kept import KEPT, KeptPlaces
from spotctl.agent.checkpoints.local import CHECKPOINT_VARIABLE
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.container.podman import PROCESSES_VARIABLE, gpus
from spotctl.agent.container.processes import MARK, SHELL, RunningCommand
from spotctl.agent.data.transfer import FolderListing, listing
from spotctl.agent.layout import RUN_VARIABLE
from spotctl.agent.node import EVERY_VARIABLE
from spotctl.files.job.programs import Command
from spotctl.files.job.spec import JobSpec, output_variable
from spotctl.run.environment import secrets_of
from spotctl.run.notify import hidden
from spotctl.run.work.gang import node_variables
from spotctl.run.work.training_nodes import free_port
from spotctl.trials import script_watch
from spotctl.trials.places import WrittenPlaces
from spotctl.trials.sandbox import (
    ALLOWABLE,
    CREDENTIALS,
    GPU,
    READ_ONLY,
    guards,
    safe_environment,
    shut_in,
)
from spotctl.trials.seen_work import SeenMarks, WorkMark, is_progress, marks_of_work

SECONDS = 60.0
STILL_SECONDS = 0.5
"""A checkpoint is written once its folder has not changed for so long."""
_SAVES = 12
"""How often the command is asked to save: libraries take most of the time to start."""
_STABLE_SECONDS = 0.1
_IMPORTING_SECONDS = 3.0
"""A module that is compiled takes so long, without another import."""
_CLOCK_SECONDS = 0.05
"""Times of files are by a coarser clock than those of marks."""
_ERROR = re.compile(r"(\[rank\d+\]: )?[\w.]*(Error|Exception)\b(?<!ChildFailedError): ")
"""The line that says why a Python program failed, also where its launcher says more behind it."""
_FRAME, _COLOURS = re.compile(r'File "(.+)", line (\d+), in '), re.compile(r"\x1b\[[\d;]*m")
_LONGEST_QUOTE = 300
ONLY_WEIGHTS = "torch.load reads only weights"
"""Said of a script that fails to load what it saved, since PyTorch 2.6."""
_HERE = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """How long a trial may take, what its command may use, files of the job's folder with other
    contents, and the random moments of the kills.

    If it `finds_places`, what the command writes in the job's folder is kept, and what its next
    start does not need of that is taken away in turn.
    """

    seconds: float = SECONDS
    allowed: Collection[str] = ALLOWABLE
    changed: Mapping[str, str] = field(default_factory=dict)
    random: Random = field(default_factory=Random)
    finds_places: bool = False


def unpacked(archive: Path, folder: Path, changed: Mapping[str, str]) -> Path:
    with tarfile.open(archive) as packed:
        # The user's own files, packed just now.
        packed.extractall(folder, filter="fully_trusted")  # noqa: S202
    for name, text in changed.items():
        (folder / name).write_text(text)
    return folder


class SaveWatch:
    """The saves of a command into a folder: the `seconds` of each, from its first change to its
    last, and the `size` of the folder."""

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

        if self._began is not None and (is_last or now - self._changed >= STILL_SECONDS):
            self.seconds.append(self._changed - self._began)
            self._began = None
            self.size = sum(size for _, size, *_ in listing(self._folder))

        self._files, self._looked = files, now


class TrialGround:
    """Everything that the starts of a command share: files, variables, guards, and the newest copy
    of its checkpoint.

    `kept` are the marks of the start that made this copy, the time of the save in it, and a file of
    the save. `keep` are the places of the job's folder that are copied, too, and `logs` files there
    that are not.
    """

    def __init__(
        self,
        spec: JobSpec,
        scratch: Path,
        archive: Path,
        variables: Mapping[str, str],
        terms: TrialTerms,
    ) -> None:
        assert isinstance(spec.program, Command)
        self.spec, self.program, self.scratch, self.archive, self.terms = (
            spec,
            spec.program,
            scratch,
            archive,
            terms,
        )

        self._held = () if set(ALLOWABLE) <= set(terms.allowed) else guards(terms.allowed)
        self.variables = safe_environment(
            variables, terms.allowed, spec.env.keys() | set(spec.secrets)
        )
        if CREDENTIALS not in terms.allowed and READ_ONLY not in self._held:
            home = Path.home()
            self.variables |= {"HOME": str(scratch), "PYTHONUSERBASE": str(home / ".local")}

        self.probe, self.copies = scratch / "probe", scratch / "kept"
        self.probe.mkdir()
        shutil.copy(script_watch.__file__, self.probe / "sitecustomize.py")

        # What libraries such as DeepSpeed have compiled of themselves on this computer takes
        # minutes; the home folder cannot be written to here.
        self.built = scratch / "built"
        own = variables.get("TORCH_EXTENSIONS_DIR")
        cache = Path(variables.get("XDG_CACHE_HOME") or Path.home() / ".cache", "torch_extensions")
        by_age = {folder.stat().st_mtime_ns: folder for folder in cache.glob("py*")}
        newest = by_age[max(by_age)] if by_age else None
        known = Path(own) if own else newest
        if known is not None and known.is_dir():
            # What is being compiled there has a lock.
            shutil.copytree(known, self.built, ignore=shutil.ignore_patterns("lock"))

        self.watch, self._number = SaveWatch(self.probe), 0
        self.kept: tuple[Sequence[WorkMark], float, str] = ((), 0.0, "")
        checkpoint = self.program.checkpoint
        self.keep = () if checkpoint is None else checkpoint.keep
        self.logs = set[str]()

    def start(self, cut: int = 0, *, has_steps: bool = False) -> TrialStart:
        """Starts the command once more; with `cut` it is killed in the middle of this save."""
        self._number += 1
        is_open = set(ALLOWABLE) <= set(self.terms.allowed)
        words = list(SHELL) if is_open else shut_in(self.scratch, self._held, SHELL)
        return TrialStart(self, self._number, words, cut, has_steps=has_steps)


def written_at(file: tuple[str, int, int, int], place: Path, marks: Sequence[WorkMark]) -> float:
    """When what was copied of a file was written, or got its name: by the clock of marks.

    Only where no Python is seen, the file's own times tell of names: they change as well when
    another name of the file is removed.
    """
    _, _, changed, number = file
    ahead = time.time() - time.monotonic()
    named = [
        mark.at
        for mark in marks
        if mark.kind == "done"
        and place.is_relative_to(mark.path)
        and mark.at > changed / 1e9 - ahead
    ]
    try:
        now = place.stat()
    except OSError:
        return changed / 1e9 - ahead
    if (now.st_mtime_ns, now.st_ino) != (changed, number) or (marks and not named):
        return changed / 1e9 - ahead
    return max(named, default=now.st_ctime_ns / 1e9 - ahead)


class TrialStart:
    """One start of the command. Only Python leaves `marks`; of its saves, `copies` were copied, each
    counted once."""

    def __init__(
        self, ground: TrialGround, number: int, words: Sequence[str], cut: int, *, has_steps: bool
    ) -> None:
        scratch, spec, self._ground, self._number = ground.scratch, ground.spec, ground, number
        self.folder = unpacked(ground.archive, scratch / f"job-{number}", ground.terms.changed)
        self._given = set(listing(self.folder))
        self._written_places = WrittenPlaces(self.folder)
        self.checkpoint, seen = scratch / f"checkpoint-{number}", scratch / f"seen-{number}"
        self.outputs = scratch / "outputs" / str(number)
        folders = {output_variable(name): self.outputs / name for name in spec.outputs}
        folders[CHECKPOINT_VARIABLE] = self.checkpoint
        for place in (seen, scratch / "tmp", *folders.values()):
            place.mkdir(parents=True, exist_ok=True)

        policy = CheckpointPolicy(str(ground.copies), 1.0, None, 0.0, 1.0)
        task, plan = NodeTask(f"start-{number}"), scratch / "plan"
        self._places = KeptPlaces(ground.keep, self.folder, scratch)
        self._sync = CheckpointSync(policy, task, self.checkpoint, plan, kept=self._places)
        self._sync.restore()

        environment = self._of_machine(number)
        environment |= {variable: str(place) for variable, place in folders.items()}
        roots = (self.folder, self.checkpoint, self.outputs, spec.workdir)
        environment["SPOTCTL_TRIAL_SEEN"] = str(seen)
        environment["SPOTCTL_TRIAL_ROOTS"] = os.pathsep.join(map(str, roots))
        environment["SPOTCTL_TRIAL_CUT"] = str(cut)
        environment["SPOTCTL_TRIAL_STEPS"] = str(int(has_steps))

        self._reader, self.marks = SeenMarks(seen), list[WorkMark]()
        self.printed, self.began = scratch / f"printed-{number}", time.monotonic()
        self.copies, self._saves, self._looked = 0, list[object](), self.began
        self.first_copy = inf
        self._kept: tuple[float, str] | None = None
        ground.watch.turn_to(self.checkpoint)
        self.command = RunningCommand(words, self.folder, environment, self.printed, scratch)

    def _of_machine(self, number: int) -> dict[str, str]:
        """The variables that a machine would set, and those that keep a trial to its folder."""
        ground, spec, terms = self._ground, self._ground.spec, self._ground.terms
        cards = gpus() if GPU in terms.allowed else 0
        several = ground.program.nodes.most > 1
        python_path = filter(None, (str(ground.probe), ground.variables.get("PYTHONPATH", "")))
        return {
            **ground.variables,
            "SPOTCTL_JOB": spec.name,
            "SPOTCTL_RUN": f"{spec.name}-rehearsal",
            "SPOTCTL_ATTEMPT": str(number),
            EVERY_VARIABLE: f"{terms.seconds / _SAVES:g}",
            **node_variables(0, [_HERE], free_port(), may_be_several=several),
            PROCESSES_VARIABLE: str(cards or 1),
            MARK: str(ground.scratch),
            RUN_VARIABLE: ground.program.run,
            "TMPDIR": str(ground.scratch / "tmp"),
            "TORCH_EXTENSIONS_DIR": str(ground.built),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join(python_path),
        }

    def look(self, *, is_over: bool = False) -> None:
        """Notes what was done since the last look, and copies a checkpoint, as a machine does until
        its end.
        """
        self.marks = self._reader.all()
        if self._kept is not None:
            # What a save has may be seen after it was copied.
            self._ground.kept = (self.marks, *self._kept)

        self._ground.watch.look()

        now = time.monotonic()
        # No machine copies what it was ended in the middle of.
        is_over |= any(mark.kind == "cut" for mark in self.marks)
        keeps_none = self._ground.program.checkpoint is None
        if is_over or keeps_none or now - self._looked < _STABLE_SECONDS:
            return

        if self._ground.terms.finds_places and self._number == 1:
            began = [mark.at for mark in self.marks if mark.kind == "step" or is_progress(mark)]
            # A script that is not seen to work has to begin somewhere.
            since = min(began) + time.time() - now if began else 0.0
            self._places.places = self._written_places.needed(since - _CLOCK_SECONDS)

        is_copied = self._sync.look()
        self._looked = now
        if not is_copied:
            return

        self._ground.keep, self._ground.logs = self._places.places, self._written_places.logs
        # The save that was copied: the last that was begun before its files were written.
        self.marks = self._reader.all()
        times = dict[str, float]()
        for file in self._sync.copied:
            place = self._sync.source(file[0])
            times[str(place)] = written_at(file, place, self.marks)
        written = max(times.values())
        until, folders = written + _CLOCK_SECONDS, [str(self.checkpoint)]
        folders += [str(self.folder)] if self._places.places else []
        work = [mark for mark in self.marks if is_progress(mark)]
        # Of what was being written, the copy has what was there before.
        saves = [
            mark
            for mark in work
            if mark.path.startswith(tuple(folders))
            and mark.at <= min(until, times.get(mark.path, until) + _CLOCK_SECONDS)
        ]

        # A save of several files may be copied in parts, and is one save.
        state = saves[-1].position if saves else written
        if work and state not in self._saves:
            self._saves.append(state)
            self.copies += 1
            self.first_copy = min(self.first_copy, now)

        logs = (*script_watch.NO_SAVES, *self._ground.logs)
        by_time = sorted(self._sync.copied, key=lambda file: (not file[0].endswith(logs), file[2]))
        newest = by_time[-1][0].removeprefix(f"{KEPT}/")
        self._kept = (saves[-1].at if saves else written, newest)
        self._ground.kept = (self.marks, *self._kept)

    def shows_what_follows(self) -> bool:
        """Whether weights, if any are seen, were seen after those of the save that was copied."""
        with_weights = [mark for mark in marks_of_work(self.marks)[0] if mark.weights]
        return not with_weights or with_weights[-1].at > self._ground.kept[1]

    def has_worked(self) -> bool:
        """Whether a step or a save in a loop was seen."""
        return any(mark.kind == "step" or is_progress(mark) for mark in self.marks)

    def is_importing(self) -> bool:
        """Whether it does not work yet, and was seen to import modules a moment ago."""
        imports = [mark.at for mark in self.marks if mark.kind in ("start", "import")]
        is_recent = bool(imports) and time.monotonic() - imports[-1] < _IMPORTING_SECONDS
        return is_recent and not self.has_worked()

    @property
    def own_saves(self) -> list[WorkMark]:
        """Saves that the next machine does not get."""
        if self._places.places:
            return []
        return [
            mark
            for mark in self.marks
            if is_progress(mark) and mark.path.startswith(str(self.folder))
        ]

    def saved(self) -> tuple[str, ...]:
        """Globs of the files in the job's folder that it saved, and of the folders of each save,
        from the most frequent; the best of its states are no newest ones."""
        below, counts = self.folder.as_posix() + "/", dict[str, int]()
        began = min((mark.at for mark in self.marks if is_progress(mark)), default=inf)
        for mark in self.marks:
            is_save = mark.kind in ("save", "done") and mark.at >= began
            # What is written under another name at first has its own in the end.
            if is_save and mark.path.startswith(below) and Path(mark.path).is_file():
                glob = self._written_places.glob(Path(mark.path.removeprefix(below)))
                counts[glob] = counts.get(glob, 0) + 1
        globs = sorted(counts, key=counts.__getitem__, reverse=True)
        # Where each save makes a folder of several files, the script is told the folder.
        above = [Path(glob).parent for glob in globs]
        folders = [folder.as_posix() for folder in above if "*" in folder.name]
        several = [folder for folder in folders if folders.count(folder) > 1]
        best = [glob for glob in globs if "best" in Path(glob).name]
        others = [glob for glob in globs if glob not in best]
        return tuple(dict.fromkeys([*several, *others, *folders, *best]))

    def models(self) -> set[Path]:
        """The files of the job's folder to which it saved weights while it worked, and the folders
        above them."""
        marks = [mark for mark in self.marks if is_progress(mark) and mark.weights]
        files = [Path(mark.path) for mark in marks if mark.path.startswith(f"{self.folder}/")]
        below = [file.relative_to(self.folder) for file in files]
        return {part for file in below for part in (file, *file.parents[:-1])}

    def changed_file(self) -> str:
        """The newest file of the job's folder that was changed since the start; logs do not
        count."""
        files = [file for file in listing(self.folder) if file not in self._given]
        files = [file for file in files if not file[0].endswith(script_watch.NO_SAVES)]
        files = [file for file in files if "tfevents" not in file[0]]
        return max(files, key=itemgetter(2))[0] if files else ""

    @property
    def outside(self) -> list[str]:
        """Places outside of the job's folder to which the script saves, or tries to."""
        return list(dict.fromkeys(mark.path for mark in self.marks if mark.kind == "outside"))

    def last_line(self) -> str:
        """The line that says why it ended, and the cure that PyTorch says only many lines on."""
        text = _COLOURS.sub("", self.printed.read_text(errors="replace"))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if _ERROR.match(line)]
        said = (errors or lines or ["it printed nothing"])[-1][:_LONGEST_QUOTE]

        own = [place for place in _FRAME.findall(text) if place[0].startswith(str(self.folder))]
        if own and errors:
            where = f"{Path(own[-1][0]).relative_to(self.folder)}:{own[-1][1]}"
            said = f"{where}: {said}"
            if "UnpicklingError" in said and "weights_only" in text:
                said = f"{where}: {ONLY_WEIGHTS}; add weights_only=False on that line"
        spec = self._ground.spec
        return hidden(said.replace(str(self.folder), str(spec.workdir)), secrets_of(spec).values())
