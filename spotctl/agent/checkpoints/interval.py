"""How often a program writes a checkpoint: an eviction loses work, and every checkpoint takes time.

With checkpoints of cost C and a mean time M to the next eviction, the best interval is sqrt(2 C M)
(Young 1974; Daly 2006 has the terms beyond it, which matter only where C is near M).
"""

import os
from collections.abc import Mapping
from math import inf, sqrt
from pathlib import Path

from spotctl.agent.files import Watched, replace_json

CHECKPOINT_VARIABLE = "SPOTCTL_CHECKPOINT_DIR"
"""The environment variable with the folder whose files are copied to the next machine."""

PLAN_VARIABLE = "SPOTCTL_CHECKPOINT_PLAN"
"""The environment variable with the path of the plan, a file with the seconds between checkpoints
(`every`) and those that one is assumed to take (`cost`). It is replaced when a checkpoint's cost is
measured."""


def best_interval(cost: float, life: float, longest: float) -> float:
    """Time between checkpoints, in the unit of the arguments: at least `cost`, and otherwise at
    most `longest`.

    >>> best_interval(2.0, 100.0, 3600.0)
    20.0
    """
    return max(cost, min(sqrt(2 * cost * life), longest)) if life < inf else max(cost, longest)


def write_plan(path: Path, every: float, cost: float) -> None:
    """Writes the file that the program reads."""
    replace_json(path, {"every": every, "cost": cost})


class CheckpointPlanReader:
    """Reads the plan for the program; a read costs one look at a time stamp."""

    def __init__(self, path: Path) -> None:
        self._plan = Watched(path, lambda values: float(values["every"]))

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "CheckpointPlanReader | None":
        """The reader of the file that the environment names; None if there is no name."""
        path = environment.get(PLAN_VARIABLE)
        return cls(Path(path)) if path else None

    def every(self) -> float | None:
        """Seconds between checkpoints, as of now; None without a plan."""
        return self._plan.value()
