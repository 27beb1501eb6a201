"""Single connections between real processes that break, at random moments: each job must end with
the same model.

`python -m tests.agileml.cut_links 0 100` runs 100 jobs. In each, nodes and the job loop break
connections of their own, one at a time: those to other nodes, to the controller, and for blobs.
Which process breaks how many depends on the seed and on the process's name, when and which also on
timing.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Chaos, FaultSchedule
from agileml.engines.local import LocalEngine
from agileml.trainer import ParamView
from tests.agileml.local_faults import (
    CLOCKS,
    LENGTHS,
    STUCK_SECONDS,
    LocalSchedule,
    check,
    undisturbed,
)
from tests.agileml.toys import Paced

MAX_CUTS = 2
"""Connections that a process breaks at most."""

CUTTING = 0.35
"""Probability that a process breaks any: others are replaced, and some processes must last."""

SECONDS = 1.0
"""Time from a process's first step in which it breaks them; a job of these schedules takes about as
long."""

RESET = struct.pack("ii", 1, 0)
"""Ends a TCP connection without a farewell."""


def sockets() -> list[socket.socket]:
    """The sockets of this process, as further handles of them."""
    handles = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - names, not files
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                handles.append(socket.socket(fileno=os.dup(descriptor)))
    return handles


def open_now() -> frozenset[int]:
    """The inodes of this process's sockets."""
    handles = sockets()
    inodes = frozenset(_inode(handle) for handle in handles)
    for handle in handles:
        handle.close()
    return inodes


def _inode(handle: socket.socket) -> int:
    return os.fstat(handle.fileno()).st_ino


def cut_one(chance: random.Random, spared: frozenset[int] = frozenset()) -> None:
    """Breaks a link of this process to another one of its job, which both sides notice; spares
    sockets by inode.
    """
    handles = sockets()
    links = [handle for handle in handles if _is_link(handle) and _inode(handle) not in spared]
    if links:
        chosen = chance.choice(links)
        with suppress(OSError):
            if chance.random() < 0.5:
                chosen.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            chosen.shutdown(
                chance.choice([socket.SHUT_RDWR, socket.SHUT_RDWR, socket.SHUT_WR, socket.SHUT_RD])
            )
    for handle in handles:
        handle.close()


def own_name() -> str:
    """The name of the socket at which this process listens."""
    handles = sockets()
    names = [str(handle.getsockname()) for handle in handles]
    for handle in handles:
        handle.close()
    return min(
        (Path(name).name for name in names if name.endswith(".sock")), default=str(os.getpid())
    )


def _is_link(handle: socket.socket) -> bool:
    """Whether it is connected, and not one of the pairs by which this computer starts processes."""
    try:
        names = str(handle.getpeername()), str(handle.getsockname())
    except OSError:
        return False
    return handle.family == socket.AF_INET or any(name.endswith(".sock") for name in names)


def cut_some(seed: int, name: str, spared: frozenset[int] = frozenset()) -> None:
    """Breaks connections of this process at random moments, on a thread of its own; spares sockets
    by inode.
    """
    chance = random.Random(f"{seed} {name}")
    if chance.random() > CUTTING:
        return
    moments = sorted(chance.uniform(0, SECONDS) for _ in range(chance.randint(1, MAX_CUTS)))

    def cut() -> None:
        began = time.monotonic()
        for moment in moments:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            cut_one(chance, spared)

    threading.Thread(target=cut, daemon=True).start()


class Cutting(Paced):
    """A trainer whose nodes break their own connections from their first step on."""

    def __init__(self, lengths: Sequence[int], chunk: int, seed: int) -> None:
        super().__init__(lengths, chunk)
        self.seed = seed
        self._begun = False

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        if not self._begun:
            self._begun = True
            cut_some(self.seed, own_name())
        super().step(shard, lo, hi, params, clock, rng)


def play(seed: int) -> list[Iteration]:
    """Runs one schedule to its end and compares its model with the reference."""
    log: list[Iteration] = []
    source = TrainerSource(
        "tests.agileml.cut_links:Cutting", {"lengths": LENGTHS, "chunk": 2, "seed": seed}
    )
    job = replace(LocalSchedule(seed, source).job, heartbeat_timeout=2.0)
    # This process, which runs the job loop, may break its link to the controller, but none that is
    # not of the job: a worker of pytest has one to the process that collects results.
    cut_some(seed, "job loop", open_now())
    trained = LocalEngine().run(
        job, FaultSchedule(Chaos.parse("every 4 clocks join 1", seed)), log.append, lambda _: None
    )
    check(trained, log, undisturbed())
    return log


def outcome(seed: int) -> tuple[int, str, int]:
    """The seed, why its schedule failed (or nothing), and how many nodes were lost in it."""
    signal.alarm(STUCK_SECONDS // 5)
    try:
        log = play(seed)
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        return seed, f"{type(error).__name__}: {error}", 0
    finally:
        signal.alarm(0)
    return seed, "", sum("lost" in event for clock in log for event in clock.events)


def _stuck(*_: object) -> None:
    raise TimeoutError("the job has not ended")


def main(first: int, last: int, jobs: int | None = None) -> int:
    """Runs the schedules of these seeds; prints those that failed."""
    signal.signal(signal.SIGALRM, _stuck)
    with ProcessPoolExecutor(jobs) as pool:
        ended = list(pool.map(outcome, range(first, last)))
    failed = [f"seed {seed}: {why}" for seed, why, _ in ended if why]
    lost = sum(lost for _, _, lost in ended)
    lines = [
        *failed,
        f"seeds {first} to {last - 1}: {len(ended) - len(failed)} jobs of {CLOCKS} clocks ended "
        "with the undisturbed",
        f"model, in which {lost} nodes were lost with a connection",
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
