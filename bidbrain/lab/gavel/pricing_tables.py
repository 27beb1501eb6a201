"""The cost of each strategy for jobs of a type and length, over many starts.

Below it are the tables of chapter 6, as printed, and computed from other prices and throughputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from types import MappingProxyType

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.cost import effective_usd_per_hour
from bidbrain.errors import BidBrainError
from bidbrain.lab.gavel.movement import EgressTariff, Movement
from bidbrain.lab.gavel.pricing_strategies import (
    AcceleratorOffer,
    PlacementRule,
    PriceBoard,
    TrainingCost,
    TrainingJobs,
    follow,
    stay,
)
from pricing_data.market import Market


class NoOffer(BidBrainError):
    """The price analysis cannot be made from its scenario: it has no start or length, or no offer
    fits a job."""


@dataclass(frozen=True)
class JobType:
    """A job type's throughput in steps per second on one accelerator of each kind; 0 or absent
    where it cannot run.
    """

    name: str
    throughputs: Mapping[str, float]

    def on(self, accelerator: str) -> float:
        """Steps per second; accelerators with more memory (`V100-32GB`) count as equally fast."""
        name = accelerator.partition("-")[0].lower()
        return self.throughputs.get(name, 0.0)


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
    """Strategies to compare, lengths in days on the baseline accelerator, and the number of evenly
    spread starts.
    """

    strategies: tuple[PlacementRule, ...]
    days: tuple[float, ...]
    starts: int
    movement: Movement

    def __post_init__(self) -> None:
        if (
            self.starts < 1
            or not self.days
            or not all(isfinite(days) and days > 0 for days in self.days)
        ):
            raise NoOffer(
                f"lengths {self.days} from {self.starts} starts: days must be above 0, with at "
                "least one start"
            )


def priced(board: PriceBoard, jobs: Sequence[JobType], plan: PriceComparison) -> list[PricedJob]:
    """Every strategy from the same starts. Leaves out a type and length that never ends within the
    prices.

    The first strategy's accelerator is the baseline for lengths and costs.
    """
    rates = {strategy.name: _rates(board, strategy, jobs) for strategy in plan.strategies}
    cases = [(job, days) for job in range(len(jobs)) for days in plan.days]
    work_of_cases = [
        days * 24 * jobs[job].on(plan.strategies[0].accelerator) for job, days in cases
    ]
    work = np.array(work_of_cases)
    best_rates = [rate.max(axis=1) for rate in rates.values()]
    best = np.max(best_rates, axis=0)
    job_of_case = [job for job, _ in cases]
    fastest = work / best[job_of_case]
    latest = board.span - fastest
    moments = [np.linspace(0.0, max(0.0, until), plan.starts) for until in latest]
    start = np.concatenate(moments)
    owner = np.repeat([job for job, _ in cases], plan.starts)
    courses = []

    for strategy in plan.strategies:
        work_of_runs = np.repeat(work, plan.starts)
        rates_of_runs = rates[strategy.name][owner]
        runs = TrainingJobs(start, work_of_runs, rates_of_runs)
        movement = (
            replace(plan.movement, dataset_gb=0.0) if strategy.dataset_everywhere else plan.movement
        )
        courses.append((follow if strategy.moves else stay)(board, runs, movement))

    answers = []
    for case, (job, days) in enumerate(cases):
        after = (case + 1) * plan.starts
        whole = slice(case * plan.starts, after)
        # Up to the first start that leads any strategy beyond the end of the prices. Dropping
        # single starts instead would favor those in which no slow, cheap machine was chosen.
        usd_of_courses = [course.usd[whole] for course in courses]
        late = np.any(np.isnan(usd_of_courses), axis=0)
        fitting = int(late.argmax()) if late.any() else late.size
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
                answer = _summary(board, jobs[job], days, strategy, cost, start[part], base)
                answers.append(answer)

    return answers


def _rates(board: PriceBoard, strategy: PlacementRule, jobs: Sequence[JobType]) -> Floats:
    """Throughput of each job type on each offer that the strategy may use; 0 on the others."""
    rates_of_jobs = [
        [
            job.on(offer.accelerator) * offer.useful_share if strategy.may_use(offer) else 0.0
            for offer in board.offers
        ]
        for job in jobs
    ]
    rates = np.array(rates_of_jobs)

    highest = rates.max(axis=1, initial=0.0)
    idle = np.flatnonzero(highest <= 0)

    if idle.size:
        machine = (
            "machine with "
            f"{'one ' if strategy.single else ''}{strategy.accelerator or 'accelerators'}"
        )
        raise NoOffer(
            f"strategy {strategy.name}: no {machine} in {strategy.home or 'any cloud'} runs "
            f"{jobs[idle[0]].name}"
            " within the given prices (try another home or baseline, other jobs, or more prices)"
        )

    return rates


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
    hours = course.stop - start
    mean_moves = course.moves.mean()
    moved_usd = course.moved_usd.mean()
    return PricedJob(
        job=job.name,
        days=days,
        strategy=strategy.name,
        jobs=course.usd.size,
        usd=usd,
        reduction=base / usd,
        hours=float(hours.mean()),
        moves=float(mean_moves),
        most_moves=int(course.moves.max()),
        moved_usd=float(moved_usd),
        offers={kind: kinds.count(kind) for kind in sorted(set(kinds))},
    )


SPEEDUPS: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType(
    {
        "Transformer": {"p100": (3.3, 1.0), "v100": (3.3, 0.8)},
        "A3C": {"p100": (1.2, 0.4), "v100": (2.2, 0.4)},
        "CycleGAN": {"p100": (4.5, 1.4), "v100": (9.3, 1.7)},
        "ResNet-18": {"p100": (4.0, 1.2), "v100": (6.8, 1.2)},
        "ResNet-50": {"p100": (3.7, 1.1), "v100": (9.6, 1.8)},
    }
)
"""Table 6.1: throughput relative to the K80's, plain and per dollar on demand (Google's list
prices).

