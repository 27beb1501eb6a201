"""What a plan rests on, read: job files, stored prices up to a moment, and published interruption figures."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from bidbrain.eviction.hazard import Evidence, Hazard, hazard_of
from pricing_data.interruptions import Interruption
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, SECOND, format_time, parse_duration, parse_time
from spotctl.errors import BadRequest
from spotctl.files.job import reader
from spotctl.files.job.spec import JobSpec
from spotctl.planning.learning.inform import NOTHING_LEARNT, evidence_of, hours_of, informed
from spotctl.planning.learning.values import Learnt
from spotctl.planning.market_history import HazardOf
from spotctl.planning.offers import STALE_AFTER, Board
from spotctl.planning.values import Job, Known
from spotctl.show.terminal import age

LEARNT = 14 * DAY
"""How much of the local history lies before a replay of it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Jobs with what is known of the markets, and what the reader should know about that."""

    jobs: tuple[Job, ...]
    known: Known
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Clock:
    """The moment at the computer, and its time zone: what `06:00` means."""

    now: int
    zone: tzinfo


def asked(
    files: Sequence[Path],
    library: Library,
    at: str,
    hours: str,
    clock: Clock,
    lessons: Callable[[Sequence[JobSpec]], Mapping[str, Learnt]] = lambda _: NOTHING_LEARNT,
) -> Asked:
    """The jobs of files, to be planned for a moment, with what earlier runs of them taught."""
    specs = [reader.load(path) for path in files]
    names = [spec.name for spec in specs]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise BadRequest(f"two of the files describe a job named {double!r}; jobs that run side by side need two names")
    clouds = tuple(dict.fromkeys(cloud for spec in specs for cloud in spec.resources.clouds))
    with _without_collecting():
        table, catalog = library.table(library.select(Selection(clouds=clouds))), library.catalog
        moment, remarks = _moment(specs, table, at, clock)
        board = Board.of(table, catalog, moment)
    told, learnt = parse_duration(hours) / HOUR if hours else None, lessons(specs)
    jobs = tuple(
        Job(spec, _deadline(spec, moment, clock), told or hours_of(spec, learnt.get(spec.name))) for spec in specs
    )
    known = Known(board, hazards(library, clouds, moment, evidence_of(learnt)))
    told_of = tuple(f"{name}: {words}" for name, one in learnt.items() for words in one.words())
    return Asked(jobs, informed(known, {spec.name: spec for spec in specs}, learnt), remarks + told_of)


@contextmanager
def _without_collecting() -> Iterator[None]:
    """Markets are read by tens of thousands, and stay: to look for garbage among them takes as long as to read them."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _deadline(spec: JobSpec, moment: int, clock: Clock) -> int | None:
    return None if spec.deadline is None else spec.deadline.moment(moment, clock.zone)


def _moment(specs: Sequence[JobSpec], table: PriceTable, at: str, clock: Clock) -> tuple[int, tuple[str, ...]]:
    """The moment that is asked about; else now, or the end of a history that has none of now."""
    if at:
        return parse_time(at), ()
    if not len(table):
        return clock.now, ()
    if all(spec.is_local for spec in specs):
        return _begin_of_replay(specs, table)
    newest = int(table.times.max())
    if clock.now - newest <= STALE_AFTER:
        return clock.now, ()
    old = age((clock.now - newest) / SECOND)
    return newest, (
        f"prices as of {format_time(newest)}, the newest there are, {old} old (spotctl prices fetch brings newer ones)",
    )


def _begin_of_replay(specs: Sequence[JobSpec], table: PriceTable) -> tuple[int, tuple[str, ...]]:
    begins = {replay_start(table) if spec.local.start is None else spec.local.start for spec in specs}
    if len(begins) > 1:
        told = ", ".join(map(format_time, sorted(begins)))
        raise BadRequest(f"the jobs' local markets begin at different moments, {told}: give one of them as --at")
    moment = begins.pop()
    return moment, (f"prices as of {format_time(moment)}, where the replay of the synthetic market begins",)


def replay_start(table: PriceTable) -> int:
    """Where the local market begins unless a job says otherwise: with some history before it to learn from."""
    return int(table.times[table.starts[:-1]].min()) + LEARNT


def hazards(library: Library, clouds: Sequence[str], moment: int, evidence: Sequence[Evidence] = ()) -> HazardOf:
    """How often markets are taken whatever the price, from what was published up to a moment and what runs met."""
    figures: dict[tuple[str, str, str], list[Interruption]] = defaultdict(list)
    for cloud in clouds:
        for one in library.store.interruptions(cloud):
            if one.as_of <= moment:
                figures[cloud, one.market.region, one.market.instance_type].append(one)

    def hazard(market: Market) -> Hazard | None:
        return hazard_of(market, evidence, figures.get((market.cloud, market.region, market.instance_type), ()))

    return hazard
