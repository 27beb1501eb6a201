"""The cost of a run that has ended, for the log, and the timeline of any run, from its events.
Pure.
"""

from collections.abc import Sequence
from operator import attrgetter

from pricing_data.units import usd
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.account import (
    Eviction,
    Expected,
    KindCounts,
    MinimumBid,
    RunPart,
    RunTimeline,
)
from spotctl.log.ledger.project import RECORDED_ONLY, is_settled, project_run
from spotctl.log.ledger.same_work import same_work
from spotctl.log.state import EVICTED, LogRow, RunState

_MIXED = ("reliable", "on-demand", "spot", "reserved")
"""The kinds of machines, in the order of the fields of `KindCounts`."""


def final_account(rows: Sequence[LogRow]) -> RunPart | None:
    """The account of a run that has ended, if it follows from the rows of its log alone."""
    state = fold(rows)
    if not is_settled(state):
        return None
    ledger = project_run(state, RECORDED_ONLY)
    return RunPart.whole(timeline_of(rows, state, is_least=ledger.is_least), ledger.rows)


def timeline_of(
    rows: Sequence[LogRow], state: RunState | None = None, *, is_least: bool = False
) -> RunTimeline:
    """The timeline of one run from its log rows, and the state that follows from them; `is_least`
    says whether there are costs that no row has."""
    state = state or fold(rows)
    stages = list[tuple[int, int]]()
    minimum_bids = list[MinimumBid]()
    stage: int | None = None
    for row in rows:
        event = row.event
        if isinstance(event, ev.Progressed) and event.stage not in (0, stage):
            # A command has no stages: its events have 0.
            stage = event.stage
            stages.append((row.at, stage))
        elif isinstance(event, ev.HostsListed) and event.hosts:
            minimum_bids.append(MinimumBid(row.at, event.market, event.least))

    began = state.began
    ended = state.ended
    assert began is not None, "a run begins with RunBegan"
    given = began.spec.get("tags")
    tags = dict[str, str]()
    if isinstance(given, dict):
        tags = {str(name): str(value) for name, value in given.items()}

    evictions = list[Eviction]()
    for held in state.machines.values():
        if held.end_reason == EVICTED and held.ended is not None:
            market = state.allocations[held.allocation].market
            warned = held.warned_until
            evictions.append(Eviction(held.ended, held.id, market, warned is not None))
    evictions.sort(key=attrgetter("at", "machine"))

    received = sent = None
    counted = [held.traffic for held in state.machines.values() if held.traffic is not None]
    if counted:
        received = sum(traffic.received for traffic in counted)
        sent = sum(traffic.sent for traffic in counted)

    wall_ended = outcome = samples = None
    message = ""
    if ended is not None:
        wall_ended = ended.wall_us
        outcome = ended.outcome
        message = ended.message
        samples = ended.facts.get("samples")

    return RunTimeline(
        run=state.run,
        job=began.job,
        provider=began.provider,
        tags=tags,
        wall_began=began.wall_us,
        wall_ended=wall_ended,
        began=state.started,
        until=state.at,
        outcome=outcome,
        message=message,
        work=_work(state),
        evictions=tuple(evictions),
        mixes=_mixes(state),
        stages=tuple(stages),
        minimum_bids=tuple(minimum_bids),
        expected=_expected(began, state),
        same_work=same_work(state, state.at),
        samples=samples,
        received=received,
        sent=sent,
        left_plan=state.left_plan,
        rows_lost=sum(loss.rows for loss in state.lost),
        is_least=is_least,
    )


def _mixes(state: RunState) -> tuple[KindCounts, ...]:
    """The machines after each moment at which some came or went."""
    changes: dict[int, list[int]] = {}
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        pricing = allocation.market.pricing(spot=allocation.bid is not None)
        kind = 0 if allocation.reliable else _MIXED.index(pricing)
        for at, sign in ((held.started, 1), (held.ended, -1)):
            if at is not None:
                changes.setdefault(at, [0] * len(_MIXED))[kind] += sign

    mixes = list[KindCounts]()
    counts = [0] * len(_MIXED)
    for at in sorted(changes):
        counts = [count + change for count, change in zip(counts, changes[at], strict=True)]
        if any(changes[at]):
            mixes.append(KindCounts(at, *counts))

    return tuple(mixes)


def _work(state: RunState) -> int | None:
    """Completed clocks: from the end of the run if that states them, else from the last progress.
    None for commands.
    """
    assert state.began is not None
    clocks = None if state.ended is None else state.ended.facts.get("clocks")
    if isinstance(clocks, int):
        return clocks
    kind = state.began.spec.get("kind")
    if state.progress is not None and kind != "command":
        return state.progress.clock
    return 0 if kind == "agileml" else None


def _expected(began: ev.RunBegan, state: RunState) -> Expected:
    planned = state.planned
    parts = str(began.spec.get("budget", "")).split()
    budget = float(parts[0]) if parts else None
    if state.budget_set is not None:
        budget = usd(state.budget_set)
    if planned is None:
        return Expected(budget_usd=budget)

    low = planned.usd_low
    high = planned.usd_high
    on_demand = planned.on_demand_usd
    assumed = planned.assumed
    return Expected(
        planned.usd, low, high, planned.hours, on_demand, assumed, budget, planned.turns
    )
