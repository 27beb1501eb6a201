"""Made-up runs for report tests: their log events, from which the ledger makes rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np

from bidbrain.billing import BillingRule, rule_of_cloud
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.log.folding import fold
from spotctl.log.ledger.account import RunPart, RunTimeline
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.log.ledger.project import Ledger, project_run
from spotctl.log.ledger.rows import LedgerRow
from spotctl.log.state import LogRow
from spotctl.log.store import EventLog
from spotctl.show.costs.cost import Report, report_on
from spotctl.show.costs.periods import By, Grouping, Period

ALWAYS = Period()
NIGHT = parse_time("2026-06-01T02:00:00Z")
NOW = parse_time("2026-07-02T09:00:00Z")
AWS = tuple(Market.parse(f"aws/us-east-1/us-east-1{zone}/c6i.2xlarge") for zone in "abc")
GCP = Market.parse("gcp/us-central1/us-central1-a/n2-standard-8")
AZURE = Market.parse("azure/eastus/-/Standard_D8s_v5")
LOCAL = Market.parse("local/sim-east/sim-east-a/c4.2xlarge")
RESERVED = Market.parse("aws/us-east-1/us-east-1b/c6i.2xlarge/linux/cr-0abc")
RELIABLE = Market.parse("aws/us-east-1/us-east-1a/m6i.large")
ON_DEMAND = {
    "c6i.2xlarge": 340_000_000,
    "n2-standard-8": 388_480_000,
    "Standard_D8s_v5": 384_000_000,
    "m6i.large": 96_000_000,
    "c4.2xlarge": 400_000_000,
}
_RULES = {
    "aws": "per-second-first-hour-free",
    "gcp": "gcp",
    "azure": "azure",
    "local": "hourly-refund",
}


def project(events: Iterable[LogRow], tariff: Tariff, now: int | None = None) -> Ledger:
    """The ledger of the runs that the events belong to.

    `tariff` prices what is not settled. The rows of an active run end at its last event, or at
    `now`.
    """
    rows, is_least = list[LedgerRow](), False
    for _, of_run in groupby(
        sorted(events, key=lambda row: (row.run, row.id)), key=lambda row: row.run
    ):
        ledger = project_run(fold(of_run), tariff, now)
        rows += ledger.rows
        is_least |= ledger.is_least
    return Ledger(tuple(rows), is_least)


@dataclass
class MadeRun:
    """Builds the events of a run."""

    run: str
    job: str
    wall: int
    tags: Mapping[str, str] = field(default_factory=dict)
    provider: str = "aws"
    events: list[tuple[int, ev.Event]] = field(default_factory=list)
    intents: Iterator[int] = field(default_factory=lambda: count(1))
    names: Iterator[int] = field(default_factory=count)
    markets: dict[Market, tuple[list[int], list[int]]] = field(default_factory=dict)

    def add(self, at: int, event: ev.Event) -> None:
        self.events.append((at, event))

    def begin(self, **spec: object) -> None:
        whole: dict[str, Any] = {
            "name": self.job,
            "kind": "agileml",
            "tags": dict(self.tags),
            **spec,
        }
        self.add(self.wall, ev.RunBegan(self.job, self.provider, whole, "/meeting", self.wall))

    def plan(self, usd: float, hours: float) -> None:
        self.add(self.wall, ev.Planned(usd, 0.8 * usd, 1.25 * usd, hours, 3.5 * usd, assumed=False))

    def price(self, market: Market, times: Sequence[int], prices: Sequence[int]) -> None:
        """A market's prices, which are logged when the run ends."""
        self.markets[market] = (list(times), list(prices))

    def rent(
        self, market: Market, machines: int, at: int, *, spot: bool = True, reliable: bool = False
    ) -> list[str]:
        """Rents machines that start working five minutes later."""
        listed = ON_DEMAND[market.instance_type]
        return self._rent(market, machines, at, listed if spot else None, listed, reliable=reliable)

    def take(
        self, market: Market, machines: int, at: int, price: int, *, is_listed: bool = True
    ) -> list[str]:
        """Takes machines from a reservation, at the user's price."""
        listed = ON_DEMAND[market.instance_type] if is_listed else 0
        return self._rent(market, machines, at, None, price, listed)

    def _rent(
        self,
        market: Market,
        machines: int,
        at: int,
        bid: int | None,
        price: int,
        listed: int = 0,
        *,
        reliable: bool = False,
    ) -> list[str]:
        intent, lease = next(self.intents), at + 40 * HOUR
        names = [f"i-{self.run}-{next(self.names):03}" for _ in range(machines)]
        order = ev.RentIntended(
            intent, market, machines, bid, price, float(machines), reliable, lease
        )
        self.add(at, replace(order, list_price=listed))
        self.add(at, ev.Rented(intent, tuple(ev.Granted(name, at) for name in names)))
        for name in names:
            self.add(at + 2 * MINUTE, ev.MachineRan(name))
        ready = tuple(ev.Moment(name, at + 5 * MINUTE) for name in names)
        self.add(
            at + 5 * MINUTE,
            ev.Progressed((at - self.wall) // MINUTE + 5, 1.0, 1 + (machines > 6), ready=ready),
        )
        return names

    def end_machines(
        self, names: Sequence[str], at: int, reason: str, *, warned: bool = False
    ) -> None:
        for name in names:
            if warned:
                self.add(at - 2 * MINUTE, ev.MachineWarned(name, at, "eviction", "imds"))
            self.add(at, ev.MachineEnded(name, at, reason))

    def redo(self, clock: int, begin: int, end: int) -> None:
        self.add(end, ev.Progressed(clock, 0.7, 2, redone=(ev.Stretch(begin, end),)))

    def finish(
        self, at: int, outcome: str = "done", clocks: int | None = None, message: str = ""
    ) -> None:
        for market, (times, prices) in self.markets.items():
            self.add(at, ev.Priced(market, _RULES[market.cloud], tuple(times), tuple(prices)))
        facts = {} if clocks is None else {"clocks": clocks}
        self.add(at, ev.RunEnded(outcome, message, at, facts))

    def log(self, first: int = 1) -> list[LogRow]:
        ordered = sorted(self.events, key=lambda each: each[0])
        return [LogRow(first + i, self.run, at, event) for i, (at, event) in enumerate(ordered)]

    def rows(self) -> tuple[LedgerRow, ...]:
        return project(self.log(), self.tariff()).rows

    def tariff(self) -> Tariff:
        """The prices of a run that is still going on."""

        def prices(market: Market, now: int) -> PriceSeries:
            times, values = (np.array(column, dtype=np.int64) for column in self.markets[market])
            return PriceSeries(market, times, values).window(
                int(times[0]), min(now, int(times[-1]))
            )

        rule: Callable[[Market], BillingRule] = lambda market: rule_of_cloud(market.cloud)  # noqa: E731
        return Tariff(rule, prices)


def night(
    number: int, rng: np.random.Generator, job: str = "nightly-recsys", *, is_running: bool = False
) -> MadeRun:
    """A run of a few hours with batches of machines; some are evicted, and their work is redone."""
    begin = NIGHT + number * DAY + int(rng.integers(0, 60)) * SECOND
    made = MadeRun(
        f"{job}-{number:06x}", job, begin, {"team": "ml" if job.startswith("nightly") else "search"}
    )
    made.begin(budget="25 USD")
    until = begin + int((4 + 2 * rng.random()) * HOUR) // SECOND * SECOND
    made.plan(3.2 + 2.4 * float(rng.random()), 5.0)
    for market in (*AWS, GCP):
        times = range(begin, until + 25 * MINUTE, 20 * MINUTE)
        steps = 0.27 * np.exp(np.cumsum(rng.normal(0, 0.06, len(times))))
        made.price(
            market,
            times,
            (ON_DEMAND[market.instance_type] * np.clip(steps, 0.1, 0.9)).astype(int).tolist(),
        )
    made.price(RELIABLE, (), ())
    anchor = made.rent(RELIABLE, 1, begin + 20 * SECOND, spot=False, reliable=True)
    at = begin + MINUTE
    while at < until - 10 * MINUTE:
        at = _batch(made, rng, at, until, is_running=is_running)
    clocks = (until - begin) // MINUTE
    made.add(until, ev.Progressed(clocks, 0.2, 2))
    if not is_running:
        made.end_machines(anchor, until, "returned")
        made.finish(until, clocks=clocks)
    return made


def _batch(
    made: MadeRun, rng: np.random.Generator, at: int, until: int, *, is_running: bool
) -> int:
    market = (*AWS, GCP)[int(rng.integers(4))]
    life = int(min(until - at, (0.4 + rng.exponential(2.2)) * HOUR)) // SECOND * SECOND
    evicted = at + life < until
    names = made.rent(market, int(rng.integers(4, 13)), at)
    if evicted or not is_running:
        reason = "evicted" if evicted else "returned"
        made.end_machines(names, at + life, reason, warned=evicted and rng.random() < 0.7)
    if evicted:
        again = at + life + int(rng.integers(1, 6)) * MINUTE
        made.redo((again - made.wall) // MINUTE, at + life, min(again + 6 * MINUTE, until))
    return at + life + int(rng.integers(1, 6)) * MINUTE


def started_hour() -> MadeRun:
    """A machine that is returned within its second hour, which is charged in full."""
    made = MadeRun("hour-1", "hour", NIGHT, provider="local")
    made.begin()
    made.price(LOCAL, [NIGHT, NIGHT + DAY], [100_000_000] * 2)
    made.end_machines(made.rent(LOCAL, 1, NIGHT), NIGHT + HOUR + 20 * MINUTE, "returned")
    made.finish(NIGHT + 2 * HOUR, clocks=10)
    return made


def partly_reserved(price: int, *, is_listed: bool = True) -> MadeRun:
    """An hour on two reserved machines and a spot machine."""
    made = MadeRun("mixed-1", "mixed", NIGHT)
    made.begin()
    made.price(AWS[0], [NIGHT, NIGHT + DAY], [100_000_000] * 2)
    made.price(RESERVED, (), ())
    names = made.take(RESERVED, 2, NIGHT, price, is_listed=is_listed) + made.rent(AWS[0], 1, NIGHT)
    made.add(NIGHT + HOUR, ev.Progressed(60, 0.2, 1))
    made.end_machines(names, NIGHT + HOUR, "returned")
    made.finish(NIGHT + HOUR, clocks=60)
    return made


def report(
    rows: Iterable[LedgerRow],
    timelines: Sequence[RunTimeline],
    period: Period,
    by: Sequence[Grouping],
    at: int,
    month_budget: float | None = None,
    *,
    local: bool = False,
) -> Report:
    """The report on what runs cost within a period, from all their rows."""
    every = [RunPart.whole(run, of_run) for run, of_run in by_run(rows, timelines)]
    return report_on(every, period, by, at, month_budget, local=local)


def by_run(
    rows: Iterable[LedgerRow], timelines: Sequence[RunTimeline]
) -> list[tuple[RunTimeline, list[LedgerRow]]]:
    """The runs, each with its rows."""
    rows_of: dict[str, list[LedgerRow]] = {timeline.run: [] for timeline in timelines}
    for row in rows:
        rows_of[row.run].append(row)
    return [(timeline, rows_of[timeline.run]) for timeline in timelines]


def in_order(timelines: Iterable[RunTimeline]) -> tuple[RunTimeline, ...]:
    """Runs in the order in which they began by this computer's clock."""
    return tuple(sorted(timelines, key=lambda run: (run.wall_began, run.run)))


def report_of(
    runs: Sequence[MadeRun], by: tuple[By, ...] = (By.JOB,), period: Period = ALWAYS
) -> Report:
    """The report on made-up runs."""
    timelines = in_order(timeline_of(made.log(1000 * i)) for i, made in enumerate(runs))
    rows = [row for made in runs for row in made.rows()]
    return report(rows, timelines, period, by, NOW)


def month() -> list[MadeRun]:
    """A month of nightly runs and a few runs of another job."""
    rng = np.random.default_rng(7)
    runs = [night(i, rng) for i in range(27)]
    return runs + [night(i, rng, "weekly-embeddings") for i in (5, 12, 19)]


def write_log(runs: Sequence[MadeRun], home: Path) -> None:
    """Writes the runs into the event log of a home."""
    with EventLog(home / "log.sqlite") as log:
        for made in runs:
            for row in made.log():
                log.append(row.run, row.at, row.event)


def parts(rows: Sequence[LedgerRow], runs: Sequence[RunTimeline]) -> list[RunPart]:
    """Whole runs with their rows."""
    return [RunPart.of(*one) for one in by_run(rows, runs)]
