"""The timeline of a run for reports: its times, outcome, machines, stages, evictions and plan."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pricing_data.market import Market
from spotctl.files.job.values import RAY
from spotctl.home.cloud import is_replayed
from spotctl.log.ledger.rows import SameWork
from spotctl.log.outcomes import FAILED


@dataclass(frozen=True, slots=True)
class MachineMix:
    """The number of machines of each kind from a moment on."""

    at: int
    reliable: int
    on_demand: int
    spot: int
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Eviction:
    """A machine that the provider evicted."""

    at: int
    machine: str
    market: Market
    warned: bool


@dataclass(frozen=True, slots=True)
class StageChange:
    """The AgileML stage of the job from a moment on."""

    at: int
    number: int


@dataclass(frozen=True, slots=True)
class Expected:
    """The plan of a run as far as it was logged; `assumed` if the amount of work was a guess."""

    usd: float | None = None
    usd_low: float | None = None
    usd_high: float | None = None
    hours: float | None = None
    on_demand_usd: float | None = None
    assumed: bool = False
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """A run. `wall_*` are times of this computer's clock, all others of the provider's.

    `work` is in clocks, None for jobs that count none; `samples` are the items that a finished training went through.
    `outcome` is None while the run is going on. `is_cut`: only a part of the run is in the report.
    """

    run: str
    job: str
    provider: str
    tags: Mapping[str, str]
    wall_began: int
    wall_ended: int | None
    began: int
    until: int
    outcome: str | None
    message: str
    work: int | None
    evictions: tuple[Eviction, ...] = ()
    mixes: tuple[MachineMix, ...] = ()
    stages: tuple[StageChange, ...] = ()
    expected: Expected = field(default_factory=Expected)
    same_work: SameWork = field(default_factory=SameWork)
    samples: int | None = None
    is_cut: bool = False
    received: int | None = None
    sent: int | None = None
    """Bytes that its machines received and sent, as far as machines reported them; None if none has."""
    rows_lost: int = 0
    """How many of its rows a repair of the log has dropped."""
    is_least: bool = False
    """Whether there are costs that its rows do not have: rows of the log are lost, or a price, or an order is open."""

    @property
    def failed(self) -> bool:
        """Whether the run failed: then its cost is a loss."""
        return self.outcome == FAILED

    @property
    def is_running(self) -> bool:
        """Whether the log has no end of the run; its process may have been killed."""
        return self.outcome is None

    @property
    def on_ray(self) -> bool:
        """Whether the run trained on a Ray cluster: it rented nothing, and the cost of the cluster is unknown here."""
        return self.provider == RAY

    @property
    def is_replayed(self) -> bool:
        """Whether the run was on a replayed market, where nothing is billed."""
        return is_replayed(self.provider)


def in_order(timelines: Iterable[RunTimeline]) -> tuple[RunTimeline, ...]:
    """Runs in the order in which they began by this computer's clock."""
    return tuple(sorted(timelines, key=order_of))


def order_of(run: RunTimeline) -> tuple[int, str]:
    return run.wall_began, run.run
