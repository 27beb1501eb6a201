"""Deliberate bugs, to check that the tests detect them.

Each shows in the model, the counters, a violated invariant, or a job that does not end.

`python -m tests.agileml.mutants 300` introduces one bug after another and prints how many of 300
seeds detect it.
"""

from __future__ import annotations

import sys

from tests.agileml.mutants_of_control import OF_CONTROL
from tests.agileml.mutants_of_nodes import OF_NODES
from tests.agileml.mutation import catching

MUTANTS = (*OF_NODES, *OF_CONTROL)


def main(seeds: int, name: str = "") -> int:
    """Prints how many schedules detect each bug, or those with `name` in their name, and the first
    error.
    """
    survivors, chosen = 0, [mutant for mutant in MUTANTS if name in mutant.name]
    for mutant in chosen:
        found = list(catching(mutant, seeds))
        survivors += not found
        how = f"; seed {found[0][0]}: {found[0][1]}"[:100] if found else ""
        sys.stdout.write(f"{mutant.name:<55}{len(found):>4} of {seeds}{how}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} bugs are detected\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:3]))
