"""Random fault schedules with measures against stragglers, on machines that are slow at random.

`python -m tests.agileml.straggler_faults 0 2000` runs 2,000 schedules. Each has nodes that join, are evicted, killed or
suspected at random, and must end with the model of the undisturbed run, bit for bit. A schedule depends on its seed
alone.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor

from agileml.policies.stragglers import Stragglers
from tests.agileml.schedules import Schedule

ALL = Stragglers(reassign=True, balance_servers=True)


def played(seed: int) -> tuple[int, int, str]:
    """Runs one schedule: the items that other workers than their owners did, the bytes that moved, and what failed."""
    schedule = Schedule(seed, target=None, stragglers=ALL)
    try:
        outcome = schedule.run()
    except Exception as error:  # noqa: BLE001 - every exception is a finding
        return 0, 0, f"seed {seed}, {schedule.target}: {type(error).__name__}: {error}"[:400]
    sums = [one.sums for one in outcome.log]
    return sum(one.helped_items for one in sums), sum(one.moved_bytes for one in sums), ""


def main(first: int, last: int) -> int:
    """Runs the schedules of these seeds; prints what they did and which failed."""
    with ProcessPoolExecutor() as pool:
        ended = list(pool.map(played, range(first, last), chunksize=10))
    failed = [why for *_, why in ended if why]
    lent, moved = [items for items, _, why in ended if not why], [size for _, size, why in ended if not why]
    print(f"seeds {first} to {last - 1}: {len(lent)} schedules ended with the undisturbed model;")
    print(f"in {sum(map(bool, lent))} of them {sum(lent)} items were done by other workers than their owners,")
    print(f"in {sum(map(bool, moved))} of them partitions moved away from slow servers")
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
