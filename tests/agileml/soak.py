"""Continuous chaos on real processes: joins, warnings, SIGKILLs of nodes of both kinds and of the
controller.

`python -m tests.agileml.soak 1800` runs for half an hour, prints the resources of the processes
once a minute, and compares the model with the reference, bit for bit.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from statistics import median_low

import numpy as np

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Act, Evict, Join, KillController, RunningMachine
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, Trained, TrainingJob
from agileml.reference import model_digest, run
from agileml.roles.node import JobSettings
from agileml.trainer import ParamView
from tests.agileml.engines.jobs import processes
from tests.agileml.toys import Decades

LENGTHS = (8,) * 16
MAX_MACHINES, FEWEST_TRANSIENT = 7, 2
PAUSES = (0.2, 1.5)
"""Least and most seconds between two events."""

PROCESSES_PER_MACHINE = 2
"""The node and its heartbeat."""

SAMPLE_EVERY = 1.0
PRINT_EVERY = 60
"""Samples between two printed lines: one minute."""


class Paced(Decades):
    """Sleeps in every chunk, so that the reference run can repeat all clocks of half an hour."""

    def __init__(self, pause: float = 0.0) -> None:
        super().__init__(LENGTHS, chunk=4)
        self.pause = pause

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        time.sleep(self.pause)
        super().step(shard, lo, hi, params, clock, rng)


@dataclass(frozen=True)
class Resources:
    """What a job's processes use, at most, and how many more there are than its machines need."""

    seconds: float
    surplus: int
    descriptors: int
    mebibytes: float
    own_descriptors: int
    files: int
    written: float
    """Total size of the files in MiB."""

    @classmethod
    def of(cls, folder: Path, seconds: float, machines: int) -> Resources:
        """Measures the processes whose command line contains the folder, while this many machines
        run.
        """
        pids = processes(str(folder))
        used = [(_descriptors(pid), _mebibytes(pid)) for pid in pids]
        most = [max(column, default=0) for column in zip(*used, strict=True)] or [0, 0]
        sizes = [_size(path) for path in folder.rglob("*")]
        surplus = max(0, len(pids) - PROCESSES_PER_MACHINE * machines)
        return cls(
            seconds,
            surplus,
            int(most[0]),
            most[1],
            _descriptors("self"),
            len(sizes),
            sum(sizes) / (1 << 20),
        )


def _descriptors(pid: str) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        # The process has just been killed.
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
    return next(
        (int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS")),
        0.0,
    )


@dataclass
class Storm:
    """A script of continuous random faults from a seed, which also samples resources."""

    folder: Path
    seed: int
    on_sample: Callable[[Resources], None] = lambda _: None
    samples: list[Resources] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)
    started: int = 0
    """Number of machines started so far."""
    _next: float = 1.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        """The next fault, if it is due."""
        self.started = max([self.started, *(int(one.name[1:]) + 1 for one in machines)])
        # Until the first clock, machines start: their processes are counted once they have.
        if clock and (not self.samples or seconds >= self.samples[-1].seconds + SAMPLE_EVERY):
            self.samples.append(Resources.of(self.folder, seconds, len(machines)))
            if len(self.samples) % PRINT_EVERY == 1:
                self.on_sample(self.samples[-1])
        if seconds < self._next:
            return ()
        self._next = seconds + self._chance.uniform(*PAUSES)
        act = self._act(machines)
        self.events[type(act).__name__] = self.events.get(type(act).__name__, 0) + 1
        return (act,)

    def _act(self, machines: Sequence[RunningMachine]) -> Act:
        chance = self._chance
        transient = [one.name for one in machines if not one.reliable]
        unwarned = [one.name for one in machines if not one.reliable and not one.warned]
        if len(unwarned) < FEWEST_TRANSIENT:
            return Join(chance.randint(1, MAX_MACHINES - 1 - len(unwarned)))
        what = chance.choices(
            ["join", "evict", "kill", "kill reliable", "kill controller"], [4, 5, 5, 1, 2]
        )[0]
        match what:
            case "evict":
                return Evict(self._some(unwarned), chance.choice([0.0, 0.3, 3.0]))
            case "kill":
                return Evict(self._some(transient), None)
            case "kill reliable":
                return Evict(tuple(one.name for one in machines if one.reliable)[:1], None)
            case "kill controller":
                return KillController()
        return Join(1 if len(machines) < MAX_MACHINES else 0)

    def _some(self, names: list[str]) -> tuple[str, ...]:
        """One, half or all of the names."""
        count = self._chance.choice([1, 1, -(-len(names) // 2), len(names)])
        return tuple(self._chance.sample(names, count))


def soak(storm: Storm, stopping: Stopping, pause: float = 0.002) -> Trained:
    """Trains under continuous faults."""
    source = TrainerSource("tests.agileml.soak:Paced", {"pause": pause})
    settings = JobSettings(partitions=8, deterministic=True, loss_sample=0)
    # A killed process is detected by its broken connections; heartbeats may be late on a busy
    # computer.
    job = TrainingJob(source, 1, 4, stopping, settings, heartbeat_timeout=20.0, checkpoint_every=5)
    clocks = 0

    def listen(iteration: Iteration) -> None:
        nonlocal clocks
        assert iteration.clock == clocks + 1, f"clock {iteration.clock} follows {clocks}"
        clocks = iteration.clock

    return LocalEngine().run(job, storm, listen)


def growth(samples: Sequence[Resources]) -> Resources:
    """Growth of the medians from the first third of the samples to the last; single samples meet
    joins and kills.
    """
    third = max(1, len(samples) // 3)
    first, last = samples[:third], samples[-third:]
    return Resources(
        *(
            median_low([getattr(one, each.name) for one in last])
            - median_low([getattr(one, each.name) for one in first])
            for each in fields(Resources)
        )
    )


def main(seconds: float, seed: int) -> int:
    """Runs one job under faults and prints samples and a summary."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        tempfile.tempdir = name
        storm = Storm(Path(name), seed, _print_sample)
        trained = soak(storm, Stopping(seconds=seconds))
        left = [*processes(name), *Path(name).iterdir()]
    more = growth(storm.samples)
    same = model_digest(trained.model) == model_digest(run(Paced(), trained.clocks, 0))
    _print(
        f"{trained.clocks} clocks, {trained.evictions} evictions, {trained.failures} failures of "
        f"{storm.started}"
    )
    _print(f"machines, {storm.events}")
    _print(
        f"growth from the first to the last third: {more.surplus:+} processes beyond the machines',"
        f" {more.descriptors:+} descriptors,"
    )
    _print(
        f"  {more.mebibytes:+.1f} MiB, {more.own_descriptors:+} descriptors of the provider, "
        f"{more.files:+} files of"
    )
    _print(f"  {more.written:+.1f} MiB; left behind: {len(left)}")
    _print(
        f"counters {trained.counters}; the model is {'that' if same else 'NOT that'} of the "
        "undisturbed run"
    )
    return 0 if same and not left and trained.failures <= storm.started else 1


def _print_sample(sample: Resources) -> None:
    _print(
        f"{sample.seconds:7.0f} s {sample.surplus:3} processes beyond the machines', at most"
        f" {sample.descriptors:3} descriptors and {sample.mebibytes:6.1f} MiB each;"
        f" {sample.own_descriptors} of the provider; {sample.files} files of"
        f" {sample.written:.1f} MiB"
    )


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