The underlying batch sizes are not printed.
"""


TRANSFERS: Mapping[str, tuple[float, float, float, float]] = MappingProxyType(
    {
        "ResNet-50": (150, 0.098, 0.0913, 0.00006),
        "BERT-Base": (17, 0.408, 0.0098, 0.00025),
    }
)
"""Table 6.2, with Amazon's prices: the dataset and the model in GB, and the cost of one transfer of
each to the internet as a share of 160 V100-hours."""
TRANSFER_HOURS = 160.0
MODEL_TRANSFERS = 10_000
"""A single model transfer is so small that the paper divides the cost of this many."""

SPOT_DISCOUNTS: Mapping[tuple[str, str, str], float] = MappingProxyType(
    {
        ("aws", "us-east-1", "K80"): 2.7,
        ("aws", "us-east-1", "V100"): 3.3,
        ("azure", "eastus", "K80"): 7.3,
        ("azure", "eastus", "P100"): 8.0,
        ("azure", "eastus", "V100"): 5.1,
    }
)
"""Table 6.3: on-demand price over the lowest spot price of a machine with one accelerator."""

LENGTH_OF_FIGURE_6_5 = 4.0
BEST_REDUCTION = 3.5
BEST_DYNAMIC_REDUCTION = 1.4
MAX_SWITCHES = 3
"""Figure 6.5 (jobs of 4 V100-days: cheapest 1xV100 over dynamic) and Figure 6.6 (multi-cloud over
dynamic)."""

_UNBOUNDED = float("inf")
LIST_TARIFFS_2020: Mapping[str, EgressTariff] = MappingProxyType(
    {
        "aws": EgressTariff(
            ((1, 0.0), (10_000, 0.09), (50_000, 0.085), (150_000, 0.07), (_UNBOUNDED, 0.05)),
            0.02,
            0.01,
        ),
        "azure": EgressTariff(
            ((5, 0.0), (10_000, 0.087), (50_000, 0.083), (150_000, 0.07), (_UNBOUNDED, 0.05)),
            0.02,
            0.0,
        ),
        "gcp": EgressTariff(((1_000, 0.12), (10_000, 0.11), (_UNBOUNDED, 0.08)), 0.01, 0.01),
    }
)
"""List prices of early 2020 for egress from a North American region. With Amazon's free first GB
and $0.918 for a V100-hour they give Table 6.2 of the dissertation to the last digit. Ingress is
free on every cloud."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A computed figure, next to the one printed in the paper, which prints no batch sizes of its
    models.
    """

    table: str
    """Table or figure of the paper."""
    what: str
    """Name of the figure."""
    found: float
    """Value computed here."""
    paper: float | None
    """Value in the paper; null where it prints none."""
    unit: str = "x"
    """Unit of both values."""
    case: str = ""
    """Distinguishes job types that stand for one model of the paper."""


def spot_discounts(
    lowest: Mapping[AcceleratorOffer, float], on_demand_usd: Callable[[Market], float | None]
) -> list[Figure]:
    """Table 6.3: in each region, on-demand over the lowest spot price ever of a machine with one
    accelerator.

    `on_demand_usd` gives a market's list price, or None where it is unknown.
    """
    discounts: dict[tuple[str, str, str], float] = {}
    for offer, usd in lowest.items():
        listed = None
        if offer.accelerators == 1:
            listed = on_demand_usd(offer.market)
        if listed is not None:
            place = (offer.market.cloud, offer.market.region, offer.accelerator)
            largest = discounts.get(place, 0.0)
            discounts[place] = max(largest, listed / usd)

    return [
        Figure(
            "6.3",
            f"{cloud}/{region} {accelerator}: on-demand over spot",
            ratio,
            SPOT_DISCOUNTS.get(place),
        )
        for place, ratio in sorted(discounts.items())
        for cloud, region, accelerator in [place]
    ]


def mean_usd(board: PriceBoard, chosen: Callable[[AcceleratorOffer], bool]) -> float | None:
    """Time-weighted cost of an accelerator-hour on the cheapest of the chosen offers; None if there
    are none.
    """
    among = np.array([chosen(offer) for offer in board.offers])
    if not among.any():
        return None
    spans = np.diff(np.append(board.hours, board.span))
    lowest_usd = board.usd[among].min(axis=0)
    return float(np.average(lowest_usd, weights=spans))


@dataclass(frozen=True, slots=True)
class Effective:
    """Cost of an accelerator-hour on a cloud: its mean price, per hour of lasting work, and with
    the dataset.
    """

    cloud: str
    """The cloud."""
    accelerator: str
    """The accelerator."""
    usd_per_hour: float
    """Mean price of an accelerator-hour."""
    useful_share: float
    """Share of the time whose work evictions do not destroy."""
    effective_usd_per_hour: float
    """Price per hour of work that lasts."""
    usd_with_data: float
    """Price per hour of lasting work, including moving the dataset to that cloud for one job."""
    hours: float
    """Length of the job whose dataset is moved."""


def effective_prices(board: PriceBoard, movement: Movement, hours: float) -> list[Effective]:
    """By cloud and accelerator, on its cheapest offers."""
    effective = []
    kinds = {(offer.market.cloud, offer.accelerator) for offer in board.offers}
    for cloud, kind in sorted(kinds):

        def of_kind(offer: AcceleratorOffer, cloud: str = cloud, kind: str = kind) -> bool:
            return (offer.market.cloud, offer.accelerator) == (cloud, kind)

        usd = mean_usd(board, of_kind)
        useful = (offer.useful_share for offer in board.offers if of_kind(offer))
        share = max(useful)
        assert usd is not None
        loaded = effective_usd_per_hour(usd, share, movement.dataset_usd(cloud), hours)
        effective_usd = effective_usd_per_hour(usd, share)
        effective.append(Effective(cloud, kind, usd, share, effective_usd, loaded, hours))

    return effective


def speedups(jobs: Sequence[JobType], board: PriceBoard) -> list[Figure]:
    """Table 6.1: throughput over the K80's, and the same per dollar where an accelerator was
    cheapest on the board.

    The paper's dollars are Google's on-demand prices.
    """
    figures = []
    usd = {}
    for kind in ("k80", "p100", "v100"):

        def sells(offer: AcceleratorOffer, kind: str = kind) -> bool:
            return offer.accelerator.lower() == kind

        mean = mean_usd(board, sells)
        if mean is not None:
            usd[kind] = mean

    for job in jobs:
        known_models = (model for model in SPEEDUPS if job.name.startswith(model))
        model = next(known_models, job.name)
        for kind in ("p100", "v100"):
            if job.on("k80") > 0 and job.on(kind) > 0 and {"k80", kind} <= usd.keys():
                speedup = job.on(kind) / job.on("k80")
                per_dollar = speedup * usd["k80"] / usd[kind]
                speeds = SPEEDUPS.get(model, {})
                plain, priced = speeds.get(kind, (None, None))
                name = f"{model}, {kind.upper()} over K80"
                speedup_figure = Figure("6.1", f"{name}: throughput", speedup, plain, case=job.name)
                figures.append(speedup_figure)
                dollar_figure = Figure(
                    "6.1", f"{name}: per dollar", per_dollar, priced, case=job.name
                )
                figures.append(dollar_figure)

    return figures


def transfers(v100_usd_per_hour: float, tariff: EgressTariff) -> list[Figure]:
    """Table 6.2: the cost of one transfer to the internet as a share of 160 V100-hours."""
    compute = TRANSFER_HOURS * v100_usd_per_hour
    figures = []
    for model, (dataset_gb, model_gb, dataset_share, model_share) in TRANSFERS.items():
        dataset = tariff.internet_usd(dataset_gb) / compute
        checkpoint = tariff.internet_usd(MODEL_TRANSFERS * model_gb) / MODEL_TRANSFERS / compute
        dataset_figure = Figure("6.2", f"{model}: dataset", 100 * dataset, 100 * dataset_share, "%")
        figures.append(dataset_figure)
        checkpoint_figure = Figure(
            "6.2", f"{model}: checkpoint", 100 * checkpoint, 100 * model_share, "%"
        )
        figures.append(checkpoint_figure)

    return figures


def claims(priced: Sequence[PricedJob]) -> list[Figure]:
    """The totals in the text: largest reductions over the models of Table 6.1, and the number of
    moves per job.
    """
    jobs = [job for job in priced if job.job.startswith(tuple(SPEEDUPS))]
    by_case = {(job.job, job.days, job.strategy): job for job in jobs}
    four_days = [
        job for job in jobs if job.strategy == "dynamic" and job.days == LENGTH_OF_FIGURE_6_5
    ]
    gains = [
        by_case[name, days, "multi-cloud"].usd / job.usd
        for (name, days, strategy), job in by_case.items()
        if strategy == "dynamic"
    ]

    figures = []

    if four_days:
        best = max(four_days, key=lambda job: job.reduction)
        name = "dynamic over fixed-type, 4 days, best"
        reduction = Figure("6.5", name, best.reduction, BEST_REDUCTION, case=best.job)
        figures.append(reduction)

    if gains:
        every_moves = (job.most_moves for job in jobs if job.strategy == "dynamic")
        most = max(every_moves)
        figures.append(
            Figure("6.6", "dynamic over multi-cloud, best", max(gains), BEST_DYNAMIC_REDUCTION)
        )
        moves_figure = Figure(
            "6.6", "moves of one job, most (paper: at most)", float(most), float(MAX_SWITCHES), ""
        )
        figures.append(moves_figure)

    return figures
