"""The local engine: the cost of elasticity and of evictions, compared with checkpoint and restart.

Work is emulated by sleeping, since all nodes share this machine's cores; processes, sockets and
kills are real.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import QUIET, Act, Evict, Join, RunningMachine
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Params
from agileml.policies.stage import Thresholds
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample
from bench.harness import Row, plot_iterations, shown, table

SHARDS, ITEMS = 16, 4
ITEM_SECONDS = 0.03
"""So that an iteration takes 0.48 s on four nodes and 1.92 s on one."""

ROWS, COLUMNS = 64, 1024
PARTITIONS = 4
WARNING_SECONDS = 5.0
REPETITIONS = 5

Floats = NDArray[np.float32]


# -- the job ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Naps:
    """A shard whose items each take a fixed time."""

    number: int

    def __len__(self) -> int:
        return ITEMS


@dataclass(frozen=True)
class Asleep:
    """Every item takes a nap, and reads and updates all of the 256 KiB of parameters.

    With a folder it does what a job without elasticity has to do: at fixed intervals the model is
    written to a file, and a job that is started finds the latest there.
    """

    checkpoints: str = ""
    every: int = 0
    chunk: int = 1
    name: str = "asleep"

    def init(self, rng: np.random.Generator) -> Params:
        """Zeros, or what was saved."""
        del rng
        if self.every and (saved := Path(self.checkpoints)).exists():
            with np.load(saved) as file:
                return {"w": file["w"]}
        return {"w": np.zeros((ROWS, COLUMNS), np.float32)}

    def shards(self) -> Sequence[Naps]:
        """All of the same length."""
        return [Naps(number) for number in range(SHARDS)]

    def step(
        self, shard: Naps, lo: int, hi: int, params: ParamView, clock: int, rng: np.random.Generator
    ) -> None:
        """Sleeps, and adds the same to every row."""
        del rng
        if self.every and shard.number == lo == 0 and clock > 1 and (clock - 1) % self.every == 0:
            _save(Path(self.checkpoints), params.read("w"), clock - 1)
        time.sleep(ITEM_SECONDS * (hi - lo))
        params.read("w")
        params.update("w", None, self._delta)

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None."""
        del params, sample
        return 0.0

    @cached_property
    def _delta(self) -> Floats:
        return np.full((ROWS, COLUMNS), 1e-3, np.float32)


def _save(path: Path, values: Floats, clock: int) -> None:
    part = path.with_suffix(".part.npz")
    np.savez(part, w=values, clock=clock)
    part.replace(path)


def _job(
    reliable: int, transient: int, clocks: int, thresholds: Thresholds | None = None
) -> TrainingJob:
    settings = JobSettings(partitions=PARTITIONS, loss_sample=0)
    source = TrainerSource("bench.agileml_elastic:Asleep")
    return TrainingJob(
        source, reliable, transient, Stopping(clocks=clocks), settings, thresholds or Thresholds()
    )


# -- what happens to it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Later:
    """An action some seconds after a clock has finished; clock 0 is the start."""

    clock: int
    seconds: float
    act: Callable[[Sequence[RunningMachine]], Act]


@dataclass
class Played:
    """A script of a few things, and when they and the clocks were."""

    acts: list[Later] = field(default_factory=list)
    log: list[Iteration] = field(default_factory=list)
    done_at: dict[int, float] = field(default_factory=dict)
    acted_at: list[float] = field(default_factory=list)

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        """The next thing, if it is time."""
        del seconds
        if not self.acts or clock < self.acts[0].clock:
            return ()
        now = time.monotonic()
        if now < self.done_at.get(self.acts[0].clock, 0.0) + self.acts[0].seconds:
            return ()
        self.acted_at.append(now)
        return (self.acts.pop(0).act(machines),)

    def __call__(self, iteration: Iteration) -> None:
        """A clock has finished."""
        self.done_at[iteration.clock] = time.monotonic()
        self.log.append(iteration)

    def seconds(self, first: int, last: int) -> list[float]:
        """Of these clocks."""
        return [iteration.seconds for iteration in self.log if first <= iteration.clock <= last]


def _transient(machines: Sequence[RunningMachine]) -> tuple[str, ...]:
    return tuple(machine.name for machine in machines if not machine.reliable)


def _warn_all(machines: Sequence[RunningMachine]) -> Act:
    return Evict(_transient(machines), WARNING_SECONDS)


def _join_three(machines: Sequence[RunningMachine]) -> Act:
    del machines
    return Join(3)


def _kill_all(machines: Sequence[RunningMachine]) -> Act:
    return Evict(_transient(machines), None)


def _kill_one(machines: Sequence[RunningMachine]) -> Act:
    return Evict(_transient(machines)[:1], None)


def _play(job: TrainingJob, *acts: Later) -> Played:
    played = Played(list(acts))
    LocalEngine().run(job, played, played)
    return played


