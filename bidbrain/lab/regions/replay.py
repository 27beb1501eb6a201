"""One job played step by step under a policy that sees only what it could have known.

A decision holds for a whole step. A start, anywhere, makes no progress for the start delay, which
is consumed continuously; a refused start is free. Spot that is not up at a step is lost at its
beginning. Moving the checkpoint to another region costs money, and `Rules.moving_time` on top of
the delay. A probe that succeeds costs its minutes. An elastic job takes as many machines as a zone
grants, pays for these, and is slower by as much.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.strategies.regions import Running
from pricing_data.series import Ints
from pricing_data.units import HOUR, MINUTE

_ZONE = re.compile(r"(?P<region>.+?\d+)(?:-?[a-z]|-\d+)$")


def region_of(zone: str) -> str:
    """The region of a zone: `us-east-1` of `us-east-1a`, `us-west1` of `us-west1-b`, `eastus` of
    `eastus-1`.
    """
    if match := _ZONE.match(zone):
        return match["region"]
    if re.search(r"[a-z]-\d$", zone):
        return zone.rsplit("-", 1)[0]
    return zone


@dataclass(frozen=True, slots=True, eq=False)
class ZonesRecord:
    """Zones by step. `granted[z, t]` machines could be held in zone z during step t, at `spot[z,
    t]` dollars per machine-hour; `on_demand[z]` is the price of machines that are always there.
    Steps last `gap` microseconds."""

    zones: tuple[str, ...]
    gap: int
    granted: Ints
    spot: Floats
    on_demand: Floats

    @property
    def steps(self) -> int:
        return int(self.granted.shape[1])

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(map(region_of, self.zones))

    def only(self, zones: Sequence[str]) -> "ZonesRecord":
        """The record of some of the zones, in the given order."""
        rows = [self.zones.index(zone) for zone in zones]
        return ZonesRecord(
            tuple(zones), self.gap, self.granted[rows], self.spot[rows], self.on_demand[rows]
        )

    def window(self, start: int, steps: int) -> "ZonesRecord":
        part = slice(start, start + steps)
        granted = self.granted[:, part]
        spot = self.spot[:, part]
        return ZonesRecord(self.zones, self.gap, granted, spot, self.on_demand)


@dataclass(frozen=True, slots=True)
class RegionJob:
    """Times in microseconds. `machines` are wanted at once; the job works with `at_least` of
    them."""

    work: int
    deadline: int
    delay: int
    checkpoint_gb: float = 0.0
    machines: int = 1
    at_least: int = 1

    def steps(self, gap: int) -> int:
        """Whole steps until the deadline. Written hours are rounded, so a step that is nearly whole
        counts.
        """
        nearest = round(self.deadline / gap)
        if abs(nearest * gap - self.deadline) < gap // 100:
            return nearest
        return self.deadline // gap

    def possible(self, gap: int) -> bool:
        """Whether on-demand machines from the first step meet the deadline."""
        return self.steps(gap) * gap >= self.work + self.delay


@dataclass(frozen=True, slots=True)
class Rules:
    """The charges of a replay, and the time that moves and probes take.

    `published` replays the quirks of the published simulator: the last step is not billed. Taking a
    checkpoint from one region to another costs `usd_per_gb`, or what `pairs` has for the two, and
    takes `moving_time` on top of a start.
    """

    published: bool = False
    usd_per_gb: float = 0.02
    pairs: Mapping[frozenset[str], float] = field(default_factory=dict)
    within_region: float = 0.0
    moving_time: int = 0
    probe: int = MINUTE

    def moving_usd(self, regions: tuple[str, ...], gb: float) -> Floats:
        """The cost of a move from zone to zone."""
        per_gb = np.zeros((len(regions), len(regions)))
        for i, source in enumerate(regions):
            for j, target in enumerate(regions):
                between = self.pairs.get(frozenset((source, target)), self.usd_per_gb)
                per_gb[i, j] = self.within_region if source == target else between
        np.fill_diagonal(per_gb, 0.0)
        return gb * per_gb


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A job that starts at one moment of a record; `record` has only the steps of its window."""

    record: ZonesRecord
    job: RegionJob
    rules: Rules
    start: int

    @classmethod
    def of(cls, record: ZonesRecord, start: int, job: RegionJob, rules: Rules) -> "Window":
        steps = job.steps(record.gap)
        record_of_job = record.window(start, steps)
        return cls(record_of_job, job, rules, start)

    def only(self, zone: str) -> "Window":
        """Restricts the window to a single zone."""
        return replace(self, record=self.record.only([zone]))

    @property
    def moving(self) -> Floats:
        """Dollars of a move from zone to zone."""
        return self.rules.moving_usd(self.record.regions, self.job.checkpoint_gb)


class ZonePolicy(Protocol):
    """Decides for one job, step by step."""

    bills_last_step: bool

    def step(self, field: "Field", /) -> None:
        """Starts, stops and probes through the field; what it leaves running holds for the step."""


@dataclass(slots=True)
class Spending:
    """Dollars so far, and counts."""

    machines: float = 0.0
    moving: float = 0.0
    probing: float = 0.0
    moves: int = 0
    probes: int = 0

    @property
    def total(self) -> float:
        return self.machines + self.moving + self.probing


