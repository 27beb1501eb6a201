"""The earlier runs of a job in the event log, what was measured in each, and the work that the last
has left."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from bidbrain.eviction.hazard import Evidence
from bidbrain.eviction.survival import Exposure
from bidbrain.gavel.estimator import MIN_JOBS
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.agent.errors import AgentError
from spotctl.files.job.conversions import span_text
from spotctl.files.job.data_places import checkpoint_place
from spotctl.files.job.reader import restored, written
from spotctl.files.job.spec import JobSpec, ProgramKind
from spotctl.home.paths import Paths
from spotctl.log import store
from spotctl.log.budget import Tariff
from spotctl.log.events import Checkpointed, Progressed, RunBegan
from spotctl.log.folding import fold
from spotctl.log.ledger.project import recorded, rows_of
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use
from spotctl.log.ledger_reader import events_of, stored_prices
from spotctl.log.outcomes import DONE
from spotctl.log.state import EVICTED, LogRow, RunState
from spotctl.planning.facts import MAX_RUNS, OVERHEADS, Learned, Observed, learn, most_machines
from spotctl.run.environment import LAUNCHER

if TYPE_CHECKING:
    from pricing_data.library import Library
    from spotctl.home.config import Settings


_MAX_OTHERS = 24
_SAME_WORK = ("kind", "app", "args", "run", "nodes", "data")
"""Keys that must be equal for two runs to be comparable: with another program or other arguments, a
clock differs."""
_LEAST_LEFT = 0.001
"""The least share of its work for which a job is planned."""


def learn_from_runs(
    settings: Settings, known: Library, specs: Iterable[JobSpec], before: int
) -> dict[str, Learned]:
    """By job, estimates from its runs that ended before a moment of this computer's clock."""
    estimates = {spec.name: _learn(settings, known, spec, before) for spec in specs}
    return {name: learned for name, learned in estimates.items() if learned is not None}


def speeds_of_others(
    settings: Settings, known: Library, specs: Iterable[JobSpec], before: int
) -> tuple[dict[str, float], ...]:
    """By other job of this home, the newest: throughputs by type, as its file states them, or as
    its last run before a moment of this computer's clock measured them. Only jobs that know those
    of several types tell anything."""
    paths = Paths(settings.home)
    named = {spec.name for spec in specs}
    if not store.exists(paths.log):
        return ()

    with store.EventLog(paths.log) as log:
        earlier = ((run, began) for run, began in log.runs().items() if began.wall_us < before)
        last = {began.job: (began, run) for run, began in earlier if began.job not in named}
        newest = sorted(last.values(), key=lambda pair: pair[0].wall_us)[-_MAX_OTHERS:]
        if len(newest) < MIN_JOBS:
            return ()
        runs = [(began, tuple(log.of_run(run))) for began, run in newest]

    tariff = stored_prices(settings, known)
    vcpus = {machine.name: machine.steady_vcpus for machine in known.catalog.types}
    every = list[dict[str, float]]()

    for began, events in runs:
        speeds = {
            str(kind): float(nu) for kind, nu in (began.spec.get("throughputs") or {}).items()
        }
        if (
            observed := observations_of(events, tariff)
        ) is not None and observed.wall_ended <= before:
            learned = learn([observed], vcpus, None, OVERHEADS.startup, OVERHEADS.eviction)
            speeds |= (
                {}
                if learned is None
                else {kind: speed.nu for kind, speed in learned.speeds.items()}
            )
        every.append(speeds)

    return tuple(speeds for speeds in every if len(speeds) > 1)


def _learn(settings: Settings, known: Library, spec: JobSpec, before: int) -> Learned | None:
    ours = _work(written(spec))

    def is_comparable(began: RunBegan) -> bool:
        return began.job == spec.name and began.wall_us < before and _work(began.spec) == ours

    runs = events_of(settings, is_comparable, MAX_RUNS)
    tariff = stored_prices(settings, known)
    observations = [
        observation
        for events in runs
        if (observation := observations_of(events, tariff)) is not None
    ]

    vcpus = {
        machine.name: machine.steady_vcpus
        for machine in known.catalog.types
        if machine.cloud in spec.resources.clouds
    }

    ended = [observation for observation in observations if observation.wall_ended <= before]
    return learn(ended, vcpus, most_machines(spec), OVERHEADS.startup, OVERHEADS.eviction)


