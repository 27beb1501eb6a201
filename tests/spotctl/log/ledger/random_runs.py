"""Runs in which anything happens: lives that end on boundaries of all kinds, prices that move at
any moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from bidbrain.billing import billing_rule, billing_rules
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, SECOND, parse_time
from spotctl.log import events as ev
from spotctl.log.budget import Tariff
from spotctl.log.events import Event
from spotctl.log.state import LogRow

BEGIN = parse_time("2026-03-01T21:30:00Z")
MARKETS = tuple(
    map(
        Market.parse,
        (
            "aws/us-east-1/us-east-1a/c4.xlarge",
            "aws/us-east-1/us-east-1b/c4.xlarge",
            "aws/us-west-2/us-west-2a/m3.medium",
            "gcp/us-central1/-/n2-standard-8",
        ),
    )
)
REASONS = ("evicted", "evicted", "returned", "lease ended", "failed")


@dataclass
class RandomRun:
    """A run with its prices; `rows` is its log."""

    rng: np.random.Generator
    run: str = "job-1"
    job: str = "job"
    rule: str = ""
    rows: list[LogRow] = field(default_factory=list)
    series: Mapping[Market, PriceSeries] = field(default_factory=dict)
    now: int = 0
    machines: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rule = str(self.rng.choice(list(billing_rules())))
        self.now = BEGIN + int(self.rng.integers(4 * HOUR, 9 * HOUR))
        self.series = {market: self._prices(market) for market in MARKETS}
        kind = str(self.rng.choice(["agileml", "command"]))
        tags = {"team": str(self.rng.choice(["red", "blue"]))} if self.rng.random() < 0.5 else {}
        self._add(
            BEGIN,
            ev.RunBegan(self.job, "local", {"kind": kind, "tags": tags}, "", self._whole(10**9)),
        )
        for intent in range(1, int(self.rng.integers(2, 6))):
            self._order(intent)
        if self.rng.random() < 0.7:
            self._add(self._moment(), ev.StopRequested("done", ""))
        self._told()

    @property
    def tariff(self) -> Tariff:
        """Its prices up to a moment, as a provider tells them."""
        rule = billing_rule(self.rule)
        return Tariff(lambda _: rule, lambda market, now: self.series[market].window(BEGIN, now))

    @property
    def steps(self) -> dict[str, list[tuple[int, int]]]:
        """The same as plain numbers."""
        return {
            str(market): list(zip(one.times.tolist(), one.prices.tolist(), strict=True))
            for market, one in self.series.items()
        }

    def end(self, event: Event) -> None:
        """One more event, at the end."""
        self._add(self.now, event)

    def _prices(self, market: Market) -> PriceSeries:
        changes = self.rng.integers(1, 40)
        inner = (
            BEGIN
            + self.rng.integers(1, DAY, changes)
            // self.rng.choice([1, SECOND, MINUTE])
            * SECOND
            % DAY
        )
        times = np.unique(np.concatenate(([BEGIN], inner[inner > BEGIN], [BEGIN + DAY])))
        return PriceSeries(market, times.astype(np.int64), self.rng.integers(1, 10**9, times.size))

    def _order(self, intent: int) -> None:
        market = MARKETS[self._whole(len(MARKETS))]
        bid = None if self.rng.random() < 0.3 else 10**9
        beside = [self._whole(10**7) if self.rng.random() < 0.3 else 0 for _ in range(2)]
        at = self._moment()
        listed, reliable = 1 + self._whole(10**9), self.rng.random() < 0.2
        count = 1 + self._whole(3)
        self._add(
            at,
            ev.RentIntended(intent, market, count, bid, listed, 4.0, reliable, at + HOUR, *beside),
        )
        started = min(at + self._whole(MINUTE), self.now)
        names = [f"m{intent}-{number}" for number in range(count)]
        self._add(started, ev.Rented(intent, tuple(ev.Granted(name, started) for name in names)))
        for name in names:
            self._live(name, market, started)

    def _live(self, name: str, market: Market, started: int) -> None:
        self.machines[name] = started
        if self.rng.random() < 0.9:
            self._add(min(started + self._whole(10 * MINUTE), self.now), ev.MachineRan(name))
        if self.rng.random() < 0.9:
            end = self._end(market, started)
            self._add(max(end, started), ev.MachineEnded(name, end, str(self.rng.choice(REASONS))))

    def _end(self, market: Market, started: int) -> int:
        """Often on a boundary, or beside one."""
        span = self.now - started
        unit = int(self.rng.choice([1, SECOND, MINUTE, HOUR, HOUR, HOUR]))
        end = (
            started
            + self._whole(span // unit + 1) * unit
            + int(self.rng.choice([-SECOND, -1, 0, 0, 0, 1, SECOND]))
        )
        if self.rng.random() < 0.15:
            end = int(self.rng.choice(self.series[market].times))
        if self.rng.random() < 0.1:
            end = (end // DAY + 1) * DAY
        if self.rng.random() < 0.1:
            end = started + self._whole(2 * MINUTE)
        return min(max(end, started), self.now)

    def _told(self) -> None:
        """What the work tells of machines' time, in any order."""
        for clock in range(1, 8):
            named = [name for name in self.machines if self.rng.random() < 0.5]
            moments = [
                tuple(ev.Moment(name, self._moment()) for name in named[part::3])
                for part in range(2)
            ]
            begin = self._moment()
            redone = (
                (ev.Stretch(begin, min(begin + self._whole(HOUR), self.now)),)
                if self.rng.random() < 0.6
                else ()
            )
            self._add(
                self._moment(),
                ev.Progressed(clock, 1.0, 1, ready=moments[0], left=moments[1], redone=redone),
            )
        for name in self.machines:
            if self.rng.random() < 0.1:
                self._add(
                    self._moment(),
                    ev.Sent(name, self._moment(), self._whole(2**40), self._whole(10**8)),
                )
        began = self.rows[0].event
        if (
            isinstance(began, ev.RunBegan)
            and began.spec["kind"] == "command"
            and self.rng.random() < 0.5
        ):
            self._add(self._moment(), ev.AttemptBegan(1, tuple(self.machines), 1))

    def _moment(self) -> int:
        return BEGIN + self._whole(self.now - BEGIN + 1)

    def _whole(self, below: int) -> int:
        return int(self.rng.integers(0, below))

    def _add(self, at: int, event: Event) -> None:
        self.rows.append(LogRow(len(self.rows) + 1, self.run, at, event))
