"""Bills of jobs launched under each strategy, next to the predictions of the backtest: python -m
bench.launch_bill

Jobs are launched by the orchestrator's own loop on the shipped fake, which replays the synthetic
market of the wheel in virtual time; the prediction is from the backtest's engine on the same
period. Both bill by the local market's rule, and a job that ends pays for the hours that it has
started.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bidbrain.billing import End, Life, rule_of_cloud, usd
from bidbrain.lab.backtest.run import set_up_in
from bidbrain.lab.backtest.scenario import PRICE_ALONE, Scenario
from bidbrain.replay.job import run_job
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Checkpointing, Offer, Rent
from bidbrain.strategies.registry import StrategySetup
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, MINUTE, Span
from spotctl.agent.container.payload import Payload
from spotctl.clouds.link import LeaseTimes
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import EndReason, Machine
from spotctl.clouds.wiring import library
from spotctl.home.config import load
from spotctl.log.budget import Tariff
from spotctl.log.events import RentIntended, RunBegan
from spotctl.log.outcomes import DONE
from spotctl.log.state import EVICTED, RunState
from spotctl.log.store import EventLog
from spotctl.planning.facts import OVERHEADS
from spotctl.run.environment import MachinePaths, RunEnvironment
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.reconcile import StrategyTerms
from spotctl.run.turn.service import Runner, RunRules
from spotctl.run.work.workload import Workload, WorkReport
from tests.spotctl.clouds.fake import FakeProvider

SCHEMES = ("on-demand", "standard+agileml", "proteus", "lookahead")
REGION, TYPE, RELIABLE = "sim-east", "c4.2xlarge", "m3.medium"
MACHINES, LEARNT, ROUND_SECONDS = 8, 14 * DAY, 10.0


def scenario(known: Library, starts: int, hours: float) -> tuple[Scenario, Replayed]:
    """Jobs on the synthetic market, each the work of eight on-demand machines for some hours; and
    that market.
    """
    markets = [
        market for market in known.require(Selection(clouds=("local",))) if market.region == REGION
    ]
    table = list(known.table(markets))
    histories = [series for series in table if series.market.instance_type == TYPE]
    begin, end = max(series.first for series in histories), min(series.last for series in histories)
    offers = tuple(_offer(known, series.market) for series in histories)
    small = _offer(known, next(market for market in markets if market.instance_type == RELIABLE))
    given = Scenario(
        tuple(histories),
        offers,
        Span(begin, begin + LEARNT),
        Span(begin + LEARNT, end),
        Rent(offers[0], MACHINES, None),
        Rent(small, 1, None),
        (hours,),
        2 * MACHINES * offers[0].nu,
        rule_of_cloud("local"),
        OVERHEADS,
        Checkpointing(1.0, MINUTE),
        starts,
        seed=1,
        evictions=PRICE_ALONE,
        zones_together=True,
    )
    return given, Replayed.of(table)


def _offer(known: Library, market: Market) -> Offer:
    listed = known.catalog
    price = listed.on_demand(market)
    return Offer(
        market, float(listed.instance_type(market.cloud, market.instance_type).vcpus), price.price
    )


@dataclass
class ModelledWork(Workload):
    """The engine's model of elastic training, fed with the machines that the orchestrator holds."""

    left: float
    rates: Mapping[Market, float]
    all: float = field(init=False)
    since: int | None = None
    standstill_until: int = 0
    ready: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.all = self.left

    def payload(self, order: RentIntended) -> Payload:
        """Nothing is really run."""
        return Payload(f"work-{order.intent}", ("true",))

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:  # noqa: ARG002
        """Works since the last look at the rate of the machines that were ready."""
        working = [machine for machine in machines if machine.market in self.rates]
        before = now if self.since is None else self.since
        here = {
            machine.id
            for machine in working
            if machine.ended is None and machine.started + OVERHEADS.startup <= before
        }
        self._stand_still(working, here, before)
        rate = sum(self.rates[machine.market] for machine in working if machine.id in here)
        self.left -= rate * max(now - max(before, self.standstill_until), 0)
        self.since, self.ready = now, here
        return WorkReport(
            outcome=DONE if self.left <= 0 else None, share_done=min(1 - self.left / self.all, 1.0)
        )

    def _stand_still(self, working: Sequence[Machine], here: set[str], before: int) -> None:
        ends = {machine.id: machine.end_reason for machine in working}
        gone = {ends[machine] for machine in self.ready - here}
        if EndReason.EVICTED in gone:
            self.standstill_until = max(self.standstill_until, before + OVERHEADS.eviction)
        elif gone or (here - self.ready and self.ready):
            self.standstill_until = max(self.standstill_until, before + OVERHEADS.resize)


@dataclass(frozen=True)
class JobBill:
    """A job's cost in dollars, how often machines were taken from the job, and its duration in
    hours.
    """

    usd: float
    evictions: int
    hours: float


