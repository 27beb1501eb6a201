"""`python -m tests.spotctl.files.public_scripts_run [SCRIPT ...]`: five scripts, with the lines
that a trial of `spotctl init` tries last, and evicted.

Each script gets these lines and no other edit, and is launched on the local market, where a zone's
price rises above every bid again and again, at times that are fitted to the pace of the unchanged
script. Prints a row for each script: the lines changed; the evictions, and how many of them without
warning; the epochs (or batches, or steps) done and how many of them the run repeated; how many were
done on machines that were then evicted, which would be in vain without a checkpoint; and the
outcome.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from pricing_data.units import DAY, SECOND, format_time, parse_time
from spotctl.files.script.reading import applied, read_script
from tests.spotctl.files import public_scripts_data as data

SCRIPTS = Path(__file__).parent / "public_scripts"
SPEED = 120
"""Seconds of the market in one second, the most that init writes."""

START = parse_time("2026-01-25T10:40:00Z")
ZONES = ("sim-west-y", "sim-west-z")
SHORTEST, LONGER, MAX_EVICTIONS = 0.5, 1.3, 12
"""The first machine lives half as long as a start and a tenth of the work take at the measured
pace, and each machine lives longer than the one before: however much the pace changes, some
machines are evicted while they work.
"""

ENOUGH_EVICTIONS, ATTEMPTS = 2, 3
"""The evictions of working machines that a run needs, and how often it is tried, each time after
measuring the pace."""

_BOOT_SECONDS = 3.0
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class PublicScript:
    """A script as people publish it, and what it is given: data, arguments that it offers, and
    variables.

    `mark` matches what the script prints, or writes to the files that `log` names in a folder for
    each start, when one more of `marks` parts of the work is done.
    """

    name: str
    mark: str
    marks: int
    unit: str
    results: Sequence[str]
    arguments: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    modules: Sequence[str] = ()
    prepare: Callable[[Path], None] = data.nothing
    files: Sequence[str] = ()
    fill_in: Mapping[str, str] = field(default_factory=dict)
    log: str = ""

    @property
    def missing(self) -> list[str]:
        return [module for module in self.modules if find_spec(module) is None]

    @property
    def words(self) -> list[str]:
        """The arguments of a start without spotctl."""
        filled = [
            word for name, value in self.fill_in.items() for word in (f"--{name.lower()}", value)
        ]
        return [*filled, *self.arguments.split()]

    def lives(self, folder: Path, said: str) -> list[list[int]]:
        """The marks of each start, in turn; `said` is what `spotctl logs` prints, or what a single
        start prints.
        """
        if self.log:
            paths = sorted(folder.glob(self.log), key=lambda path: (len(str(path)), path))
            texts = [path.read_text() for path in paths]
        else:
            by_machine = dict[str, list[str]]()
            for line in said.splitlines():
                machine = re.match(r"\S+Z (\S+): ", line)
                by_machine.setdefault(machine[1] if machine else "", []).append(line)
            texts = ["\n".join(lines) for lines in by_machine.values()]
        return [[int(number) for number in re.findall(self.mark, text)] for text in texts]


PUBLIC = {
    script.name: script
    for script in (
        PublicScript(
            "imagenet",
            r"Epoch: \[(\d+)\]",
            20,
            "epochs",
            ("checkpoint.pth.tar",),
            "--arch shufflenet_v2_x0_5 --epochs 20 --batch-size 16",
            modules=("torchvision",),
            prepare=data.images,
        ),
        PublicScript(
            "word_language_model",
            r"end of epoch +(\d+)",
            20,
            "epochs",
            ("model.pt", "loop-20.pickle"),
            "--epochs 20 --lr 2",
            # The script was published before torch.load refused to load whole networks.
            {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
            prepare=data.sentences,
            files=("data.py", "model.py"),
        ),
        PublicScript(
            "run_glue",
            r"'loss': .*'epoch': '?(\d+)",
            20,
            "epochs",
            ("model.safetensors",),
            "--num_train_epochs 20 --logging_strategy epoch --report_to none --disable_tqdm true",
            {"HF_HUB_OFFLINE": "1", "HF_HOME": "huggingface"},
            modules=("transformers", "datasets", "accelerate"),
            prepare=data.pairs,
            fill_in={"MODEL_NAME_OR_PATH": "tiny-bert"},
        ),
        PublicScript(
            "autoencoder",
            r"(?m)^\d+,(\d+),",
            100,
            "logged steps",
            ("step-5000.ckpt",),
            # Epochs of 55,000 steps would take hours here; Lightning reads these as defaults of its
            # Trainer.
            variables={
                "PL_TRAINER_LIMIT_TRAIN_BATCHES": "500",
                "PL_TRAINER_LIMIT_VAL_BATCHES": "10",
            },
            modules=("torchvision", "lightning"),
            prepare=data.digits,
            log="lightning_logs/version_*/metrics.csv",
        ),
        PublicScript(
            "out_of_core",
            r"batch (\d+) ",
            60,
            "batches",
            ("classifier.joblib",),
            modules=("sklearn",),
        ),
    )
}


@dataclass(frozen=True)
class Pace:
    """Seconds until the first mark of a start, and between marks."""

    first: float
    between: float


@dataclass(frozen=True)
class Run:
    """A launch: what `launch --json` printed, the number of lines changed, and the marks of each
    start in turn.

    `unwarned` counts evictions without a warning, and `resumed` starts from a checkpoint.
    """

    script: PublicScript
    answer: Mapping[str, Any]
    lines: int
    lives: Sequence[Sequence[int]]
    unwarned: int
    resumed: int
    folder: Path

    @property
    def done(self) -> int:
        return len({mark for life in self.lives for mark in life})

    @property
    def repeated(self) -> int:
        return sum(map(len, self.lives)) - self.done

    @property
    def in_evicted_lives(self) -> int:
        """Marks of machines that were evicted, which a program without a checkpoint would have done
        in vain.
        """
        return sum(map(len, self.lives[:-1]))

    @property
    def costly_evictions(self) -> int:
        """Evictions of machines that had done something."""
        return sum(map(bool, self.lives[:-1]))

    @property
    def has_results(self) -> bool:
        return all((self.folder / "results" / name).exists() for name in self.script.results)

    @property
    def row(self) -> tuple[str, ...]:
        evictions = f"{self.answer['evictions']} ({self.unwarned} without warning)"
        done = f"{self.done} of {self.script.marks} {self.script.unit}"
        cells = (
            self.lines,
            evictions,
            done,
            self.repeated,
            self.in_evicted_lives,
            self.answer["outcome"],
        )
        return (self.script.name, *map(str, cells))


def evicted(script: PublicScript, folder: Path) -> Run:
    """A run with enough evictions. Where the computer has other work, its pace may change after it
    was measured.
    """
    for attempt in range(1, ATTEMPTS + 1):
        (place := folder / f"attempt-{attempt}").mkdir()
        run = launched(script, place)
        if run.costly_evictions >= ENOUGH_EVICTIONS:
            break
    return run


def launched(script: PublicScript, folder: Path) -> Run:
    """A script's whole way in an empty folder: its data, its changed lines, its job, and a launch
    to the end.
    """
    prepared(script, folder)
    pace = pace_of(script, folder)
    lines = change(script, folder)
    (folder / "prices.csv").write_text(prices(script, pace))
    spotctl(folder, "prices", "import", "prices.csv")
    spotctl(folder, "init", f"{script.name}.py", "--force")
    job = folder / "job.yaml"
    job.write_text(edited(job.read_text(), script, pace))
    ended = spotctl(folder, "launch", "job.yaml", "--yes", "--json")
    said = spotctl(folder, "logs", script.name.replace("_", "-")).stdout
    if ended.returncode:
        raise RuntimeError(f"{script.name}: {ended.stderr}\n{said}")
    return Run(
        script,
        json.loads(ended.stdout),
        lines,
        script.lives(folder, said),
        ended.stderr.count("evicted without warning"),
        said.count("resuming from checkpoint"),
        folder,
    )


def prepared(script: PublicScript, folder: Path) -> None:
    for name in (f"{script.name}.py", *script.files):
        shutil.copy(SCRIPTS / name, folder)
    script.prepare(folder)


def change(script: PublicScript, folder: Path) -> int:
    """Changes the lines that a trial of init tries last; returns their number."""
    path = folder / f"{script.name}.py"
    changes = read_script(path, folder).changes
    path.write_text(applied(path.read_text(), changes))
    return len(changes)


def pace_of(script: PublicScript, folder: Path) -> Pace:
    """The pace of the unchanged script, which is started here and ended after its first marks.

    What it has saved is removed, because local machines share the folder of a job.
    """
    before = set(folder.iterdir())
    said, began, seen = folder / "said.txt", time.monotonic(), list[tuple[float, int]]()
    with said.open("wb") as output, started(script, folder, output) as process:
        enough = max(script.marks // 8, 3)
        while process.poll() is None and (not seen or seen[-1][1] < enough):
            time.sleep(_LOOK_SECONDS)
            count = sum(map(len, script.lives(folder, said.read_text())))
            if count > (seen[-1][1] if seen else 0):
                seen.append((time.monotonic() - began, count))
        process.kill()
    if len(seen) < 2:
        raise RuntimeError(f"{script.name} does not run: {said.read_text()}")
    for path in set(folder.iterdir()) - before - {folder / "huggingface"}:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (first, some), (last, more) = seen[0], seen[-1]
    between = (last - first) / (more - some)
    return Pace(max(first - some * between, 0.0), between)


def started(script: PublicScript, folder: Path, output: BinaryIO) -> subprocess.Popen[bytes]:
    command = [sys.executable, f"{script.name}.py", *script.words]
    variables = {**environment(folder), **script.variables}
    return subprocess.Popen(
        command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT
    )


def prices(script: PublicScript, pace: Pace) -> str:
    """Two zones that are the cheaper one in turn: as long as one is cheap, the other costs more
    than any bid.

    Both are cheap for a while, in which a machine that was warned is replaced; then the newer zone
    is the cheaper.
    """
    life, rises = SHORTEST * (_BOOT_SECONDS + pace.first + script.marks / 10 * pace.between), START
    rows = [(START - 20 * DAY, 0, 0.05), (START - 20 * DAY, 1, 5.0)]
    for number in range(1, MAX_EVICTIONS + 1):
        period = round(life * LONGER ** (number - 1) * SPEED) * SECOND
        rises += period
        rows += [
            (rises - period // 4, number % 2, 0.05 - number / 1000),
            (rises, (number + 1) % 2, 5.0),
        ]
    rows += [(START + 10 * DAY, zone, 5.0) for zone in (0, 1)]
    lines = [
        f"{format_time(at)},local,sim-west,{ZONES[zone]},c4.2xlarge,Linux/UNIX,{usd:g}"
        for at, zone, usd in rows
    ]
    return (
        "\n".join(["timestamp,cloud,region,zone,instance_type,product,spot_price", *lines]) + "\n"
    )


def warning(pace: Pace) -> int:
    """Seconds of the market between warning and eviction: long enough for the end of an epoch, as
    loops save there.
    """
    return round(SPEED * (1.5 * pace.between + 0.5))


def edited(job: str, script: PublicScript, pace: Pace) -> str:
    """The job that init has written, with the arguments, and the market to replay."""
    start = f"python {script.name}.py"
    assert start in job
    for name, value in script.fill_in.items():
        job = job.replace(name, value)
    job = job.replace(start, f"{start} {script.arguments}".rstrip())
    seconds = round((pace.first + script.marks * pace.between) * SPEED)
    job = re.sub(r"(?m)^hours: \S+", f"hours: {seconds}s", job)
    job = job.replace("clouds: [local]", f"clouds: [local]\n  zones: [{', '.join(ZONES)}]")
    market = (
        f"speed: {SPEED}, start: {format_time(START)}, warning: {warning(pace)}s, unwarned: 0.5"
    )
    job = re.sub(r"(?m)^local: .*", f"local: {{{market}}}", job)
    job = re.sub(r"(?m)^env: .*\n", "", job)
    variables = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", **script.variables}
    return job + f"env: {json.dumps(variables)}\n"


def environment(folder: Path) -> dict[str, str]:
    """A home of its own, and the Python of this process for the script."""
    own = {"SPOTCTL_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return dict(os.environ) | own | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def spotctl(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spotctl", *words]
    return subprocess.run(
        command, cwd=folder, env=environment(folder), capture_output=True, text=True, check=False
    )


def main(names: Sequence[str]) -> int:
    """Prints a row for each script."""
    if unknown := set(names) - PUBLIC.keys():
        sys.exit(f"unknown script {min(unknown)}: choose from {', '.join(PUBLIC)}")
    print(
        "| script | lines changed | evictions | done | repeated | done on evicted machines | "
        "outcome |"
    )
    print("| --- | ---: | --- | --- | ---: | ---: | --- |")
    failed = False
    for script in [PUBLIC[name] for name in names or PUBLIC]:
        if script.missing:
            print(f"| {script.name} | needs {', '.join(script.missing)} |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            run = evicted(script, Path(folder))
            print(f"| {' | '.join(run.row)} |", flush=True)
            failed |= (
                run.answer["outcome"] != "done"
                or not run.has_results
                or run.costly_evictions < ENOUGH_EVICTIONS
            )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
