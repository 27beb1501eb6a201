"""`Tracker`: one run in an experiment tracker, and the points that it gets, from the run's events and its views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from bidbrain.billing import usd
from pricing_data.units import SECOND
from spotctl.files.job.spec import JobSpec
from spotctl.home.errors import BadRequest
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.log_row import LogRow
from spotctl.log.state import RunState
from spotctl.show.runs.run_view import RunView

LOSS = "loss"

PREFIX = "spotctl/"
"""The names of everything else begin with it, next to what the user's script logs."""

ViewAt = Callable[[RunState, int], RunView]
"""The view of a run in a state, at a moment of the run's clock."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The description of a run that a tracker gets once: `about` are the job's settings, `folder` is for its files."""

    job: str
    run: str
    started: int
    about: Mapping[str, str]
    tags: Mapping[str, str]
    folder: Path


class Tracker(Protocol):
    """A run in a tracker. Its methods may wait for a server, and raise what the tracker's library raises."""

    @property
    def events(self) -> int:
        """The number of the run's events whose points the tracker has, from this process or an earlier one."""

    def send(self, points: Sequence[Point], events: int) -> None:
        """Adds points; with them, it has those of this number of events."""

    def end(self, outcome: str, at: int) -> None:
        """Says how the run has ended."""

    def leave(self) -> None:
        """Stops adding points; the run may go on."""


def check_installed(spec: JobSpec) -> None:
    """BadRequest: the job names a tracker whose library is missing here."""
    for name in spec.track:
        if find_spec(name) is None:
            raise BadRequest(f"{spec.name}: track: {name} is not installed: pip install {name}, or remove track")


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a moment of the run's clock. `step` is the clock of a loss, else seconds since the run began."""

    name: str
    value: float
    step: int
    at: int


def points_of(before: RunState, rows: Sequence[LogRow], view_at: ViewAt) -> tuple[RunState, list[Point]]:
    """The state after the events, and their points: each loss, and cost and machines whenever the machines change."""
    state, points = before, list[Point]()
    for row in rows:
        earlier, state = state, fold([row], state)
        if isinstance(row.event, ev.Progressed):
            # Commands report no clocks.
            if state.work.attempt is None and row.event.loss is not None:
                points.append(Point(LOSS, row.event.loss, row.event.clock, row.at))
        elif state.ended is not None or len(state.alive) != len(earlier.alive) or state.evictions != earlier.evictions:
            points += run_points(view_at(state, row.at))
    return state, points


def run_points(view: RunView) -> list[Point]:
    """The cost of a run by then, and its machines."""
    money = view.money
    amounts = {"spent_usd": money.spent, "committed_usd": money.committed, "on_demand_usd": money.on_demand}
    values = {name: float(usd(amount)) for name, amount in amounts.items() if amount is not None}
    spot = sum(machine.pricing == "spot" for machine in view.machines)
    values |= {"spot_machines": spot, "on_demand_machines": len(view.machines) - spot, "evictions": view.evictions}
    seconds = (view.now - view.started) // SECOND
    return [Point(f"{PREFIX}{name}", value, seconds, view.now) for name, value in values.items()]
