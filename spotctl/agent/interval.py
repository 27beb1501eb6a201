"""How often a program writes its checkpoint: so often that an eviction costs little, so seldom that work gets done.

With checkpoints of cost C and a mean time M to the next eviction, the interval that loses least is sqrt(2 C M) (Young
1974; Daly 2006 has the terms beyond it, which matter only where C is near M).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf, sqrt
from pathlib import Path
from typing import Any

from spotctl.agent.files import Watched, replace_json

PLAN_VARIABLE = "SPOTCTL_CHECKPOINT_PLAN"
"""Names the file that says how often; it is replaced when a checkpoint's cost becomes known."""


def best_interval(cost: float, life: float, longest: float) -> float:
    """Time between checkpoints, in the unit of its arguments; never less than one takes, and `longest` at most.

    >>> best_interval(2.0, 100.0, 3600.0)
    20.0
    """
    return max(cost, min(sqrt(2 * cost * life), longest)) if life < inf else max(cost, longest)


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds between checkpoints, and what one is taken to cost."""

    every: float
    cost: float

    def tell(self, path: Path) -> None:
        """Writes it where the program looks."""
        replace_json(path, asdict(self))


class PlanReader:
    """The program's side; it costs a look at a time stamp."""

    def __init__(self, path: Path) -> None:
        self._plan = Watched(path, _plan)

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> PlanReader | None:
        """The reader of the file that the runner names, or None where no runner does."""
        path = environment.get(PLAN_VARIABLE)
        return cls(Path(path)) if path else None

    def every(self) -> float | None:
        """Seconds between checkpoints, as they are wanted now."""
        plan = self._plan.value()
        return None if plan is None else plan.every


def _plan(values: dict[str, Any]) -> Plan:
    return Plan(float(values["every"]), float(values["cost"]))
