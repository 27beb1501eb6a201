"""The cost of each strategy for jobs of a type and length, over many starts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.errors import BidBrainError
from bidbrain.gavel.effective_price import Movement
from bidbrain.gavel.pricing.strategies import PlacementRule, PriceBoard, TrainingCost, TrainingJobs, follow, stay


class NoOffer(BidBrainError):
    """A strategy has no offer to choose from."""


@dataclass(frozen=True)
class JobType:
    """A job type's throughput in steps per second on one accelerator of each kind; 0 or absent where it cannot run."""

    name: str
    throughputs: Mapping[str, float]

    def on(self, accelerator: str) -> float:
        """Steps per second; accelerators with more memory (`V100-32GB`) count as equally fast."""
        return self.throughputs.get(accelerator.partition("-")[0].lower(), 0.0)


@dataclass(frozen=True, slots=True)
class PricedJob:
    """One strategy for one job type and length: means over `jobs` starts, per accelerator."""

    job: str
    """Job type."""
    days: float
    """Its length on the baseline accelerator."""
    strategy: str
    """Name of the strategy."""
    jobs: int
    """Number of starts that the means are over."""
    usd: float
    """Mean cost per accelerator."""
    reduction: float
    """Cost of the first strategy as a multiple of this one."""
    hours: float
    """Mean duration."""
    moves: float
    """Mean number of moves."""
    most_moves: int
    """Most moves of a job."""
    moved_usd: float
    """Part of the cost for moving data."""
    offers: Mapping[str, int]
    """Number of jobs that started on each kind of machine."""


@dataclass(frozen=True, slots=True)
class PriceComparison:
    """Strategies to compare, lengths in days on the baseline accelerator, and the number of evenly spread starts."""

    strategies: tuple[PlacementRule, ...]
    days: tuple[float, ...]
    starts: int
    movement: Movement

    def __post_init__(self) -> None:
        if self.starts < 1 or not self.days or not all(isfinite(days) and days > 0 for days in self.days):
            raise NoOffer(
                f"lengths {self.days} from {self.starts} starts: days must be above 0, with at least one start"
            )


def priced(board: PriceBoard, jobs: Sequence[JobType], plan: PriceComparison) -> list[PricedJob]:
    """Every strategy from the same starts. Leaves out a type and length that never ends within the prices.

    The first strategy's accelerator is the baseline for lengths and costs.
    """
    rates = {strategy.name: _rates(board, strategy, jobs) for strategy in plan.strategies}
    cases = [(job, days) for job in range(len(jobs)) for days in plan.days]
    work = np.array([days * 24 * jobs[job].on(plan.strategies[0].accelerator) for job, days in cases])
    best = np.max([rate.max(axis=1) for rate in rates.values()], axis=0)
    latest = board.span - work / best[[job for job, _ in cases]]
    start = np.concatenate([np.linspace(0.0, max(0.0, until), plan.starts) for until in latest])
    owner = np.repeat([job for job, _ in cases], plan.starts)
    courses = []
    for strategy in plan.strategies:
        runs = TrainingJobs(start, np.repeat(work, plan.starts), rates[strategy.name][owner])
        movement = replace(plan.movement, dataset_gb=0.0) if strategy.dataset_everywhere else plan.movement
        courses.append((follow if strategy.moves else stay)(board, runs, movement))
    answers = []
    for case, (job, days) in enumerate(cases):
        whole = slice(case * plan.starts, (case + 1) * plan.starts)
        fitting = _fitting([course.usd[whole] for course in courses])
        part = slice(whole.start, whole.start + fitting)
        if fitting:
            base = float(courses[0].usd[part].mean())
            for strategy, course in zip(plan.strategies, courses, strict=True):
                cost = TrainingCost(
                    course.usd[part],
                    course.moved_usd[part],
                    course.stop[part],
                    course.moves[part],
                    course.first[part],
                )
                answers.append(_summary(board, jobs[job], days, strategy, cost, start[part], base))
    return answers


def _rates(board: PriceBoard, strategy: PlacementRule, jobs: Sequence[JobType]) -> Floats:
    """Throughput of each job type on each offer that the strategy may use; 0 on the others."""
    rates = np.array(
        [
            [
                job.on(offer.accelerator) * offer.useful_share if strategy.may_use(offer) else 0.0
                for offer in board.offers
            ]
            for job in jobs
        ]
    )
    idle = np.flatnonzero(rates.max(axis=1, initial=0.0) <= 0)
    if idle.size:
        machine = f"machine with {'one ' if strategy.single else ''}{strategy.accelerator or 'accelerators'}"
        raise NoOffer(
            f"strategy {strategy.name}: no {machine} in {strategy.home or 'any cloud'} runs {jobs[idle[0]].name}"
            " within the given prices (try another home or baseline, other jobs, or more prices)"
        )
    return rates


def _fitting(costs: Sequence[Floats]) -> int:
    """Number of starts before the first that leads any strategy beyond the end of the prices.

    Dropping single starts instead would favor those in which no slow, cheap machine was chosen.
    """
    late = np.any(np.isnan(costs), axis=0)
    return int(late.argmax()) if late.any() else late.size


def _summary(
    board: PriceBoard,
    job: JobType,
    days: float,
    strategy: PlacementRule,
    course: TrainingCost,
    start: Floats,
    base: float,
) -> PricedJob:
    offers = [board.offers[first] for first in course.first]
    kinds = [f"{offer.market.cloud} {offer.accelerators}x{offer.accelerator}" for offer in offers]
    usd = float(course.usd.mean())
    return PricedJob(
        job=job.name,
        days=days,
        strategy=strategy.name,
        jobs=course.usd.size,
        usd=usd,
        reduction=base / usd,
        hours=float((course.stop - start).mean()),
        moves=float(course.moves.mean()),
        most_moves=int(course.moves.max()),
        moved_usd=float(course.moved_usd.mean()),
        offers={kind: kinds.count(kind) for kind in sorted(set(kinds))},
    )
