"""What a plan is made of and what it says, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bidbrain.eviction.estimate import Estimate
from bidbrain.gavel.lp import FloatArray
from bidbrain.strategies.base import Decision, Rent
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.files.job.spec import JobSpec
from spotctl.planning.checkpoint_interval import Checkpoints
from spotctl.planning.constraints import Constraints
from spotctl.planning.expected import Whole
from spotctl.planning.market_history import HazardOf, MarketHistory, Named
from spotctl.planning.offers import Board, Kind
from spotctl.planning.regimes import OVERHEADS
from spotctl.planning.share import Asked, Share
from spotctl.planning.work import Measured, Rate, Work


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be planned: its deadline as a moment, and how many hours the person who asks takes it to need.

    `place` is the cloud and region of one that runs already, which it stays in.
    """

    spec: JobSpec
    deadline: int | None = None
    hours: float | None = None
    place: tuple[str, str] | None = None

    @property
    def budget_usd(self) -> float | None:
        """What it may cost."""
        return None if self.spec.budget is None else self.spec.budget / NANOS_PER_DOLLAR


@dataclass(frozen=True, slots=True)
class Known:
    """All that a plan rests on: offers, evictions, what earlier runs of a job measured (by job, then type), and quotas
    where they are known."""

    board: Board
    hazard_of: HazardOf = lambda _: None
    earlier: Mapping[str, Mapping[str, Measured]] = field(default_factory=dict)
    quotas: Mapping[Kind, int] = field(default_factory=dict)
    overheads: Overheads = OVERHEADS


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Gavel's columns: kinds by their numbers on the board, the rows of their markets, the cheapest first, and
    effective prices."""

    numbers: tuple[int, ...]
    kinds: tuple[Kind, ...]
    rows: tuple[tuple[int, ...], ...]
    usd_per_hour: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A job with Gavel's answer; how many markets fit it, and the rows of those that cannot be used for all that."""

    job: Job
    asked: Asked
    share: Share
    rates: Mapping[str, Rate]
    fitting: int
    unusable: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """An allocation that would be rented, and what it is expected to be worth."""

    rent: Rent
    price: int
    beta: Estimate
    usd_per_work: float


@dataclass(frozen=True, slots=True)
class Rejected:
    """A market that is not used, and why; one that was weighed also with what it would have been worth."""

    market: Market
    why: str
    instead: Choice | None = None


@dataclass(frozen=True, slots=True)
class OnDemand:
    """The same work on machines that nobody takes back."""

    rent: Rent
    usd: float
    hours: float


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What would be rented for a job, why, and what it is expected to come to.

    `checkpoints` are a command's; a trainer needs none.
    `work_left` is what the constraints is told at the start, in microseconds times nu; infinite where nobody knows.
    `rejected` names the markets that were weighed, those that are unusable and the best of each other kind, up to a
    number; `unnamed` counts the rest.
    """

    job: Job
    at: int
    policy: str
    strategy: Named
    constraints: Constraints
    decision: Decision
    choice: tuple[Choice, ...]
    work: Work
    work_left: float
    rates: Mapping[str, Rate]
    whole: Whole
    usd_range: tuple[float, float]
    on_demand: OnDemand
    rejected: tuple[Rejected, ...]
    unnamed: int
    past: MarketHistory
    checkpoints: Checkpoints | None

    @property
    def finish_by(self) -> int:
        """When the job is expected to be done."""
        return self.at + round(self.whole.hours * HOUR)
