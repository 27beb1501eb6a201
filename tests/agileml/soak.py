"""Continuous chaos on real processes: joins, warnings, SIGKILLs of nodes of both kinds and of the controller.

`python -m tests.agileml.soak 1800` goes on for half an hour, prints once a minute what the processes hold, and holds
the model against the undisturbed one, bit for bit.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.local import LocalEngine
from agileml.engines.script import Act, Evict, Join, KillController, KillNodes, Machine
from agileml.job import Job, Trained
from agileml.reference import model_digest, run
from agileml.roles.node import JobSettings
from agileml.stopping import Stopping
from agileml.trainer import ParamView
from tests.agileml.engines.jobs import processes
from tests.agileml.toys import Decades

LENGTHS = (8,) * 16
MOST_MACHINES, FEWEST_TRANSIENT = 7, 2
CALM = (0.2, 1.5)
"""Seconds between two things that happen: at least, at most."""

SAMPLE_EVERY = 5.0
TOLD_EVERY = 12
"""Samples: once a minute."""


class Paced(Decades):
    """Takes its time over a chunk, so that half an hour is not so many clocks that nobody can do them again."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__(LENGTHS, chunk=4)
        self.pause = pause

    def step(self, shard: range, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator) -> None:
        time.sleep(self.pause)
        super().step(shard, lo, hi, params, clock, rng)


@dataclass(frozen=True)
class Holdings:
    """What the processes of a job hold at a moment: how many they are, and the most any of them has."""

    seconds: float
    processes: int
    descriptors: int
    mebibytes: float
    own_descriptors: int
    files: int
    written: float
    """Mebibytes of all files."""

    @classmethod
    def of(cls, folder: Path, seconds: float) -> Holdings:
        """Looks at the processes whose command line names the folder."""
        found = processes(str(folder))
        held = [(_descriptors(pid), _mebibytes(pid)) for pid in found]
        most = [max(column, default=0) for column in zip(*held, strict=True)] or [0, 0]
        sizes = [_size(path) for path in folder.rglob("*")]
        return cls(seconds, len(found), int(most[0]), most[1], _descriptors("self"), len(sizes), sum(sizes) / (1 << 20))


def _descriptors(pid: str) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        # It has just been killed.
        return 0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _mebibytes(pid: str) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")), 0.0)


@dataclass
class Storm:
    """A script in which something happens all the time, decided by a seed, and that watches meanwhile."""

    folder: Path
    seed: int
    watching: Callable[[Holdings], None] = lambda _: None
    samples: list[Holdings] = field(default_factory=list)
    happened: dict[str, int] = field(default_factory=dict)
    started: int = 0
    """Machines that ever came, as their names are numbered."""
    _next: float = 1.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def due(self, clock: int, seconds: float, machines: Sequence[Machine]) -> Sequence[Act]:  # noqa: ARG002
        """Once in a while something."""
        self.started = max([self.started, *(int(one.name[1:]) + 1 for one in machines)])
        if not self.samples or seconds >= self.samples[-1].seconds + SAMPLE_EVERY:
            self.samples.append(Holdings.of(self.folder, seconds))
            if len(self.samples) % TOLD_EVERY == 1:
                self.watching(self.samples[-1])
        if seconds < self._next:
            return ()
        self._next = seconds + self._chance.uniform(*CALM)
        act = self._act(machines)
        self.happened[type(act).__name__] = self.happened.get(type(act).__name__, 0) + 1
        return (act,)

    def _act(self, machines: Sequence[Machine]) -> Act:
        chance = self._chance
        transient = [one.name for one in machines if not one.reliable]
        unwarned = [one.name for one in machines if not one.reliable and not one.warned]
        if len(unwarned) < FEWEST_TRANSIENT:
            return Join(chance.randint(1, MOST_MACHINES - 1 - len(unwarned)))
        what = chance.choices(["join", "evict", "kill", "kill reliable", "kill controller"], [4, 5, 5, 1, 2])[0]
        match what:
            case "evict":
                return Evict(self._some(unwarned), chance.choice([0.0, 0.3, 3.0]))
            case "kill":
                return KillNodes(self._some(transient))
            case "kill reliable":
                return KillNodes(tuple(one.name for one in machines if one.reliable)[:1])
            case "kill controller":
                return KillController()
        return Join(1 if len(machines) < MOST_MACHINES else 0)

    def _some(self, names: list[str]) -> tuple[str, ...]:
        """One of them, half or all."""
        count = self._chance.choice([1, 1, -(-len(names) // 2), len(names)])
        return tuple(self._chance.sample(names, count))


def soak(storm: Storm, stopping: Stopping, pause: float = 0.002) -> Trained:
    """Trains in a storm."""
    source = TrainerSource("tests.agileml.soak:Paced", {"pause": pause})
    settings = JobSettings(deterministic=True, loss_sample=0)
    # A killed process is noticed by its connections at once; the machine may be busy.
    job = Job(source, 1, 4, stopping, settings, heartbeat_timeout=20.0, checkpoint_every=5)
    clocks = 0

    def listen(iteration: Iteration) -> None:
        nonlocal clocks
        assert iteration.clock == clocks + 1, f"clock {iteration.clock} came after {clocks}"
        clocks = iteration.clock

    return LocalEngine().play(job, storm, listen)


def growth(samples: Sequence[Holdings]) -> Holdings:
    """By how much the most of each that there was in the last third is above that in the first."""
    third = max(1, len(samples) // 3)
    first, last = samples[:third], samples[-third:]
    return Holdings(
        *(
            max(getattr(one, each.name) for one in last) - max(getattr(one, each.name) for one in first)
            for each in fields(Holdings)
        )
    )


def main(seconds: float, seed: int) -> int:
    """One storm, told once a minute."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        tempfile.tempdir = name
        storm = Storm(Path(name), seed, _say)
        trained = soak(storm, Stopping(seconds=seconds))
        left = [*processes(name), *Path(name).iterdir()]
    more = growth(storm.samples)
    same = model_digest(trained.model) == model_digest(run(Paced(), trained.clocks, 0))
    _tell(f"{trained.clocks} clocks, {trained.evictions} evictions, {trained.failures} failures of {storm.started}")
    _tell(f"machines, {storm.happened}")
    _tell(f"last third against the first: {more.processes:+} processes, {more.descriptors:+} descriptors,")
    _tell(f"  {more.mebibytes:+.1f} MiB, {more.own_descriptors:+} descriptors of the provider, {more.files:+} files of")
    _tell(f"  {more.written:+.1f} MiB; left behind afterwards: {len(left)}")
    _tell(f"counters {trained.counters}; the model is {'that' if same else 'NOT that'} of the undisturbed run")
    return 0 if same and not left and trained.failures <= storm.started else 1


def _say(sample: Holdings) -> None:
    _tell(
        f"{sample.seconds:7.0f} s {sample.processes:3} processes, at most {sample.descriptors:3} descriptors and"
        f" {sample.mebibytes:6.1f} MiB each; {sample.own_descriptors} of the provider; {sample.files} files of"
        f" {sample.written:.1f} MiB"
    )


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
