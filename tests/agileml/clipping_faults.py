"""Random fault schedules of a trainer whose updates are clipped by the norm of all of them.

`python -m tests.agileml.clipping_faults 0 2000` runs 2,000 schedules; each must end with the
undisturbed model, bit for bit. Two of three strike right after one of the messages by which servers
learn the norm. A schedule depends on its seed alone.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from agileml.params.layout import Array
from tests.agileml.schedules import Schedule
from tests.agileml.targets import CLIPPING, EVENTS, STAGES, Target
from tests.agileml.toys import Decades

AIMS = [Target(stage, event, kind) for kind in CLIPPING for stage in STAGES for event in EVENTS]


class Clipped(Decades):
    """Its updates are far longer than their norm may be, in some clocks more than in others."""

    name = "clipped"
    clip_norm = 20.0

    def apply(
        self, name: str, values: Array, update: Array, slots: Sequence[Array], clock: int
    ) -> None:
        del name, slots, clock
        values += update


def aim_of(seed: int) -> Target | None:
    """The target of a seed; every third leaves it to the schedule."""
    return AIMS[(seed * 2 // 3) % len(AIMS)] if seed % 3 else None


def played(seed: int) -> tuple[bool, str]:
    """Runs one schedule: whether it hit its target, and what failed."""
    schedule = Schedule(seed, Clipped, target=aim_of(seed))
    try:
        schedule.run()
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        return False, f"seed {seed}, {schedule.target}: {type(error).__name__}: {error}"[:400]
    return aim_of(seed) in schedule.met, ""


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints how many struck as aimed, and those that failed."""
    with ProcessPoolExecutor() as pool:
        ended = list(pool.map(played, range(first, last), chunksize=10))
    failed = [why for _, why in ended if why]
    print(
        f"seeds {first} to {last - 1}: {len(ended) - len(failed)} schedules ended with the "
        "undisturbed model;"
    )
    print(f"{sum(hit for hit, _ in ended)} struck right after a message about the norm")
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