def _work(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a job that must be equal in two runs: the program, the replay speed, which scales
    throughputs, and the stopping criteria except clocks."""
    ends = {name: value for name, value in (spec.get("stop") or {}).items() if name != "clocks"}
    return {
        **{name: spec.get(name) for name in _SAME_WORK},
        "stop": ends,
        "speed": (spec.get("local") or {}).get("speed"),
    }


def observations_of(events: Sequence[LogRow], tariff: Tariff) -> Observed | None:
    """The measurements of a run; None if it has not ended, or rows of it are lost."""
    state = fold(events)
    if state.ended is None or state.lost:
        return None

    rows = rows_of(state, state.at, recorded(state, tariff))
    counts = state.began is not None and state.began.spec.get("kind") == ProgramKind.AGILEML
    working = list[LedgerRow]()
    for row in rows:
        is_work = row.kind is ChargeKind.COMPUTE and row.use is Use.WORKING
        if is_work and not row.reliable:
            working.append(row)

    saves = list[tuple[float, int]]()
    for logged in events:
        if isinstance(logged.event, Checkpointed) and not logged.event.rank:
            saves.append((logged.event.seconds, logged.event.bytes))

    # One that went on with the work of another did only what that one had left.
    begun = "" if state.began is None else str(state.began.spec.get("hours", ""))
    is_done = state.ended.outcome == DONE and not begun.endswith(" left")
    hours = sum(row.end - row.begin for row in working) / HOUR
    return Observed(
        state.ended.wall_us,
        is_done,
        hours,
        *_work_by_size(events, working, counts=counts),
        tuple(_startups(state)),
        tuple(_losses(state)),
        tuple(_evidence(state)),
        tuple(saves),
    )


# -- throughput ------------------------------------------------------------------------------------


def _work_by_size(
    events: Sequence[LogRow], working: Sequence[LedgerRow], *, counts: bool
) -> tuple[dict[int, float], dict[int, dict[str, float]]]:
    """The clocks, and the hours by type, by number of machines at work.

    Clocks between two progress events are spread evenly over the work. Empty for a command, whose
    work is not counted in clocks.
    """
    spans = _spans(working)
    first_begin = spans[0][0] if spans else 0
    edges = [(first_begin, 0)]
    if counts:
        edges += [(row.at, row.event.clock) for row in events if isinstance(row.event, Progressed)]

    clocks = defaultdict[int, float](float)
    hours = defaultdict[int, dict[str, float]](dict)
    for (begin, before), (end, after) in pairwise(edges):
        # The parts of spans within this period: the number of machines, and machine-microseconds by
        # type.
        inside = list[tuple[int, dict[str, int]]]()
        nearest = max(bisect_right(spans, begin, key=itemgetter(0)) - 1, 0)
        for since, until, alive in spans[nearest:]:
            if since >= end:
                break
            length = min(until, end) - max(since, begin)
            if length > 0:
                of_types = {name: number * length for name, number in alive.items()}
                inside.append((sum(alive.values()), of_types))

        estimate = sum(sum(types.values()) for _, types in inside)
        for size, types in inside:
            clocks[size] += (after - before) * sum(types.values()) / estimate if estimate else 0.0
            for name, span in types.items():
                hours[size][name] = hours[size].get(name, 0.0) + span / HOUR

    sizes = sorted(hours)
    return {size: clocks[size] for size in sizes}, {size: hours[size] for size in sizes}


_WorkSpan = tuple[int, int, Mapping[str, int]]
"""Begin, end, and the number of machines of each type at work in between."""


def _spans(working: Sequence[LedgerRow]) -> list[_WorkSpan]:
    """The run split wherever the set of working machines changes."""
    marks = sorted({mark for row in working for mark in (row.begin, row.end)})
    counts = defaultdict[int, dict[str, int]](dict)
    for row in working:
        name = row.market.instance_type
        counts[row.begin][name] = counts[row.begin].get(name, 0) + 1
        counts[row.end][name] = counts[row.end].get(name, 0) - 1

    spans = list[_WorkSpan]()
    now = dict[str, int]()
    for begin, end in pairwise(marks):
        for name, change in counts[begin].items():
            now[name] = now.get(name, 0) + change
        alive = {name: number for name, number in now.items() if number}
        if alive:
            spans.append((begin, end, alive))

    return spans


# -- changes of machines ---------------------------------------------------------------------------


def _startups(state: RunState) -> Iterator[float]:
    """One observation per order, because its machines start together.

    The first clock counts as worked from its beginning, which may be before machines were rented
    that others' loss called for: theirs say nothing.
    """
    for number in state.allocations:
        came = (held for held in state.machines.values() if held.allocation == number)
        turns = [(held.turns[0], held.started) for held in came if held.turns]
        spans = [begun - rented for begun, rented in turns if begun > rented]
        if spans:
            yield sum(spans) / len(spans)


def _losses(state: RunState) -> Iterator[float]:
    """The work that was repeated after each eviction and before the next."""
    moments = sorted(
        {
            held.ended
            for held in state.machines.values()
            if held.end_reason == EVICTED and held.ended
        }
    )
    for moment, following in pairwise((*moments, state.at)):
        yield sum(
            stretch.end - stretch.begin
            for stretch in state.redone
            if moment <= stretch.end and stretch.begin < following
        )


# -- evictions that no price explains --------------------------------------------------------------


def _evidence(state: RunState) -> Iterator[Evidence]:
    """Evictions without a price crossing, and the hours observed, by market.

    A market that is replayed from prices alone has no such evictions, so its hours are no evidence.
    Machines of one order mostly go together, so they count as one machine: `python -m
    bench.forecast_clusters` shows it on records.
    """
    ordered = Counter(held.allocation for held in state.machines.values())
    seen = defaultdict[Market, Exposure](Exposure)
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        if allocation.bid is None or held.ended is None:
            continue
        prices = state.prices.get(allocation.market)
        price = 0
        if prices is not None and prices.times:
            price = prices.prices[max(bisect_right(prices.times, held.ended) - 1, 0)]
        taken = held.end_reason == EVICTED and price <= allocation.bid
        life = Exposure(float(taken), (held.ended - held.started) / HOUR)
        seen[allocation.market] += life.scaled(1 / ordered[held.allocation])

    return (
        Evidence(market, exposure)
        for market, exposure in seen.items()
        if exposure.evictions or not market.is_synthetic
    )


# -- the work that is left ---------------------------------------------------------------------------


def continued(
    specs: Sequence[JobSpec], settings: Settings, say: Callable[[str], None], *, asks: bool
) -> list[JobSpec]:
    """The jobs with the hours of work that are left for them; of each earlier run at whose end one
    begins, something is said. An object store is only looked into where it `asks` clouds; else the
    log says whether a run has left a checkpoint there."""
    after = list[JobSpec]()
    for spec in specs:
        begins_at = _earlier_end(spec, settings, asks=asks)
        after.append(spec)
        if begins_at is None:
            continue

        where, left = begins_at
        work = "the plan counts the whole work"
        if spec.hours is not None and left is not None:
            work = f"{left:.0%} of {span_text(spec.hours.span)} of work are left"
            after[-1] = replace(spec, hours=replace(spec.hours, left=left))
        fresh = "spotctl launch --fresh begins from scratch"
        say(f"{spec.name}: begins at {where}; {work} ({fresh})")

    return after


def _earlier_end(
    spec: JobSpec, settings: Settings, *, asks: bool
) -> tuple[str, float | None] | None:
    """The checkpoint or state at which a job begins, and the work that was left there, if that is
    known; None if the job begins from scratch."""
    paths, place = Paths(settings.home), checkpoint_place(spec)
    if place is None:
        is_kept = not spec.on_ray and paths.kept(spec.name).exists()
        return (f"the last state of job {spec.name}", None) if is_kept else None

    last = _last_run_at(place, paths)
    if "://" in place and not asks:
        has_left = last is not None and last.ended is not None and last.ended.outcome != DONE
        if not (has_left and last is not None and last.work.checkpoint is not None):
            return None
    else:
        from spotctl.agent.checkpoints.stored import has_checkpoint

        try:
            if not has_checkpoint(place, LAUNCHER):
                return None
        except AgentError:
            # What keeps it from being read is refused when the run begins.
            return None

    whose = "an earlier run"
    if last is not None and last.began is not None:
        whose = f"run {last.run} of job {last.began.job}"
    return f"the checkpoint at {place} of {whose}", _share_left(spec, last, settings)


def _last_run_at(place: str, paths: Paths) -> RunState | None:
    """The newest run that kept its checkpoint in a place."""
    if not store.exists(paths.log):
        return None
    with store.EventLog(paths.log) as log:
        for run, began in reversed(log.runs().items()):
            if (began.spec.get("checkpoint") or {}).get("path", "").rstrip("/") == place:
                return fold(log.of_run(run))
    return None


def _share_left(spec: JobSpec, last: RunState | None, settings: Settings) -> float | None:
    """The share of a job's work that the last run has left; None if it was another work, is done,
    or is unknown."""
    if last is None or last.began is None or last.ended is None or spec.hours is None:
        return None

    hours = restored(last.began.spec, settings.home).hours
    share = last.ended.facts.get("work_left")
    if hours is None or share is None or replace(hours, left=1.0) != spec.hours:
        return None
    return max(round(hours.left * float(share), 6), _LEAST_LEFT)
