"""Forecasts of small jobs: by hand where nothing can go wrong, and calibrated where much can."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf
from typing import ClassVar

import numpy as np
import pytest

from bidbrain.billing import billing_rule
from bidbrain.eviction.hazard import PRIOR, Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.forecast import windows
from bidbrain.forecast.forecast import PastOutcomes, calibrated, forecast, merits, pinball
from bidbrain.forecast.values import Forecast, ForecastJob, KnownPast, LaunchTimes, Spread
from bidbrain.forecast.windows import PastMarket, Played, clearly_costs_more, plays
from bidbrain.strategies.base import Decision, Offer, Overheads, Recovery, Rent, Return, Situation
from bidbrain.strategies.known_spells import KnownSpells
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE
from tests.pricing_data.histories import START

CENT = 10_000_000
MARKET = Market("aws", "us-east-1", "us-east-1a", "a.large")
OFFER = Offer(MARKET, 4.0, 20 * CENT)
FAR = Offer(Market("aws", "us-west-2", "us-west-2a", "a.large"), 4.0, 20 * CENT)
NOW = START + 10 * DAY


class Fill:
    """Rents four machines of the first open market at the on-demand price as the bid, or on
    demand."""

    name = "fill"

    def decide(self, situation: Situation) -> Decision:
        """Fills what is empty."""
        soon = situation.now + 10 * MINUTE
        if situation.holdings:
            return Decision((), soon)
        return Decision((Rent(OFFER, 4, OFFER.on_demand if situation.offers else None),), soon)


def prices(*steps: tuple[float, int]) -> PriceSeries:
    """Prices from hours on, in cents."""
    times = np.array([START + round(hour * HOUR) for hour, _ in steps] + [NOW], dtype=np.int64)
    cents = np.array([cents for _, cents in steps] + [steps[-1][1]], dtype=np.int64)
    return PriceSeries(MARKET, times, cents * CENT)


JOB = ForecastJob(
    decider=lambda _: Fill(),
    offers=(OFFER,),
    baseline=Rent(OFFER, 4, None),
    most_nu=16.0,
    work=16.0 * 3 * HOUR,
    longest=24 * HOUR,
    billing=billing_rule("per-second"),
    overheads=Overheads(5 * MINUTE, MINUTE, MINUTE // 2),
)
FLAT = KnownPast(NOW, {MARKET: prices((0, 5))})


def test_where_nothing_happens_the_forecast_is_the_bill() -> None:
    """Three hours of work and five minutes of start-up."""
    found = forecast(JOB, FLAT)
    hours = 3 + 5 / 60
    assert found.hours.likely == pytest.approx((hours, hours))
    assert found.usd.likely == pytest.approx((4 * 0.05 * hours,) * 2, rel=1e-3)
    assert (found.budget_kept(0.7), found.budget_kept(0.5), found.deadline_met(4.0)) == (
        1.0,
        0.0,
        1.0,
    )
    assert found.basis.startswith(
        "the job played over 192 windows of the last 10 days; evictions where the price rose"
    )


def test_begun_hours_reliable_machines_and_the_time_around_the_work_are_billed() -> None:
    small = Rent(Offer(replace(MARKET, instance_type="s"), 1.0, 10 * CENT), 1, None)
    times = LaunchTimes(order=20 * MINUTE, ending=10 * MINUTE)
    found = forecast(
        replace(JOB, billing=billing_rule("hourly-refund"), reliable=small, times=times), FLAT
    )
    assert found.hours.median == pytest.approx(3 + 35 / 60)
    # From the order on, 3 hours and 15 minutes: four begun hours.
    assert found.usd.median == pytest.approx(4 * (4 * 0.05 + 0.10), rel=1e-3)
    assert [(term.market.instance_type, term.machines) for term in found.terms] == [
        ("a.large", 4),
        ("s", 1),
    ]
    assert sum(term.usd for term in found.terms) == pytest.approx(found.usd.median)


class MovesOn:
    """Works in one market for an hour, then in another."""

    name = "moves on"

    def decide(self, situation: Situation) -> Decision:
        """The other market once the first has been held for an hour."""
        if not situation.holdings:
            return Decision((Rent(OFFER, 4, OFFER.on_demand),), situation.now + HOUR)
        (held, *_) = situation.holdings
        if held.rent.offer != OFFER:
            return Decision((), situation.now + HOUR)
        leaves = situation.now + 5 * MINUTE
        return Decision(
            (Return(held.allocation, leaves), Rent(FAR, 4, FAR.on_demand)), leaves + MINUTE
        )


def test_a_move_of_the_checkpoint_is_billed_where_it_leaves() -> None:
    """An hour in one region, then the rest in another, which starts up while the first still
    works."""
    histories = {one: replace(prices((0, 5)), market=one) for one in (MARKET, FAR.market)}
    job = replace(JOB, decider=lambda _: MovesOn(), offers=(OFFER, FAR), nodes=4, saved_gb=50.0)
    still = forecast(job, KnownPast(NOW, histories))
    paid = {(MARKET, FAR.market): 2.5, (FAR.market, MARKET): 100.0}
    moved = forecast(
        replace(job, moving=lambda origin, target: paid.get((origin, target), 0.0)),
        KnownPast(NOW, histories),
    )
    assert moved.usd.median == pytest.approx(still.usd.median + 2.5)
    by_market = {term.market: term.usd for term in moved.terms}
    assert by_market[MARKET] == pytest.approx(2.5 + 4 * 0.05 * (65 / 60), rel=0.01)


def test_a_price_level_counts_as_it_is_now() -> None:
    """The price steps up every day: the past days were cheaper, and cost in proportion."""
    rising = prices(*((24 * day, 3 + day) for day in range(10)))
    found = forecast(JOB, KnownPast(NOW, {MARKET: rising}))
    cost = 4 * 0.12 * (3 + 5 / 60)
    low, high = found.usd.likely
    assert 0.9 * cost < low <= found.usd.median <= high < 1.25 * cost


def test_evictions_are_drawn_from_a_known_rate_and_widen_the_interval() -> None:
    deadly = replace(FLAT, hazards={MARKET: Hazard((), Exposure(50.0, 100.0))})
    calm, wild = forecast(JOB, FLAT), forecast(JOB, deadly)
    assert wild.hours.likely[1] > calm.hours.likely[1] + 4 / 60
    # At the best it has spot machines all the time, at the worst none: those on demand cost four
    # times as much.
    assert wild.usd.likely == pytest.approx((calm.usd.median, 4 * calm.usd.median))
    assert "spot comes and goes as observed in 1 market" in wild.basis


def test_a_speed_that_is_not_known_widens_the_interval_and_keeps_the_median() -> None:
    sure, unsure = forecast(JOB, FLAT), forecast(replace(JOB, speed_spread=0.2), FLAT)
    assert unsure.hours.median == pytest.approx(sure.hours.median, rel=0.05)
    low, high = unsure.hours.likely
    # P10 and P90 of the normal distribution lie 1.28 standard deviations from its middle.
    assert low == pytest.approx(5 / 60 + 3 * exp(-1.28 * 0.2), rel=0.05)
    assert high == pytest.approx(5 / 60 + 3 * exp(1.28 * 0.2), rel=0.05)


def test_a_gang_without_a_checkpoint_starts_again_after_an_eviction() -> None:
    """Evictions every two hours on average, for three hours of work."""
    deadly = replace(FLAT, hazards={MARKET: Hazard((), Exposure(50.0, 100.0))})
    hourly = Recovery(interval=lambda _: HOUR)
    kept = forecast(replace(JOB, nodes=4, recovery=hourly), deadly)
    again = forecast(replace(JOB, nodes=4, recovery=replace(hourly, resumes=False)), deadly)
    assert again.hours.likely[1] > kept.hours.likely[1] + 0.5


def test_where_spot_is_known_to_be_gone_the_job_is_on_demand() -> None:
    """The last half day before now had no machine, or always some."""
    capacity_evicts = replace(FLAT, hazards={MARKET: PRIOR})
    gone, there = (
        forecast(JOB, replace(capacity_evicts, spells={MARKET: KnownSpells(up=up, age=12.0)}))
        for up in (False, True)
    )
    assert gone.usd.median == pytest.approx(4 * there.usd.median)
    assert "spot comes and goes as observed in 1 market" in gone.basis
    unknown = forecast(JOB, capacity_evicts)
    assert unknown.usd.likely == pytest.approx((there.usd.median, gone.usd.median))
    assert (
        "no availability of 1 market is recorded, so spot may be unobtainable there for hours"
        in unknown.basis
    )


def test_a_history_shorter_than_the_job_still_gives_a_forecast() -> None:
    short = KnownPast(NOW, {MARKET: prices((0, 5)).window(NOW - 2 * HOUR, NOW)})
    found = forecast(JOB, short)
    assert found.hours.median == pytest.approx(3 + 5 / 60)
    assert "of the last 2 hours" in found.basis


ANY = (0.0, 10.0)
"""Ends of costs that hardly bind."""


def outcomes(seed: int, count: int = 160) -> tuple[PastOutcomes, float, float]:
    """Costs that follow a slowly moving level, with noise; the last level and the cost that then
    followed.
    """
    rng = np.random.default_rng(seed)
    level = np.exp(np.cumsum(rng.normal(0, 0.03, count + 1)))
    cost = level * np.exp(rng.normal(0, 0.1, count + 1))
    starts = START + np.arange(count, dtype=np.int64) * 2 * HOUR
    return (
        PastOutcomes(starts, cost[:-1], level[:-1], 3.0 * HOUR, ANY),
        float(level[-1]),
        float(cost[-1]),
    )


def test_four_of_five_outcomes_lie_in_the_interval_and_the_loss_is_lower_than_without_the_level() -> (
    None
):
    inside, ours, plain = 0, 0.0, 0.0
    for seed in range(150):
        seen, level, cost = outcomes(seed)
        spread = calibrated(seen, level, int(seen.starts[-1]), scales=True)
        low, high = spread.likely
        inside += low <= cost <= high
        value = np.array([cost])
        ours += float(pinball(np.array([[low, spread.median, high]]), value)[0])
        plain += float(pinball(np.quantile(seen.values, [0.1, 0.5, 0.9])[None], value)[0])
    assert 0.72 <= inside / 150 <= 0.88
    assert ours < 0.7 * plain


def test_no_outcome_lies_beyond_what_machines_can_do() -> None:
    """A level three times as high as ever before scales costs beyond that of a job on demand."""
    rng = np.random.default_rng(3)
    starts = START + np.arange(40, dtype=np.int64) * 6 * HOUR
    levels = np.exp(rng.normal(0, 0.3, 40))
    ends = (0.8, 2.5)
    values = np.clip(levels * np.exp(rng.normal(0, 0.1, 40)), *ends)
    seen = PastOutcomes(starts, values, levels, 12.0 * HOUR, ends)
    for level in (0.1, 1.0, 9.0):
        spread = calibrated(seen, level, int(starts[-1]), scales=True)
        quantiles = [spread.quantile(share / 20) for share in range(21)]
        assert quantiles == sorted(quantiles)
        assert (quantiles[0], quantiles[-1]) == ends
    # Where hardly a window began at such a price, both ends are likely.
    assert spread.likely == ends


@pytest.mark.parametrize("days", [1, 3, 10])
def test_few_windows_leave_the_odds_of_a_limit_open(days: int) -> None:
    """Odds are those of the plays; what lies beyond them may be all on one side."""
    past = KnownPast(NOW, {MARKET: prices((0, 5)).window(NOW - days * DAY, NOW)})
    played = forecast(JOB, past)
    budget = 4 * 0.05 * 4
    assert played.budget_kept(budget) == pytest.approx(1.0)
    low, high = played.usd.at_most_between(budget)
    assert high == pytest.approx(1.0)
    windows = days * DAY / (3 * HOUR + 5 * MINUTE)
    assert low == pytest.approx(1 - 2 / (windows + 2), abs=0.02)


def test_the_past_before_a_change_of_the_market_fades() -> None:
    """Jobs became twice as expensive at the same price level: what happened since then counts."""
    rng = np.random.default_rng(7)
    starts = START + np.arange(160, dtype=np.int64) * 2 * HOUR
    values = np.where(np.arange(160) < 80, 1.0, 2.0) * np.exp(rng.normal(0, 0.05, 160))
    seen = PastOutcomes(starts, values, np.ones(160), 3.0 * HOUR, (0.5, 3.0))
    low, high = calibrated(seen, 1.0, int(starts[-1]), scales=True).likely
    assert 1.7 < low < 2.0 < high < 2.3
    # Where nothing changed, all of the past counts.
    same = PastOutcomes(starts, values[rng.permutation(160)], np.ones(160), 3.0 * HOUR, (0.5, 3.0))
    low, high = calibrated(same, 1.0, int(starts[-1]), scales=True).likely
    assert low < 1.1
    assert high > 1.9


def test_a_forecast_is_the_same_each_time() -> None:
    deadly = replace(FLAT, hazards={MARKET: Hazard((), Exposure(50.0, 100.0))})
    assert forecast(JOB, deadly).usd.likely == forecast(JOB, deadly).usd.likely


class Counted(PastMarket):
    """A past market that notes the number of each play."""

    numbers: ClassVar[list[int]] = []

    def play(self, start: int, number: int, most_usd: float = inf) -> tuple[Played, int]:
        """The play, which is noted."""
        self.numbers.append(number)
        return super().play(start, number, most_usd)


@pytest.mark.parametrize(
    ("longer", "most", "numbers"), [(1, 100, range(16)), (40, 100, range(0, 16, 2))]
)
def test_a_job_that_decides_often_is_played_in_its_trials_alone(
    longer: int, most: int, numbers: range
) -> None:
    """It decides about 19 times in three hours; a job of five days is played eight times, as plays
    would overlap.
    """
    Counted.numbers.clear()
    job = replace(JOB, work=JOB.work * longer, longest=JOB.longest * longer, most_decisions=most)
    played = plays(Counted(job, FLAT))
    assert sorted(Counted.numbers) == [*numbers]
    assert [play.start for play in played] == sorted(play.start for play in played)


class Daily(Fill):
    """Looks once a day."""

    def decide(self, situation: Situation) -> Decision:
        """Fills what is empty."""
        return replace(super().decide(situation), wake_at=situation.now + DAY)


@pytest.mark.parametrize(("hours", "played"), [(900, 8), (1200, 4)])
def test_a_job_longer_than_the_past_and_than_a_thousand_hours_is_played_in_its_first_trials(
    monkeypatch: pytest.MonkeyPatch, hours: int, played: int
) -> None:
    """Its price varies, but a play runs through all of the past: from eight windows, its forecast
    is the same to a part in a thousand.
    """
    steps = [(0, 5), (30, 9), (70, 4), (160, 7)]
    past = KnownPast(NOW, {MARKET: prices(*steps)})
    job = replace(
        JOB,
        decider=lambda _: Daily(),
        work=16.0 * hours * HOUR,
        longest=3 * hours * HOUR,
        most_decisions=100,
    )
    Counted.numbers.clear()
    of_trials = plays(Counted(job, past))
    assert len(Counted.numbers) == len(of_trials) == played

    few = forecast(job, past)
    monkeypatch.setattr(windows, "_VERY_LONG", inf)
    many = forecast(job, past)
    assert few.usd.median == pytest.approx(many.usd.median, rel=0.001)
    assert few.usd.likely == pytest.approx(many.usd.likely, rel=0.001)


def test_a_play_that_ends_early_costs_more_than_the_most_and_only_then() -> None:
    """Machines are refunded for the hour in which they are evicted, every two hours on average."""
    deadly = replace(FLAT, hazards={MARKET: Hazard((), Exposure(50.0, 100.0))})
    market = PastMarket(
        replace(JOB, billing=billing_rule("hourly-refund"), work=JOB.work * 5), deadly
    )
    seen = set()
    for number, start in [(number, market.first + number * 10 * HOUR) for number in range(12)]:
        whole, cut = (market.play(start, number, most)[0] for most in (inf, 11.0))
        assert (cut.usd > 11.0) == (whole.usd > 11.0)
        assert whole.finished
        seen.add(cut.finished)
    assert seen == {True, False}
    dear, cheap = (
        min(market.play(*one)[0].usd / 1.5 for one in starts(market)) * part
        for part in (0.99, 1.01)
    )
    assert clearly_costs_more(market, dear)
    assert not clearly_costs_more(market, cheap)


def starts(market: PastMarket) -> list[tuple[int, int]]:
    """Of the plays that decide about a refusal: four of sixteen that are spread over the past."""
    return [(market.first + number * market.span // 16, number) for number in (0, 4, 8, 12)]


def outcome(usd: float, hours: float, unfinished: float = 0.0, spread: float = 0.1) -> Forecast:
    """What ten plays of the past say, which are spread a little around a cost and a time."""
    around, alike = np.linspace(1 - spread, 1 + spread, 10), np.full(10, 0.1)
    cost, length, rate = (Spread.of(value * around, alike) for value in (usd, hours, usd / hours))
    return Forecast(cost, length, rate, (), unfinished, "plays")


def test_of_two_plans_the_one_that_keeps_its_limits_is_better_then_the_cheaper_one_then_the_faster_one() -> (
    None
):
    cheap, fast = outcome(8.0, 5.0), outcome(10.0, 4.0)
    assert merits(cheap) < merits(fast)
    assert merits(fast, hurries=True) < merits(cheap, hurries=True)
    assert merits(fast, value_of_time_usd=3.0) < merits(cheap, value_of_time_usd=3.0)
    assert merits(outcome(8.001, 4.0)) < merits(cheap), "costs that agree in three digits"
    assert merits(cheap) < merits(outcome(8.0, 4.999, spread=0.5)), (
        "times too: the one that may cost less at most"
    )
    assert merits(fast, hours_left=4.5) < merits(cheap, hours_left=4.5), "the deadline comes first"
    assert merits(fast, hours_left=5.0) < merits(cheap, hours_left=5.0), (
        "and is to be kept more often than not"
    )
    assert merits(cheap, budget_usd=9.0) < merits(fast, budget_usd=9.0, value_of_time_usd=9.0)
    assert merits(outcome(8.0, 9.0), hours_left=8.7) < merits(outcome(5.0, 9.2), hours_left=8.7), (
        "neither is likely"
    )
    assert merits(fast) < merits(outcome(5.0, 4.0, unfinished=0.2)), (
        "one that may not end is no better"
    )
