"""What a report tells of a run besides its money: when, how it went, who was there, and how far it came."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pricing_data.market import Market
from spotctl.runlog import events as ev
from spotctl.runlog.state import EVICTED, RunState, after
from spotctl.runlog.store import Row as LogRow


@dataclass(frozen=True, slots=True)
class Footing:
    """How many machines are there from a moment on."""

    at: int
    reliable: int
    on_demand: int
    spot: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """A machine that was taken away."""

    at: int
    machine: str
    market: Market
    warned: bool


@dataclass(frozen=True, slots=True)
class Stage:
    """The stage a job is in from a moment on."""

    at: int
    number: int


@dataclass(frozen=True, slots=True)
class Expected:
    """What was planned for a run, as far as it was written down; `assumed` where the amount of work was a guess."""

    usd: float | None = None
    usd_low: float | None = None
    usd_high: float | None = None
    hours: float | None = None
    on_demand_usd: float | None = None
    assumed: bool = False
    budget_usd: float | None = None


@dataclass(frozen=True, slots=True)
class RunTimeline:
    """A run. `wall_*` are on this computer's clock, all other moments on the provider's.

    `work` is in clocks of the job, None for a job that counts none; `outcome` is None while it goes on.
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
    footings: tuple[Footing, ...] = ()
    stages: tuple[Stage, ...] = ()
    expected: Expected = field(default_factory=Expected)

    @property
    def goes_on(self) -> bool:
        """Whether it has not ended."""
        return self.outcome is None

    @property
    def is_replayed(self) -> bool:
        """Whether its clock is that of a replayed market, and nothing was paid."""
        return self.provider == "local"


def story_of(rows: Sequence[LogRow]) -> RunTimeline:
    """The story that the events of one run tell."""
    state, footings, stages = RunState(), list[Footing](), list[Stage]()
    for row in rows:
        state = after(state, row)
        footings = _footings(footings, state, _moment(row))
        if isinstance(row.event, ev.Progressed) and (not stages or stages[-1].number != row.event.stage):
            stages.append(Stage(row.at, row.event.stage))
    began, ended = state.began, state.ended
    assert began is not None, "a run begins with RunBegan"
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
        footings=tuple(footings),
        stages=tuple(stages),
        expected=_expected(began, state.planned),
    )


def _moment(row: LogRow) -> int:
    """When what an event tells happened, which may be before it was written."""
    match row.event:
        case ev.Rented(machines=machines) if machines:
            return min(granted.started for granted in machines)
        case ev.MachineEnded(at=at):
            return at
        case _:
            return row.at


def _footings(so_far: list[Footing], state: RunState, at: int) -> list[Footing]:
    """Who is there after an event; what happens at one moment is one change."""
    reliable = on_demand = spot = 0
    for held in state.alive:
        allocation = state.allocations[held.allocation]
        reliable += allocation.reliable
        spot += not allocation.reliable and allocation.bid is not None
        on_demand += not allocation.reliable and allocation.bid is None
    last = so_far[-1] if so_far else Footing(at, 0, 0, 0)
    if (reliable, on_demand, spot) == (last.reliable, last.on_demand, last.spot):
        return so_far
    # What is learnt late cannot come before what was learnt already.
    new = Footing(max(at, last.at), reliable, on_demand, spot)
    return [*(so_far[:-1] if so_far and last.at == new.at else so_far), new]


def _evictions(state: RunState) -> tuple[Eviction, ...]:
    taken = (held for held in state.machines.values() if held.end_reason == EVICTED and held.ended is not None)
    found = (
        Eviction(held.ended or 0, held.id, state.allocations[held.allocation].market, held.warned_until is not None)
        for held in taken
    )
    return tuple(sorted(found, key=lambda one: (one.at, one.machine)))


def _work(state: RunState) -> int | None:
    """Clocks that were finished: as the end says, else as far as it was told. Commands count none."""
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
    words = str(began.spec.get("budget", "")).split()
    budget = float(words[0]) if words else None
    if planned is None:
        return Expected(budget_usd=budget)
    low, high = planned.usd_low, planned.usd_high
    return Expected(planned.usd, low, high, planned.hours, planned.on_demand_usd, planned.assumed, budget)


def stories_of(rows: Iterable[Sequence[LogRow]]) -> tuple[RunTimeline, ...]:
    """The stories of runs, in the order in which they began on this computer's clock."""
    return tuple(sorted(map(story_of, rows), key=lambda story: (story.wall_began, story.run)))
