"""Jobs as users write them and markets to plan them on, drawn from lists: by hypothesis, or by a
seed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import ceil
from pathlib import Path
from typing import Protocol, TypeVar
from unittest.mock import patch

import numpy as np

from bidbrain.strategies.names import DEADLINE, OF_JOBS, REGIONS
from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, parse_time
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.resources import Reliable, Resources
from spotctl.files.job.spec import AUTO, JobSpec
from spotctl.files.job.values import Nodes, Range, Within, WorkTime
from spotctl.home.errors import SpotctlError
from spotctl.planning import plan
from spotctl.planning.candidates import may_roam
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.values import GB, Job, JobPlan
from tests.spotctl.planning.worlds import CENT, TYPES, offer, table_of

ZONES = ("a", "b", "c")
LISTED = {name: 5 * CENT * cpus for name, cpus in TYPES.items()} | {"b.large": 23 * CENT}
"""The on-demand price of each type. Four vCPUs of the second family cost more."""
PLACES = tuple(product(TYPES, ZONES))
LAUNCHES = {2016: parse_time("2016-06-15T09:20:00Z"), 2026: parse_time("2026-06-15T09:20:00Z")}
"""When jobs begin: when only the price evicted, and begun hours were billed; and today."""
SHAPES = ("flat", "sawtooth", "steps", "walk")
_ANY = TypeVar("_ANY")


class Pick(Protocol):
    """A draw of one of some values; the simplest come first."""

    def __call__(self, values: Sequence[_ANY], /) -> _ANY: ...


@dataclass(frozen=True)
class Prices:
    """The course of one market's price: its usual level as a share of the on-demand price."""

    shape: str
    level: float
    luck: int

    def series(self, name: str, zone: str, at: int, days: int, last: float) -> PriceSeries:
        """The history that ends a few minutes ago; `last` is what its last price is multiplied
        by."""
        chance = random.Random(f"{self.luck} {name} {zone}")
        first = at - days * DAY
        level = self.level * LISTED[name]
        if self.shape == "flat":
            hours = range(0, days * 24, 6)
            points = [(hour, level) for hour in hours]
        elif self.shape == "sawtooth":
            every, dear = chance.choice([3, 6, 24]), chance.choice([1, 2])
            high = level * chance.choice([2.0, 4.0, 10.0])
            teeth = range(0, days * 24, every)
            points = [
                (hour + shift, price)
                for hour in teeth
                for shift, price in ((0, level), (every - dear, high))
            ]
        elif self.shape == "steps":
            every = chance.choice([12, 48, 240])
            points = [
                (hour, level * chance.choice([0.5, 1.0, 1.0, 2.0]))
                for hour in range(0, days * 24, every)
            ]
        else:
            points, wander = list[tuple[int, float]](), 0.0
            for hour in range(days * 24):
                wander = 0.98 * wander + chance.gauss(0, 0.08)
                spike = 5.0 if chance.random() < 0.005 else 1.0
                points.append((hour, level * spike * 2.718281828**wander))

        times = [first + round(hour * HOUR) for hour, _ in points] + [at - 10 * MINUTE]
        prices = [price for _, price in points]
        prices.append(prices[-1] * last)
        every_price = np.maximum(np.rint(np.array(prices) / 1e5) * 1e5, 1e5)
        return PriceSeries(offer(name, zone), np.array(times), every_price.astype(np.int64))