# -- the cost of being elastic ---------------------------------------------------------------------

EVEN_CLOCKS = 12
WARM_CLOCKS = 2


@dataclass(frozen=True)
class Even:
    """Iterations of a job to which nothing happens."""

    seconds: float
    backup_bytes: int


def _even(job: TrainingJob) -> Even:
    log = _play(job).log[WARM_CLOCKS:]
    return Even(
        statistics.median(iteration.seconds for iteration in log),
        max(iteration.sums.backup for iteration in log),
    )


def _elastic_rows() -> list[Row]:
    """Stage 2 on 1 + 3 nodes, in turns with the same job on plain servers."""
    jobs = {
        "elastic": _job(1, 3, EVEN_CLOCKS),
        "all": _job(4, 0, EVEN_CLOCKS),
        "one": _job(1, 3, EVEN_CLOCKS, Thresholds(math.inf, math.inf)),
    }
    times: dict[str, list[Even]] = {name: [] for name in jobs}
    for _ in range(REPETITIONS):
        for name, job in jobs.items():
            times[name].append(_even(job))
    streamed = max(even.backup_bytes for even in times["elastic"])
    what = (
        f"iteration in stage 2, 1 + 3 nodes, {streamed / 1024:.0f} KiB streamed to the backup, "
        "against"
    )
    return [
        _compared(f"{what} {peer}", _pairs(times["elastic"], times[name]))
        for name, peer in (
            ("all", "servers on all 4 nodes"),
            ("one", "one server for all, on the reliable node"),
        )
    ]


def _pairs(ours: Sequence[Even], others: Sequence[Even]) -> list[tuple[float, float]]:
    return [(own.seconds, other.seconds) for own, other in zip(ours, others, strict=True)]


def _compared(what: str, runs: Sequence[tuple[float, float]]) -> Row:
    """Medians of both, and of the ratio within a run: a machine that is slow for a while is slow
    for both.
    """
    ours, others = (statistics.median(times) for times in zip(*runs, strict=True))
    ratios = [own / other - 1 for own, other in runs]
    return Row(
        what,
        shown(ours),
        shown(others),
        f"{statistics.median(ratios):+.1%} (worst {max(ratios):+.1%})",
    )


# -- events ----------------------------------------------------------------------------------------

JOIN_AFTER, LEAVE_AFTER, LAST = 3, 8, 12


def _comings(join_after: int, leave_after: int, last: int) -> Played:
    """One node works alone, three come, three are warned and go."""
    return _play(
        _job(1, 0, last), Later(join_after, 0.0, _join_three), Later(leave_after, 0.0, _warn_all)
    )


def _coming_rows() -> list[Row]:
    runs = [_comings(JOIN_AFTER, LEAVE_AFTER, LAST) for _ in range(REPETITIONS)]

    def against(clock: int, first: int, last: int) -> list[tuple[float, float]]:
        return [
            (run.seconds(clock, clock)[0], statistics.median(run.seconds(first, last)))
            for run in runs
        ]

    alone, four = (LEAVE_AFTER + 2, LAST), (JOIN_AFTER + 3, LEAVE_AFTER)
    return [
        _compared(
            "three nodes join one: that iteration, against one without them",
            against(JOIN_AFTER + 1, *alone),
        ),
        _compared(
            "the iteration after they came, against later ones on four nodes",
            against(JOIN_AFTER + 2, *four),
        ),
        _compared(
            "all transient nodes warned: that iteration, against one on the node that stays "
            "(paper: +13%)",
            against(LEAVE_AFTER + 1, *alone),
        ),
    ]


# -- failures --------------------------------------------------------------------------------------

FAIL_AFTER = 7
FOUR_NODES = SHARDS * ITEMS * ITEM_SECONDS / 4
CHECKPOINT_EVERY = 5


@dataclass(frozen=True)
class Failure:
    """A loss in the middle of a clock: seconds from the loss to the clock's end, and of a clock on
    the remaining nodes.

    `done` is the share of the clock that had been done.
    """

    until_done: float
    afterwards: float
    done: float

    @property
    def cost(self) -> float:
        """The loss in iterations of the nodes that are left: redone work, detection, and
        recovery."""
        return self.until_done / self.afterwards - (1 - self.done)


def _failure(kill: Callable[[Sequence[RunningMachine]], Act]) -> Failure:
    """Nodes are killed in the middle of a clock."""
    run = _play(_job(1, 3, FAIL_AFTER + 4), Later(FAIL_AFTER, FOUR_NODES / 2, kill))
    lost, began = run.acted_at[0], run.done_at[FAIL_AFTER]
    return Failure(
        run.done_at[FAIL_AFTER + 1] - lost,
        statistics.median(run.seconds(FAIL_AFTER + 2, FAIL_AFTER + 4)),
        (lost - began) / statistics.median(run.seconds(WARM_CLOCKS + 1, FAIL_AFTER)),
    )


