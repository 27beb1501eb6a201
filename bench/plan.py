"""A plan over tens of thousands of offers: from price histories in memory to machines, bids and
reasons.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np

from bench import harness
from bench.harness import Row, shown, table
from bidbrain.forecast.forecast import forecast
from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.market import Market
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, NANOS_PER_DOLLAR, SECOND, parse_time
from spotctl.files.job.programs import Checkpoint, Command, Stop, Training
from spotctl.files.job.resources import Needs, Reliable, Resources
from spotctl.files.job.spec import JobSpec, Objective, Range, Within
from spotctl.planning.errors import OverBudget
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.forecast import forecast_job
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan

OFFERS, TYPES, REGIONS, ZONES = 50_000, 625, 20, "abcd"
MAX_SECONDS, MAX_FORECAST_SECONDS, MAX_REFUSAL_SECONDS = 0.3, 2.0, 10.0
# Nothing here waits, and one process computes, so that a busy computer hardly matters.
seconds = partial(harness.seconds, clock=process_time)
# AWS repeats prices once a day and changes them about as often.
_EVENTS, _DAYS = 40, 30
_START = parse_time("2026-01-01")
_STRATEGIES = ("auto", "proteus", "lookahead", "standard+agileml")


def catalog() -> Catalog:
    """Types of 2 to 96 vCPUs, in as many regions as sell them all."""
    types = tuple(
        InstanceType("aws", f"f{i % 25}.s{i // 25}", 2 + 4 * (i // 25), 8.0 + 16 * (i // 25))
        for i in range(TYPES)
    )
    prices = tuple(
        OnDemandPrice(
            "aws", _region(r), kind.name, "linux", _START, kind.vcpus * 50_000_000 + r, "generated"
        )
        for r in range(REGIONS)
        for kind in types
    )
    return Catalog(types, prices)


def histories(known: Catalog, seed: int = 0) -> PriceTable:
    """Random walks at a fifth to four fifths of the on-demand price."""
    rng = np.random.default_rng(seed)
    offers = [
        (Market("aws", price.region, f"{price.region}{zone}", price.instance_type), price.price)
        for price in known.prices
        for zone in ZONES
    ]
    offers.sort(key=lambda offer: str(offer[0]))
    listed = np.array([price for _, price in offers])
    share = np.clip(
        rng.uniform(0.2, 0.8, (OFFERS, 1))
        + np.cumsum(rng.normal(0, 0.01, (OFFERS, _EVENTS)), axis=1),
        0.1,
        1,
    )
    gaps = rng.integers(1, 2 * _DAYS * DAY // _EVENTS // SECOND, (OFFERS, _EVENTS))
    times = _START + _DAYS * DAY - np.cumsum(gaps, axis=1)[:, ::-1] * SECOND
    prices = np.round(share * listed[:, None] / 100_000) * 100_000
    starts = np.arange(0, OFFERS * _EVENTS + 1, _EVENTS, dtype=np.int64)
    return PriceTable(
        tuple(market for market, _ in offers),
        starts,
        times.ravel().astype(np.int64),
        prices.ravel().astype(np.int64),
    )


def job(strategy: str = "auto", objective: Objective = Objective.MIN_COST) -> JobSpec:
    """Anything with 8 vCPUs or more, anywhere."""
    resources = Resources(("aws",), Range(4, 64), Reliable(1), needs=Needs(vcpus=Range(8)))
    training = Training("mf", Stop(span=10 * HOUR))
    return JobSpec("bench", training, resources, Path(), strategy=strategy, objective=objective)


def run() -> str:
    """Measures everything and returns the section."""
    known = catalog()
    prices = histories(known)
    at = _START + _DAYS * DAY
    snapshot = MarketSnapshot.of(prices, known, at)

    def planned(strategy: str = "auto", objective: Objective = Objective.MIN_COST) -> list[JobPlan]:
        return plan_jobs(
            PlanningFacts((Job(job(strategy, objective)),), MarketSnapshot.of(prices, known, at))
        )

    rows = [
        Row(
            "offers arranged as columns",
            shown(seconds(partial(MarketSnapshot.of, prices, known, at))),
            "-",
        ),
        Row(
            "plan on them, arranged before",
            shown(seconds(partial(plan_jobs, PlanningFacts((Job(job()),), snapshot)))),
            "-",
        ),
        *(
            _limited(f"whole plan, strategy {name}", seconds(partial(planned, name)))
            for name in _STRATEGIES[1:]
        ),
        *(
            _limited(f"whole plan with the forecasts that auto compares, {objective}", taken, most)
            for objective in (Objective.MIN_COST, Objective.MAX_THROUGHPUT)
            for taken in (seconds(partial(planned, objective=objective), runs=3),)
            for most in (MAX_SECONDS + MAX_FORECAST_SECONDS,)
        ),
        *(
            _forecast_row(what, PlanningFacts((planned_job,), snapshot))
            for what, planned_job in (
                *((f"10 hours, strategy {name}", Job(job(name))) for name in _STRATEGIES),
                ("a mixture", mixed()),
                ("a mixture of 100,000 clocks", mixed(100_000, hours=250)),
                ("100,000 clocks", long()),
                ("40 hours in 4 regions", roaming()),
            )
        ),
        _limited(
            "whole plan of 100,000 clocks for $5, refused with a budget that is accepted",
            seconds(
                partial(refuse, PlanningFacts((long(5 * NANOS_PER_DOLLAR),), snapshot)), runs=3
            ),
            MAX_REFUSAL_SECONDS,
        ),
    ]
    return table(
        f"A plan over {OFFERS:,} offers",
        f"{TYPES} generated types in {REGIONS} regions of {len(ZONES)} zones, with {_EVENTS} "
        f"prices each over {_DAYS}"
        " days. From histories and catalog in memory to machines, bids and reasons, as `spotctl "
        "plan` does once it is"
        " started and has read them. The forecast of cost and duration, which follows and against "
        "which a budget is checked, is timed by itself. Times are those of the processor.",
        rows,
    )


def mixed(clocks: int = 2000, hours: int = 5) -> Job:
    """A job whose deadline asks for machines of two types."""
    spec = replace(_training(clocks), objective=Objective.MIN_COST_SLO)
    return Job(spec, _START + _DAYS * DAY + hours * HOUR)


def long(budget: int | None = None) -> Job:
    """A job of days, without a deadline."""
    return Job(replace(_training(100_000), budget=budget))


def _training(clocks: int) -> JobSpec:
    resources = Resources(
        ("aws",), Range(1, 8), Reliable(1), types=("f0.s0", "f0.s1"), regions=(_region(0),)
    )
    speeds = {"f0.s0": 48.0, "f0.s1": 100.0}
    return JobSpec(
        "bench", Training("mf", Stop(clocks=clocks)), resources, Path(), throughputs=speeds
    )


def refuse(unaffordable: PlanningFacts) -> None:
    """Plans a job that no machines do within its budget."""
    try:
        plan_jobs(unaffordable)
    except OverBudget:
        return
    raise AssertionError("the job was to be refused")


def roaming() -> Job:
    """A command that may move between regions, with a checkpoint of 50 GB."""
    resources = Resources(
        ("aws",), Range(1, 1), types=("f0.s3",), regions=tuple(map(_region, range(4)))
    )
    program = Command("train", checkpoint=Checkpoint("s3://bench/", size=50 * 10**9))
    at = _START + _DAYS * DAY
    spec = JobSpec("bench", program, resources, Path(), deadline=Within(60 * HOUR))
    return Job(spec, at + 60 * HOUR, hours=40.0)


def _forecast_row(what: str, facts: PlanningFacts) -> Row:
    job_plan = plan_jobs(facts)[0]
    # `forecast_of` would play the plan once and keep the answer.
    taken = seconds(lambda: forecast(forecast_job(job_plan), job_plan.fleet.market_history), runs=3)
    return _limited(f"forecast of {what}", taken, MAX_FORECAST_SECONDS)


def _limited(what: str, taken: float, most: float = MAX_SECONDS) -> Row:
    return Row(what, shown(taken), f"at most {shown(most)}", f"{most / taken:.3g}x")


def _region(number: int) -> str:
    return f"us-east-{number + 1}"