@dataclass(frozen=True)
class Case:
    """A job on markets. Its lists of types and zones are in the order of the job file; `deadline`
    is in hours after the launch, and `budget` and `value_of_time` are in cents."""

    year: int
    days: int
    prices: tuple[Prices, ...]
    types: tuple[str, ...]
    zones: tuple[str, ...]
    kind: str
    machines: int
    hours: int
    on: str | None
    checkpoint_gb: int | None = None
    reliable: int | None = 0
    deadline: float | None = None
    budget: int | None = None
    value_of_time: int | None = None
    strategy: str = AUTO
    last: float = 1.0

    @property
    def at(self) -> int:
        return LAUNCHES[self.year]

    @property
    def amount(self) -> float:
        """The work in vCPU-hours."""
        return float(self.hours * self.machines * TYPES[self.on or self.types[0]])

    @property
    def series(self) -> tuple[PriceSeries, ...]:
        """The histories of all markets, whatever the job may use."""
        return tuple(
            prices.series(name, zone, self.at, self.days, self.last)
            for (name, zone), prices in zip(PLACES, self.prices, strict=True)
        )

    @property
    def strategies(self) -> list[str]:
        """The strategies that the job may name."""
        roams = may_roam(replace(self.spec, strategy=REGIONS))
        return [
            *OF_JOBS,
            *([DEADLINE] if self.deadline is not None else []),
            *([REGIONS] if roams else []),
        ]

    @property
    def spec(self) -> JobSpec:
        machines = Range(self.machines, self.machines)
        program: Training | Command
        if self.kind == "command":
            checkpoint = None
            if self.checkpoint_gb is not None:
                checkpoint = Checkpoint("s3://bucket/checkpoint", size=self.checkpoint_gb * GB)
            program = Command("python train.py", Nodes(self.machines, self.machines), checkpoint)
        else:
            machines = Range(1, self.machines)
            program = Training("mf", Stop(converged=0.01))

        regions = tuple(f"us-east-1{zone}" for zone in self.zones)
        resources = Resources(
            ("aws",), machines, Reliable(self.reliable), types=self.types, zones=regions
        )
        return JobSpec(
            "job",
            program,
            resources,
            Path("/nowhere"),
            hours=WorkTime(self.hours * HOUR, self.on),
            deadline=None if self.deadline is None else Within(round(self.deadline * HOUR)),
            budget=None if self.budget is None else self.budget * CENT,
            value_of_time=None if self.value_of_time is None else self.value_of_time * CENT,
            strategy=self.strategy,
        )


def drawn(pick: Pick, *, small: bool = False) -> Case:
    """A job and its markets; a `small` job and its short histories are planned in a few seconds."""
    prices = tuple(
        Prices(pick(SHAPES), pick((0.3, 0.1, 0.2, 0.45, 0.7, 1.1)), pick(range(1000)))
        for _ in PLACES
    )
    types = _some(pick, tuple(TYPES))
    zones = tuple(sorted(_some(pick, ZONES)))
    hours = pick((4, 1, 2, 8, 12) if small else (4, 1, 2, 8, 12, 24, 48, 100, 200))
    kind = pick(("command", "training"))
    machines = pick((1, 1, 2, 4)) if kind == "command" else pick((4, 1, 8))
    on_demand = LISTED[types[0]] * machines * hours // CENT
    deadline = pick((None, None, 1.05, 1.2, 1.5, 2.0, 3.0))
    budget = pick((None, None, None, 0.15, 0.3, 0.6, 1.0, 1.5))
    return Case(
        year=pick((2026, 2016)),
        days=pick((2, 1, 3) if small else (14, 1, 3, 7, 30, 60)),
        prices=prices,
        types=types,
        zones=zones,
        kind=kind,
        machines=machines,
        hours=hours,
        on=pick((None, *types)),
        checkpoint_gb=pick((2, None, 100)) if kind == "command" else None,
        reliable=0 if kind == "command" else pick((1, 0, None)),
        deadline=None if deadline is None else ceil(hours * deadline),
        budget=None if budget is None else max(round(on_demand * budget), 1),
        value_of_time=pick((None, None, None, 10, 100)),
    )


def _some(pick: Pick, values: Sequence[str]) -> tuple[str, ...]:
    """One to three of some values, in any order."""
    left, taken = list(values), list[str]()
    for _ in range(pick((1, 2, 3))):
        taken.append(pick(left))
        left.remove(taken[-1])
    return tuple(taken)


def case_of(seed: int, number: int, *, small: bool = False) -> Case:
    """A case that is drawn by a seed."""
    return drawn(random.Random(f"{seed} {number}").choice, small=small)


@lru_cache(64)
def facts(case: Case) -> PlanningFacts:
    """The facts of a case: its markets, and nothing of evictions."""
    clouds = [InstanceType("aws", name, cpus, 2.0 * cpus) for name, cpus in TYPES.items()]
    since = parse_time("2016-01-01")
    listed = [
        OnDemandPrice("aws", "us-east-1", name, "linux", since, usd, "a list")
        for name, usd in LISTED.items()
    ]
    catalog = Catalog(tuple(clouds), tuple(listed))
    snapshot = MarketSnapshot.of(table_of(case.series), catalog, case.at)
    deadline = None if case.deadline is None else case.at + round(case.deadline * HOUR)
    return PlanningFacts((Job(case.spec, deadline),), snapshot)


@lru_cache(64)
def planned(case: Case, *, cures: bool = False) -> JobPlan | SpotctlError:
    """The plan of a case, or why there is none; with `cures`, which take many plans to find, also
    with which changes there would be one."""
    with ExitStack() as stack:
        if not cures:
            stack.enter_context(patch.object(plan, "_cures", return_value=[]))
        try:
            return plan.plan_jobs(facts(case))[0]
        except SpotctlError as refusal:
            return refusal