def _failure_rows() -> list[Row]:
    restarted = (
        "3 of 4 plain servers killed: a new job on 1 node, from the checkpoint of every "
        f"{CHECKPOINT_EVERY} clocks"
    )
    cases = {
        "all 3 transient nodes killed in mid-clock": lambda: _failure(_kill_all),
        "1 of 3 transient nodes killed in mid-clock": lambda: _failure(_kill_one),
        restarted: _restart,
    }
    return [_lost(what, [case() for _ in range(REPETITIONS)]) for what, case in cases.items()]


def _lost(what: str, runs: Sequence[Failure]) -> Row:
    until = statistics.median(run.until_done for run in runs)
    after = statistics.median(run.afterwards for run in runs)
    cost, worst = statistics.median(run.cost for run in runs), max(run.cost for run in runs)
    label = f"{what}: until that clock is done, against a clock on the remaining nodes"
    return Row(
        label, shown(until), shown(after), f"{cost:+.2f} iterations lost (worst {worst:+.2f})"
    )


def _restart() -> Failure:
    """A job without elasticity: all of it is killed, and a new one continues from the last
    checkpoint.
    """
    with tempfile.TemporaryDirectory() as folder:
        saved = str(Path(folder) / "model.npz")
        first, clocks = _start(saved, 4, FAIL_AFTER + 4)
        times = _until(clocks, FAIL_AFTER)
        time.sleep(FOUR_NODES / 2)
        lost = time.monotonic()
        first.kill()
        first.join()
        with np.load(saved) as file:
            clock = int(file["clock"])
        second, clocks = _start(saved, 1, FAIL_AFTER + 4 - clock)
        redone = _until(clocks, FAIL_AFTER + 4 - clock)
        second.join()
    ends = list(redone.values())
    afterwards = statistics.median(b - a for a, b in pairwise(ends))
    return Failure(
        redone[FAIL_AFTER + 1 - clock] - lost,
        afterwards,
        (lost - times[FAIL_AFTER]) / (times[FAIL_AFTER] - times[FAIL_AFTER - 1]),
    )


def _start(
    saved: str, nodes: int, clocks: int
) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_train_on_plain_servers, args=(there, saved, nodes, clocks))
    process.start()
    there.close()
    return process, here


def _train_on_plain_servers(clock_times: Connection, saved: str, nodes: int, clocks: int) -> None:
    """Plays a job of its own on plain servers, and sends the time at which each clock is done."""
    source = TrainerSource(
        "bench.agileml_elastic:Asleep", {"checkpoints": saved, "every": CHECKPOINT_EVERY}
    )
    job = TrainingJob(
        source, nodes, 0, Stopping(clocks=clocks), JobSettings(partitions=PARTITIONS, loss_sample=0)
    )
    LocalEngine().run(
        job, QUIET, lambda iteration: clock_times.send((iteration.clock, time.monotonic()))
    )


def _until(clocks: Connection, last: int) -> dict[int, float]:
    """When clocks were done, up to a clock."""
    times: dict[int, float] = {}
    while last not in times:
        clock, at = clocks.recv()
        times[clock] = at
    return times


# -- the section -----------------------------------------------------------------------------------


def run() -> str:
    """Measures everything and returns the section."""
    rows = [*_elastic_rows(), *_coming_rows(), *_failure_rows()]
    return table(
        "AgileML in processes: what elasticity costs",
        f"Work is emulated by sleeping {ITEM_SECONDS * 1000:.0f} ms for each of the "
        f"{SHARDS * ITEMS} chunks of an"
        f" iteration; every chunk reads and updates all of {ROWS * COLUMNS * 4 >> 10} KiB of "
        "parameters, which are in"
        f" {PARTITIONS} partitions; bulk synchronous. Medians of {REPETITIONS} repetitions, in "
        "turns; ratios are taken"
        " within a repetition. The fair peer of stage 2 is a plain parameter server on all 4 "
        "nodes, as all of them"
        " would have to be reliable without elasticity; one server for all is stage 1 on the same "
        "nodes.",
        rows,
    )


def main() -> None:
    """`python -m bench.agileml_elastic --out FOLDER`: figure 4.15 in small; 3 nodes join in
    iteration 11, go in 35.
    """
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=Path())
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    played = _comings(10, 34, 45)
    for iteration in played.log:
        print(
            f"{iteration.clock:3} {iteration.seconds:.3f} s  {iteration.reliable} + "
            f"{iteration.transient}"
        )
    alone = statistics.median(played.seconds(36, 45))
    print(f"iteration 35 against those after it: {played.seconds(35, 35)[0] / alone - 1:+.1%}")
    events = "three nodes join in 11 and are warned in 35"
    plot_iterations(
        played.seconds(1, 45), events, "seconds", folder / "agileml_elasticity_local.png"
    )


if __name__ == "__main__":
    main()
