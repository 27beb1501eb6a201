"""Trains a model of 1.5 GiB with one server and states the most memory that all its processes took
together.

    python -m bench.agileml_big [--mib 1536] [--frame-mib 128]

Each of two workers reads and updates all of the model in every clock, so that a worker exchanges
more than a frame may hold with the one server. Memory is the sum of what is resident of every
process, sampled while they run; pages that processes share are counted for each of them.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import QUIET
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Params
from agileml.roles.node import JobSettings
from agileml.trainer import ParamReader, ParamView, Sample
from bench.agileml_throughput import descendants

CLOCKS, PARTITIONS, COLUMNS = 2, 24, 1024
MAX_GIB = 16.0
SAMPLE_SECONDS = 0.05
PATIENCE = 3600.0
"""Seconds until a node counts as lost: a busy computer may take minutes to give out this much
memory."""


@dataclass(frozen=True)
class Large:
    """Every item adds 1 to every number of the model."""

    mib: int
    name: str = "large"

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the only parameter."""
        return (self.mib << 20) // (4 * COLUMNS), COLUMNS

    def init(self, rng: np.random.Generator) -> Params:
        """Zeros, written so that they take memory."""
        del rng
        return {"w": np.full(self.shape, 0.0, np.float32)}

    def shards(self) -> Sequence[range]:
        """One for each worker."""
        return [range(1), range(1)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        """Reads everything, and checks that it is what the earlier clocks have added."""
        del shard, rng
        seen = params.read("w")
        if not (seen[0, 0] == seen[-1, -1] == 2 * (clock - 1)):
            raise ValueError(f"clock {clock} reads {seen[0, 0]} and {seen[-1, -1]}")
        params.update("w", None, np.broadcast_to(np.float32(hi - lo), self.shape))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        """None."""
        del params, sample
        return 0.0


class Memory(threading.Thread):
    """Samples the memory of this process and of all that it has started."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self._over = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        while not self._over.wait(SAMPLE_SECONDS):
            processes = (os.getpid(), *descendants(os.getpid()))
            self.peak = max(self.peak, sum(resident_bytes(process) for process in processes))

    def stop(self) -> int:
        """The highest sum of a sample, in bytes."""
        self._over.set()
        self.join()
        return self.peak


def resident_bytes(process: int) -> int:
    """Memory of a process, with all of the pages that it shares with others."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except OSError:
        return 0


def main() -> int:
    """Returns 1 if the job takes too much memory or its model is wrong."""
    parser = argparse.ArgumentParser(
        prog="bench.agileml_big", description="Trains a large model with one server."
    )
    parser.add_argument("--mib", type=int, default=1536, help="size of the model")
    parser.add_argument("--frame-mib", type=int, default=128, help="largest frame")
    given = parser.parse_args()
    source = TrainerSource(
        f"{__spec__.name if __spec__ else 'bench.agileml_big'}:Large", {"mib": given.mib}
    )
    settings = JobSettings(partitions=PARTITIONS, loss_sample=0, frame_bytes=given.frame_mib << 20)
    stopping = Stopping(clocks=CLOCKS)
    job = TrainingJob(
        source, 1, 1, stopping, settings, heartbeat_timeout=PATIENCE, hang_timeout=PATIENCE
    )
    memory = Memory()
    memory.start()
    began = time.monotonic()

    def done(iteration: Iteration) -> None:
        sums = iteration.sums
        print(
            f"clock {iteration.clock}: {iteration.seconds:.1f} s, "
            f"{iteration.reliable}+{iteration.transient} nodes,"
            f" {sums.pushed / 2**30:.2f} GiB pushed, {sums.pulled / 2**30:.2f} GiB pulled; so far"
            f" {memory.peak / 2**30:.2f} GiB of memory at most",
            flush=True,
        )

    trained = LocalEngine().run(job, QUIET, done)
    peak = memory.stop()
    right = bool((trained.model["w"] == 2 * CLOCKS).all()) and not trained.failures
    print(
        f"{given.mib} MiB with one server, 1+1 nodes, {CLOCKS} clocks in "
        f"{time.monotonic() - began:.0f} s: all"
        f" processes together took at most {peak / 2**30:.2f} GiB, {peak / (given.mib << 20):.1f} "
        f"times the model; the model is {'right' if right else 'wrong'}"
    )
    return 0 if right and peak < MAX_GIB * 2**30 else 1


if __name__ == "__main__":
    raise SystemExit(main())
