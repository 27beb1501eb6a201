"""Made-up runs for reports: their events as the log holds them, and their ledger rows, which bill each second."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np

from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time
from spotctl.ledger.rows import Kind, Row, Use
from spotctl.orchestrator import events as ev
from spotctl.orchestrator.log import Row as LogRow
from spotctl.reports.cost import By, Report, report
from spotctl.reports.story import stories_of

NIGHT = parse_time("2026-06-01T02:00:00Z")
NOW = parse_time("2026-07-02T09:00:00Z")
AWS = tuple(Market.parse(f"aws/us-east-1/us-east-1{zone}/c6i.2xlarge") for zone in "abc")
GCP = (Market.parse("gcp/us-central1/us-central1-a/n2-standard-8"),)
RELIABLE = Market.parse("aws/us-east-1/us-east-1a/m6i.large")
ON_DEMAND = {
    "c6i.2xlarge": 340_000_000,
    "n2-standard-8": 388_480_000,
    "m6i.large": 96_000_000,
    "c4.2xlarge": 400_000_000,
}


@dataclass
class MadeRun:
    """A run that is being made up."""

    run: str
    job: str
    provider: str
    wall: int
    at: int
    rng: np.random.Generator
    tags: Mapping[str, str] = field(default_factory=dict)
    events: list[tuple[int, ev.Event]] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=count)

    def tell(self, at: int, event: ev.Event) -> None:
        self.events.append((at, event))

    def log(self, first: int) -> list[LogRow]:
        return [
            LogRow(first + i, self.run, at, event)
            for i, (at, event) in enumerate(sorted(self.events, key=lambda each: each[0]))
        ]

    def rent(
        self, intent: int, market: Market, machines: int, begin: int, *, bid: int | None, reliable: bool = False
    ) -> list[str]:
        price = ON_DEMAND[market.instance_type]
        names = [f"i-{self.run}-{next(self.names):03}" for _ in range(machines)]
        self.tell(
            begin,
            ev.RentIntended(intent, market, machines, bid, price, float(machines), reliable, begin + 8 * HOUR),
        )
        self.tell(begin, ev.Rented(intent, tuple(ev.Granted(name, begin) for name in names)))
        return names

    def end(self, name: str, at: int, reason: str) -> None:
        self.tell(at, ev.MachineEnded(name, at, reason))

    def bill(
        self,
        name: str,
        market: Market,
        begin: int,
        end: int,
        *,
        spot: bool,
        reliable: bool,
        evicted: bool,
        settled: bool,
    ) -> None:
        """Pieces between changes of price, each second at the price in force; the first hour of evicted ones is free."""
        listed = ON_DEMAND[market.instance_type]
        price = listed
        marks = sorted(
            {begin, min(begin + 2 * MINUTE, end), min(begin + 5 * MINUTE, end), *range(begin, end, 40 * MINUTE), end}
        )
        for i, (a, b) in enumerate(pairwise(marks)):
            if spot and i % 2 == 0:
                price = int(listed * (0.22 + 0.12 * self.rng.random()))
            use = Use.STARTING if a < begin + 2 * MINUTE else Use.LOADING if a < begin + 5 * MINUTE else Use.WORKING
            if use is Use.WORKING and evicted and b == end:
                use = Use.REDONE
            if use is Use.WORKING and i % 7 == 5:
                use = Use.IDLE
            self._row(
                name,
                market,
                a,
                b,
                Kind.COMPUTE,
                use,
                price,
                (b - a) // SECOND * price,
                spot=spot,
                reliable=reliable,
                settled=settled,
            )
            if evicted and end - begin < HOUR:
                self._row(
                    name,
                    market,
                    a,
                    b,
                    Kind.REFUND,
                    use,
                    price,
                    -((b - a) // SECOND * price),
                    spot=spot,
                    reliable=reliable,
                    settled=settled,
                )

    def _row(
        self,
        name: str,
        market: Market,
        begin: int,
        end: int,
        kind: Kind,
        use: Use,
        price: int,
        amount: int,
        *,
        spot: bool,
        reliable: bool,
        settled: bool,
    ) -> None:
        listed = ON_DEMAND[market.instance_type]
        on_demand = 0 if kind is Kind.REFUND else (end - begin) // SECOND * listed
        self.rows.append(
            Row(
                self.run,
                self.job,
                name,
                market,
                reliable,
                spot,
                begin,
                end,
                kind,
                use,
                price,
                amount,
                on_demand,
                settled,
            )
        )


def night(
    number: int,
    rng: np.random.Generator,
    job: str = "nightly-recsys",
    *,
    goes_on: bool = False,
    tags: Mapping[str, str] | None = None,
) -> MadeRun:
    """A run of some hours with batches of machines, some of which are taken away."""
    begin = NIGHT + number * DAY + int(rng.integers(0, 60)) * SECOND
    made = MadeRun(f"{job}-{number:06x}", job, "aws", begin, begin, rng, tags or {})
    spec: dict[str, Any] = {"name": job, "kind": "agileml", "budget": "25 USD", "tags": dict(made.tags)}
    made.tell(begin, ev.RunBegan(job, "aws", spec, "/tmp/meeting", begin))
    until = begin + int((4 + 2 * rng.random()) * HOUR)
    intents = count(1)
    (anchor,) = made.rent(next(intents), RELIABLE, 1, begin + 20 * SECOND, bid=None, reliable=True)
    made.bill(
        anchor, RELIABLE, begin + 20 * SECOND, until, spot=False, reliable=True, evicted=False, settled=not goes_on
    )
    at, stage = begin + MINUTE, 1
    markets = [*AWS, *GCP]
    while at < until - 10 * MINUTE:
        market = markets[int(rng.integers(len(markets)))]
        size = int(rng.integers(4, 17))
        life = int(min(until - at, (0.4 + rng.exponential(2.2)) * HOUR)) // SECOND * SECOND
        taken = at + life < until
        warned = rng.random() < 0.7
        names = made.rent(next(intents), market, size, at, bid=ON_DEMAND[market.instance_type] // 2)
        stage = 3 if size > 12 else 2 if size > 6 else 1
        made.tell(at + 6 * MINUTE, ev.Progressed(int((at - begin) / MINUTE), 1.0, stage))
        for name in names:
            made.bill(
                name, market, at, at + life, spot=True, reliable=False, evicted=taken, settled=taken or not goes_on
            )
            if taken and warned:
                made.tell(at + life - 2 * MINUTE, ev.MachineWarned(name, at + life, "eviction", "imds"))
            if taken or not goes_on:
                made.end(name, at + life, "evicted" if taken else "returned")
        at += life + int(rng.integers(1, 9)) * MINUTE
    clocks = int((until - begin) / MINUTE)
    made.tell(until, ev.Progressed(clocks, 0.2, stage))
    if not goes_on:
        made.end(anchor, until, "returned")
        made.tell(until, ev.RunEnded("done", f"{clocks} clocks", until, {"clocks": clocks}))
    return made


def report_of(runs: list[MadeRun], by: tuple[By, ...] = (By.JOB,), only: set[str] | None = None) -> Report:
    """The report on made-up runs."""
    stories = stories_of(made.log(1000 * i) for i, made in enumerate(runs))
    rows = [row for made in runs for row in made.rows]
    return report(rows, stories, {made.run for made in runs} if only is None else only, by, NOW)


def thirty() -> Report:
    """A month of nightly runs, and another job beside them."""
    rng = np.random.default_rng(7)
    runs = [night(i, rng, tags={"team": "ml"}) for i in range(27)]
    runs += [night(i, rng, "weekly-embeddings") for i in (5, 12, 19)]
    return report_of(runs)
