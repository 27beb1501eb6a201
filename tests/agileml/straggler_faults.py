"""Random fault schedules with measures against stragglers, on machines that are slow at random.

`python -m tests.agileml.straggler_faults 0 2000` runs 2,000 schedules. Each has nodes that join,
are evicted, killed or suspected at random. It must end with the model that one process computes
from the decisions in its log, bit for bit, or without backup workers with that of the undisturbed
run. A schedule depends on its seed alone.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from unittest.mock import patch

from agileml.policies.stragglers import Stragglers
from agileml.roles.work_exchange import Helping
from tests.agileml.schedules import Schedule

BACKUPS = (1, 2, True, 3, False)
"""Backup workers by seed: some, as many as seem best, more than there often are, and none."""


@dataclass(frozen=True)
class Played:
    """Items that other workers than their owners did, bytes that moved, chunks that were left out;
    what failed.
    """

    lent: int = 0
    moved: int = 0
    dropped: int = 0
    why: str = ""


def played(seed: int) -> Played:
    """Runs one schedule."""
    stragglers = Stragglers(True, True, BACKUPS[seed % len(BACKUPS)])
    schedule = Schedule(seed, target=None, stragglers=stragglers)
    # Clocks of these schedules have few chunks. In half of them workers expect the progress of
    # others nevertheless.
    coarse = patch.object(Helping, "_is_coarse", False) if seed % 4 < 2 else nullcontext()
    try:
        with coarse:
            simulation, _ = schedule.run()
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        return Played(why=f"seed {seed}, {schedule.target}: {type(error).__name__}: {error}"[:400])
    sums = [one.sums for one in simulation.log]
    return Played(
        *(
            sum(getattr(one, of) for one in sums)
            for of in ("helped_items", "moved_bytes", "dropped_chunks")
        )
    )


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints what they did and which failed."""
    with ProcessPoolExecutor() as pool:
        ended = list(pool.map(played, range(first, last), chunksize=10))
    failed = [one.why for one in ended if one.why]
    lent, dropped = [one.lent for one in ended], [one.dropped for one in ended]
    print(
        f"seeds {first} to {last - 1}: {len(ended) - len(failed)} schedules ended with the right "
        "model;"
    )
    print(
        f"in {sum(map(bool, lent))} of them {sum(lent)} items were done by other workers than "
        "their owners,"
    )
    print(
        f"in {sum(bool(one.moved) for one in ended)} of them partitions moved away from slow "
        "servers,"
    )
    print(f"in {sum(map(bool, dropped))} of them {sum(dropped)} chunks were left out")
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
