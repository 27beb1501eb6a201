"""`python -m tests.spotctl.files.layout_scripts_run [SCRIPT ...]`: each layout of checkpoints,
through five kills.

Each script is given to `spotctl init --try`, and gets the lines that init names and no other edit.
Then the command of the job file runs to its end, once without a kill, and once with five kills
without warning at random moments. Each start is on what stands for a machine in a trial: a new copy
of the folder, with the copied checkpoints. Scripts that take minutes have fewer steps then
(`SHORTER`). Prints a row for each script.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from spotctl.clouds.remote.job_folder import job_archive
from spotctl.files.job.reader import load
from spotctl.files.job.spec import JobSpec
from spotctl.files.script.reading import Change, applied
from spotctl.trials.sandbox import scratch_folder
from spotctl.trials.seen_work import WorkMark, is_progress
from spotctl.trials.starts import TrialGround, TrialStart, TrialTerms

SCRIPTS = Path(__file__).parent / "layout_scripts"
KILLS = 5
SHORTER = {
    "ddpm_toy": ("22000", "1600"),
    "liar_main_shapes": ("default=130", "default=4"),
    "liar_np_mlp": ("45000", "3000"),
    "liar_old_file": ("100001", "6001"),
    "liar_pretrain_ds": ("12000", "1200"),
    "lit_autoencoder": ("max_epochs=150", "max_epochs=20"),
    "newest_glob": ("100001", "6001"),
    "run_classification": ("default=80", "default=10"),
    "run_clm_no_trainer": ("default=75", "default=12"),
    "stream_sgd": ("7000", "800"),
    "titan_train": ("6500", "600"),
    "train_gpt": ("max_iters = 4000", "max_iters = 1500"),
}
"""What is replaced in a script after its trial, so that its work takes seconds."""

_SAVE_SECONDS = 10.0
_LOOK_SECONDS = 0.1
_KILL_AFTER = (0.04, 0.16)
"""Each start works for a random part of the time that the whole work takes, between these."""


@dataclass(frozen=True)
class KilledScript:
    """What init said of a script, and its steps: without a kill, of each start with kills, and of
    these the repeated.

    A script without an optimizer has saves in place of steps. Some save by the clock, so these are
    compared by where their loops stood.
    """

    name: str
    verdict: str
    lines: int
    unit: str
    whole: int
    lives: Sequence[int]
    repeated: int
    outcome: str

    @property
    def row(self) -> str:
        killed = sum(self.lives[:-1])
        cells = [
            self.name,
            self.verdict,
            self.lines,
            f"{self.whole:,} {self.unit}s",
            len(self.lives) - 1,
        ]
        return " | ".join(map(str, [*cells, f"{killed:,}", f"{self.repeated:,}", self.outcome]))


def killed(name: str, folder: Path, random: Random) -> KilledScript:
    """A script's whole way in an empty folder: its trial, its changed lines, its job, and two runs
    to the end.
    """
    path = bring(name, folder)
    said = _init(folder, path.name, "--try")
    changes = [Change(**change) for change in said["changes"]]
    if changes:
        path.write_text(applied(path.read_text(), changes))
        _init(folder, path.name, "--force")
    old, new = SHORTER.get(name, ("", ""))
    path.write_text(path.read_text().replace(old, new))
    spec = load(folder / "job.yaml")
    (whole,), outcome, seconds = _lives(spec, 0, 0.0, random)
    lives = [whole]
    if outcome == "done":
        lives, outcome, _ = _lives(spec, KILLS, seconds, random)
    unit = "step" if any(mark.kind == "step" for mark in whole) else "save"
    counts = [len(life) for life in lives]
    repeated = sum(counts) - len(whole) if unit == "step" else _again(lives)
    verdict = said["tried"]["verdict"]
    return KilledScript(name, verdict, len(changes), unit, len(whole), counts, repeated, outcome)


def bring(name: str, folder: Path) -> Path:
    """Copies a script and its other files into a folder."""
    for file in SCRIPTS.glob(f"{name}.*"):
        shutil.copy(file, folder)
    return folder / f"{name}.py"


def _again(lives: Sequence[Sequence[WorkMark]]) -> int:
    """How many marks stand where the loops had been in an earlier start, or before."""
    count, furthest = 0, tuple[int, ...]()
    for life in lives:
        places = [
            tuple(n for kind, n in mark.position.values() if kind in ("for", "bound"))
            for mark in life
        ]
        count += sum(place <= furthest for place in places)
        furthest = max([furthest, *places])
    return count


def _init(folder: Path, *words: str) -> dict[str, Any]:
    environment = {
        **os.environ,
        "SPOTCTL_HOME": str(folder.with_name("home")),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "spotctl", "init", *words, "--json"]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    script: dict[str, Any] = json.loads(ended.stdout)["script"]
    return script


def _lives(
    spec: JobSpec, kills: int, seconds: float, random: Random
) -> tuple[list[Sequence[WorkMark]], str, float]:
    """The marks of work of each start, how the last one ended, and the seconds in which the last
    one worked.

    `seconds` is the time that the whole work takes.
    """
    with scratch_folder("layouts-") as scratch:
        archive = job_archive(spec.workdir, scratch).path
        ground = TrialGround(
            spec, scratch, archive, {**os.environ, **spec.env}, TrialTerms(_SAVE_SECONDS, ())
        )
        lives = []
        for _ in range(kills):
            start = ground.start()
            if _until(start, seconds * random.uniform(*_KILL_AFTER)) is not None:
                break
            start.command.finish()
            lives.append(start)
        else:
            start = ground.start()
        code = _until(start)
        start.command.finish()
        worked = time.monotonic() - _began(start)
        results = [path for path in start.outputs.glob("*/**/*") if path.is_file()]
        outcome = (
            "done"
            if code == 0 and (results or not spec.outputs)
            else f"{code}: {start.last_line()}"
        )
        works = [[mark for mark in life.marks if mark.kind == "step"] for life in (*lives, start)]
        if not any(works):
            works = [[mark for mark in life.marks if is_progress(mark)] for life in (*lives, start)]
        return [*works], outcome, worked


def _began(start: TrialStart) -> float:
    works = (mark.at for mark in start.marks if mark.kind == "step" or is_progress(mark))
    return next(works, time.monotonic())


def _until(start: TrialStart, seconds: float | None = None) -> int | None:
    """Looks at a start until it has worked for so long, or has ended; its exit code if it has."""
    while (code := start.command.exit_code()) is None:
        start.look()
        if seconds is not None and time.monotonic() - _began(start) > seconds:
            return None
        time.sleep(_LOOK_SECONDS)
    start.look(is_over=True)
    return code


def main(names: Sequence[str]) -> int:
    """Prints a row for each script."""
    known = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    if unknown := set(names) - set(known):
        sys.exit(f"unknown script {min(unknown)}: choose from {', '.join(known)}")
    print(
        "| script | init saw | lines changed | work | kills | done on killed machines | repeated | "
        "outcome |"
    )
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |")
    failed = False
    for name in names or known:
        with tempfile.TemporaryDirectory() as folder:
            (place := Path(folder, "project")).mkdir()
            seen = killed(name, place, Random(name))
            print(f"| {seen.row} |", flush=True)
            failed |= seen.outcome != "done"
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
