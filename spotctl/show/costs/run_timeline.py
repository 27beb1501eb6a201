"""The timeline of a run for reports: its times, outcome, machines, stages, evictions and plan."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pricing_data.market import Market
from spotctl.files.job.values import RAY
from spotctl.home.cloud import is_replayed
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.rows import SameWork
from spotctl.log.ledger.same_work import same_work
from spotctl.log.log_row import LogRow
from spotctl.log.outcomes import FAILED
from spotctl.log.state import EVICTED, RunState


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


_MIXED = ("reliable", "on-demand", "spot", "reserved")
"""The kinds of machines, in the order of the fields of `MachineMix`."""


def timeline_of(rows: Sequence[LogRow], state: RunState | None = None) -> RunTimeline:
    """The timeline of one run from its log rows, and the state that follows from them."""
    state, stages = state or fold(rows), list[StageChange]()
    for row in rows:
        if isinstance(row.event, ev.Progressed) and (not stages or stages[-1].number != row.event.stage):
            stages.append(StageChange(row.at, row.event.stage))
    began, ended = state.began, state.ended
    assert began is not None, "a run begins with RunBegan"
    counted = [held.traffic for held in state.machines.values() if held.traffic is not None]
    return RunTimeline(
        run=state.run,
        job=began.job,
        provider=began.provider,
        tags=_tags(began.spec),
        wall_began=began.wall_us,
        wall_ended=None if ended is None else ended.wall_us,
        began=state.started,
        until=state.at,
        outcome=None if ended is None else ended.outcome,
        message="" if ended is None else ended.message,
        work=_work(state),
        evictions=_evictions(state),
        mixes=_mixes(state),
        stages=tuple(stages),
        expected=_expected(began, state.planned),
        same_work=same_work(state, state.at),
        samples=None if ended is None else ended.facts.get("samples"),
        received=sum(traffic.received for traffic in counted) if counted else None,
        sent=sum(traffic.sent for traffic in counted) if counted else None,
        rows_lost=state.rows_lost,
    )


def _mixes(state: RunState) -> tuple[MachineMix, ...]:
    """The machines after each moment at which some came or went."""
    changes: dict[int, list[int]] = {}
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        pricing = allocation.market.pricing(spot=allocation.bid is not None)
        kind = 0 if allocation.reliable else _MIXED.index(pricing)
        for at, sign in ((held.started, 1), (held.ended, -1)):
            if at is not None:
                changes.setdefault(at, [0] * len(_MIXED))[kind] += sign
    mixes, counts = list[MachineMix](), [0] * len(_MIXED)
    for at in sorted(changes):
        counts = [count + change for count, change in zip(counts, changes[at], strict=True)]
        if any(changes[at]):
            mixes.append(MachineMix(at, *counts))
    return tuple(mixes)


def _evictions(state: RunState) -> tuple[Eviction, ...]:
    evicted = (held for held in state.machines.values() if held.end_reason == EVICTED and held.ended is not None)
    evictions = (
        Eviction(held.ended or 0, held.id, state.allocations[held.allocation].market, held.warned_until is not None)
        for held in evicted
    )
    return tuple(sorted(evictions, key=lambda eviction: (eviction.at, eviction.machine)))


def _work(state: RunState) -> int | None:
    """Completed clocks: from the end of the run if that states them, else from the last progress. None for commands."""
    assert state.began is not None
    clocks = None if state.ended is None else state.ended.facts.get("clocks")
    if isinstance(clocks, int):
        return clocks
    kind = state.began.spec.get("kind")
    if state.progress is not None and kind != "command":
        return state.progress.clock
    return 0 if kind == "agileml" else None


def _tags(spec: Mapping[str, Any]) -> Mapping[str, str]:
    tags = spec.get("tags")
    return {str(name): str(value) for name, value in tags.items()} if isinstance(tags, dict) else {}


def _expected(began: ev.RunBegan, planned: ev.Planned | None) -> Expected:
    parts = str(began.spec.get("budget", "")).split()
    budget = float(parts[0]) if parts else None
    if planned is None:
        return Expected(budget_usd=budget)
    low, high = planned.usd_low, planned.usd_high
    return Expected(planned.usd, low, high, planned.hours, planned.on_demand_usd, planned.assumed, budget)