def predicted(given: Scenario, chosen: StrategySetup, job: ReplayedJob) -> JobBill:
    """The job under the backtest's engine."""
    run = run_job(job, chosen.strategy, given.replay_in(REGION), given.overheads, chosen.recovery)
    assert run.end is not None
    dollars = sum(
        _settled(given, tenure.rent, Life(tenure.start, tenure.end, _left(tenure.ended)))
        for tenure in run.tenures
    )
    if chosen.reliable and given.reliable is not None:
        dollars += _settled(given, given.reliable, Life(job.start, run.end, End.LEFT))
    return JobBill(dollars, run.evictions, (run.end - job.start) / HOUR)


def launched(given: Scenario, chosen: StrategySetup, job: ReplayedJob, market: Replayed) -> JobBill:
    """The job under the orchestrator, in virtual time."""
    assert given.reliable is not None
    cloud, reliable = FakeProvider(market, job.start, most_machines=10**6), given.reliable
    work = ModelledWork(job.work, {offer.market: offer.nu for offer in given.offers})
    terms = StrategyTerms(
        given.offers, given.baseline, given.most_nu, job.work, reliable if chosen.reliable else None
    )
    tariff = Tariff(lambda _: given.billing, lambda rented, _: market.histories[rented])
    times, here = LeaseTimes(startup=OVERHEADS.startup), Path()
    environment = RunEnvironment(
        "run", "bench", cloud, cloud.now, times, here, here, here, MachinePaths("", "", "")
    )
    with tempfile.TemporaryDirectory() as folder, EventLog(Path(folder) / "log.sqlite") as log:
        journal = Journal(log, "run", cloud.now)
        journal.write(RunBegan("job", "fake", {}, "", 0))
        runner = Runner(
            journal, environment, work, RunRules(lambda: (chosen.strategy, terms), tariff)
        )
        runner.run(lambda: cloud.advance(ROUND_SECONDS), lambda: 0)
        taken = {
            (m.allocation, m.ended)
            for m in runner.state.machines.values()
            if m.end_reason == EVICTED
        }
    known = {offer.market: offer for offer in (*given.offers, reliable.offer)}
    dollars = sum(_billed(given, machine, known[machine.market]) for machine in cloud.everything)
    return JobBill(dollars, len(taken), (cloud.now() - job.start) / HOUR)


def _billed(given: Scenario, machine: Machine, offer: Offer) -> float:
    assert machine.ended is not None
    how = End.EVICTED if machine.end_reason is EndReason.EVICTED else End.LEFT
    return _settled(given, Rent(offer, 1, machine.bid), Life(machine.started, machine.ended, how))


def _settled(given: Scenario, rent: Rent, life: Life) -> float:
    histories = {series.market: series for series in given.histories}
    prices = rent.offer.on_demand if rent.bid is None else histories[rent.offer.market]
    return usd(given.billing.bill(life, prices).amount) * rent.machines


def _left(ended: End) -> End:
    """The end by which an hour is billed; the rest of the hour goes unused."""
    return End.EVICTED if ended is End.EVICTED else End.LEFT


@dataclass(frozen=True)
class Compared:
    """Both bills of the same jobs under a scheme."""

    name: str
    launched: JobBill
    predicted: JobBill


def compare(
    known: Library, starts: int, hours: float, schemes: Sequence[str] = SCHEMES
) -> list[Compared]:
    """The mean bills of jobs at random moments."""
    given, market = scenario(known, starts, hours)
    work = MACHINES * given.baseline.offer.nu * hours * HOUR
    moments = (
        np.random.default_rng(given.seed)
        .integers(given.test.start, given.latest_start(hours), starts)
        .tolist()
    )
    jobs = [
        ReplayedJob(at, work, given.test.end, given.offers, given.baseline, given.most_nu)
        for at in moments
    ]
    rows = []
    for name in schemes:
        chosen = set_up_in(given, name, REGION)
        pairs = [
            (launched(given, chosen, job, market), predicted(given, chosen, job)) for job in jobs
        ]
        rows.append(
            Compared(
                name, _mean([real for real, _ in pairs]), _mean([expected for _, expected in pairs])
            )
        )
    return rows


def _mean(bills: Sequence[JobBill]) -> JobBill:
    dollars, evictions, hours = (
        sum(getattr(bill, name) for bill in bills) for name in ("usd", "evictions", "hours")
    )
    return JobBill(dollars / len(bills), evictions, hours / len(bills))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=20, help="jobs under each strategy")
    parser.add_argument(
        "--hours", type=float, default=4.0, help="how long the baseline takes on demand"
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        rows = compare(library(load({}, Path(home))), args.starts, args.hours)
    base = {row.name: row.launched.usd for row in rows}
    print(f"{args.starts} jobs of {args.hours:g} hours on {MACHINES} x {TYPE}, mean bills")
    print(
        "strategy            launched   predicted   differs   evictions       hours    of "
        "on-demand   of standard"
    )
    for row in rows:
        ours, theirs = row.launched, row.predicted
        print(
            f"{row.name:18} {ours.usd:9.3f}$ {theirs.usd:9.3f}$ {ours.usd / theirs.usd - 1:+8.1%}"
            f" {ours.evictions:4}, {theirs.evictions:4} {ours.hours:5.2f}, {theirs.hours:5.2f}"
            f" {ours.usd / base['on-demand']:13.0%} {ours.usd / base['standard+agileml']:13.0%}"
        )


if __name__ == "__main__":
    main()