@dataclass(frozen=True, slots=True)
class PlayedWindow:
    """One window under one policy: the cost of the job, and `course`, what it held at each step,
    None while it waited.

    A policy of one zone is played in each zone by itself.
    """

    policy: str
    window: Window
    bill: Spending
    spot_steps: int
    on_demand_steps: int
    missed: bool
    course: tuple[Running | None, ...]


class Field:
    """All that a policy may see and do: the present step, and its own job."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._record = window.record
        self.moving = window.moving
        self._up = window.record.granted >= window.job.at_least
        self.job = window.job
        self.gap = window.record.gap
        self.zones = window.record.zones
        self.regions = window.record.regions
        self.on_demand = window.record.on_demand
        self.steps = window.record.steps
        several = len(set(self.regions)) > 1
        self.longest_delay = window.job.delay + (window.rules.moving_time if several else 0)
        self.now = 0
        self.work_left = window.job.work
        self.delay_left = 0
        self.machine: Running | None = None
        self.home: int | None = None
        self.bill = Spending()
        self.this_step = Spending()

    @property
    def spot(self) -> Floats:
        """Spot prices of this step, by zone."""
        return self._record.spot[:, self.now]

    @property
    def share(self) -> float:
        """The share of its machines that the job has in this step; a zone may grant fewer than it
        wants.
        """
        if self.machine is None or not self.machine.spot:
            return 1.0
        granted_now = self._record.granted[self.machine.zone, self.now]
        working = min(int(granted_now), self.job.machines)
        return working / self.job.machines

    @property
    def steps_left(self) -> int:
        """Whole steps until the deadline, with this one."""
        return self.steps - self.now

    def move_usd(self, zone: int) -> float:
        """Dollars for taking the checkpoint to a zone."""
        if self.home is None:
            return 0.0
        return float(self.moving[self.home, zone])

    def start_spot(self, zone: int) -> bool:
        """Asks for a spot machine; it replaces what runs. A refusal is free, and changes
        nothing."""
        if not self._up[zone, self.now]:
            return False
        self._start(Running(zone, spot=True))
        return True

    def start_on_demand(self, zone: int) -> None:
        """Replaces the running machine by one on demand."""
        self._start(Running(zone, spot=False))

    def stop(self) -> None:
        """Returns what runs."""
        self.machine = None
        self.delay_left = 0

    def probe(self, zone: int) -> bool:
        """Checks whether spot is available; success costs a few minutes of it, except where the job
        runs.
        """
        up = bool(self._up[zone, self.now])
        self.this_step.probes += 1
        if up and (self.machine is None or self.machine.zone != zone):
            usd_per_hour = float(self.spot[zone])
            usd_of_probe = usd_per_hour * self.job.machines * self._window.rules.probe
            self.this_step.probing += usd_of_probe / HOUR
        return up

    def _start(self, machine: Running) -> None:
        if machine == self.machine:
            return
        self.this_step.moving += self.move_usd(machine.zone)
        moved = self.home is not None and self.home != machine.zone
        self.this_step.moves += moved
        across = moved and self.regions[self.home or 0] != self.regions[machine.zone]
        moving_time = self._window.rules.moving_time if across else 0
        self.delay_left = self.job.delay + moving_time
        self.machine = machine
        self.home = machine.zone

    def begin_step(self) -> None:
        """Takes away spot that is not up any more."""
        self.this_step = Spending()
        if (
            self.machine is not None
            and self.machine.spot
            and not self._up[self.machine.zone, self.now]
        ):
            self.stop()

    def end_step(self) -> None:
        """Lets the step pass: progress, and its price."""
        if self.machine is not None:
            zone = self.machine.zone
            price = self.spot[zone] if self.machine.spot else self.on_demand[zone]
            share = self.share
            usd_per_hour = float(price) * self.job.machines * share
            self.this_step.machines += usd_per_hour * self.gap / HOUR
            lost = min(self.delay_left, self.gap)
            self.delay_left -= lost
            self.work_left -= round((self.gap - lost) * share)

        self.now += 1

    def pay_step(self) -> None:
        for name in ("machines", "moving", "probing", "moves", "probes"):
            so_far = getattr(self.bill, name)
            of_step = getattr(self.this_step, name)
            setattr(self.bill, name, so_far + of_step)


def play(window: Window, policy: ZonePolicy, name: str) -> PlayedWindow:
    """Plays a job to its end, or to its deadline, under the policy of this name."""
    field = Field(window)
    course = list[Running | None]()
    while field.work_left > 0 and field.now < field.steps:
        field.begin_step()
        policy.step(field)
        course.append(field.machine)
        field.end_step()
        if field.work_left > 0 or policy.bills_last_step or not window.rules.published:
            field.pay_step()

    held = [machine for machine in course if machine is not None]
    spot = sum(machine.spot for machine in held)
    on_demand = len(held) - spot
    return PlayedWindow(
        name, window, field.bill, spot, on_demand, field.work_left > 0, tuple(course)
    )
