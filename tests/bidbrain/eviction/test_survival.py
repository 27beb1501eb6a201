from __future__ import annotations

from dataclasses import replace
from math import exp
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from bidbrain.eviction.survival import (
    AGELESS,
    AgeProfile,
    Exposure,
    by_market,
    exposure_of_lives,
)
from pricing_data.availability import AvailabilityTrace, Lifetime
from pricing_data.sources.observations import read_lifetimes

lives_of = st.lists(st.tuples(st.integers(1, 8), st.booleans()), min_size=1, max_size=25)


def lives(*told: tuple[float, bool]) -> list[Lifetime]:
    return [
        Lifetime("gcp", "us-west1-b", "v100x1", 0, hours * 3600, preempted)
        for hours, preempted in told
    ]


def exponential_lives(
    rng: np.random.Generator, rate: float, watched: float, count: int
) -> list[Lifetime]:
    """Lives at a constant rate per hour, each observed for a random time with a mean of `watched`
    hours.
    """
    lived, seen = rng.exponential(1 / rate, count), rng.exponential(watched, count)
    return lives(*((float(min(a, b)), bool(a <= b)) for a, b in zip(lived, seen, strict=True)))


def share_beyond(hours: float, known: list[Lifetime]) -> float:
    """The share of machines that live beyond an age: Kaplan-Meier's product over the ages of
    evictions.
    """
    seconds = np.array([life.seconds for life in known])
    evicted = np.array([life.preempted for life in known])
    ages = np.unique(seconds[evicted & (seconds <= hours * 3600)])
    return float(
        np.prod([1 - np.sum(evicted & (seconds == age)) / np.sum(seconds >= age) for age in ages])
    )


def test_censored_lives_correct_the_estimate() -> None:
    """Truth: half live beyond 10 hours. Observed for 6 on average; only estimates with censoring
    are right.
    """
    rng = np.random.default_rng(11)
    known = exponential_lives(rng, np.log(2) / 10, 6.0, 3000)
    assert share_beyond(10, known) == pytest.approx(0.5, abs=0.03)
    ended = [life for life in known if life.preempted]
    without = sum(life.seconds > 36_000 for life in ended) / len(ended)
    as_if_evicted = sum(life.seconds > 36_000 for life in known) / len(known)
    assert without < 0.3
    assert as_if_evicted < 0.3
    rate = exposure_of_lives(known)
    assert rate.evictions / rate.hours == pytest.approx(np.log(2) / 10, rel=0.05)
    ignoring = exposure_of_lives(ended)
    assert ignoring.evictions / ignoring.hours > 2 * np.log(2) / 10


def test_recorded_lives_of_2020(shared_data: Path) -> None:
    """Some lives were ended by their users. Without those hours machines look more short-lived than
    they were.
    """
    for name, ages, least in (("gcp", (0.5, 3.0, 12.0), 1.03), ("aws", (1.0, 3.0, 12.0), 1.3)):
        known = read_lifetimes(shared_data / "availability" / f"dime2020_{name}_lifetimes.csv")
        ended = [life for life in known if life.preempted]
        assert 0 < len(ended) < len(known)
        for age in ages:
            assert share_beyond(age, known) > least * share_beyond(age, ended)
        with_hours, without = exposure_of_lives(known), exposure_of_lives(ended)
        assert without.evictions / without.hours > 1.04 * with_hours.evictions / with_hours.hours


def test_rates_by_market_and_one_age_profile_reproduce_the_survival_in_each_market(
    shared_data: Path,
) -> None:
    """Of the lives of 2020, against Kaplan-Meier, which has no bands."""
    known = read_lifetimes(shared_data / "availability" / "dime2020_gcp_lifetimes.csv")
    profile = AgeProfile.of(known, (0.0, 0.25, 1.0, 3.0, 12.0, 23.0), 1.0)
    errors = []
    for its in (one for one in by_market(known).values() if len(one) >= 25):
        seen, plain = exposure_of_lives(its, profile), exposure_of_lives(its)
        for hours in (0.25, 1.0, 3.0):
            survival = exp(-seen.evictions / seen.hours * profile.mean_hours(0, hours))
            constant = exp(-plain.evictions / plain.hours * hours)
            share = share_beyond(hours, its)
            errors.append((survival - share, constant - share))
    by_age, ageless = np.sqrt(np.mean(np.square(errors), axis=0))
    assert by_age < 0.12
    # A constant rate from the same lives is far off: most of them ended in their first hour.
    assert ageless > 2 * by_age


def test_calm_markets_do_not_make_age_look_calm() -> None:
    """Truth: the rate does not depend on age, and one market is 25 times as dangerous as the
    other."""
    rng = np.random.default_rng(14)
    rough, calm = (
        lives(*((float(age), True) for age in rng.exponential(mean, 500))) for mean in (0.4, 10.0)
    )
    known = [*rough, *(replace(one, zone="elsewhere") for one in calm)]
    profile = AgeProfile.of(known, (0.0, 1.0, 6.0), 1.0)
    assert profile.factors == pytest.approx((1.0, 1.0, 1.0), abs=0.15)
    for its, rate in ((rough, 2.5), (calm, 0.1)):
        seen = exposure_of_lives(its, profile)
        assert seen.evictions / seen.hours == pytest.approx(rate, rel=0.15)


def test_a_market_whose_machines_were_all_lost_at_once_says_nothing_of_ages() -> None:
    known = lives((0.5, True), (3.0, True), (4.0, False))
    at_once = [replace(one, zone="elsewhere") for one in lives((0.0, True), (0.0, True))]
    bands = (0.0, 1.0)
    assert AgeProfile.of([*known, *at_once], bands, 1.0) == AgeProfile.of(known, bands, 1.0)
    assert AgeProfile.of(at_once, bands, 1.0) == AGELESS


def test_hours_of_lives_that_end_young_count_as_the_dangerous_ones_they_are() -> None:
    """Truth: 2 per hour in the first hour, 0.2 later; machines that go back after an hour show only
    the first.
    """
    profile = AgeProfile((0.0, 1.0), (5.0, 0.5))
    rng = np.random.default_rng(15)
    ages = rng.exponential(0.5, 2000)
    seen = exposure_of_lives(
        lives(*((min(float(age), 1.0), bool(age < 1)) for age in ages)), profile
    )
    assert seen.evictions / seen.hours == pytest.approx(0.4, rel=0.08)


def test_age_profile_finds_the_dangerous_hour() -> None:
    """Truth: 0.5 per hour in the first hour, 0.05 later; observed for 10 hours."""
    rng = np.random.default_rng(13)
    first, later = rng.exponential(2.0, 4000), 1 + rng.exponential(20.0, 4000)
    lived = np.where(first < 1, first, later)
    profile = AgeProfile.of(
        lives(*((min(float(age), 10.0), bool(age < 10)) for age in lived)), (0.0, 1.0), 4.0
    )
    assert profile.factors[0] / profile.factors[1] == pytest.approx(10, rel=0.15)
    assert profile.mean_hours(0, 1) == pytest.approx(profile.factors[0])
    assert profile.mean_hours(0.5, 1) == pytest.approx(sum(profile.factors) / 2)


def test_a_profile_is_shrunk_to_the_mean_where_evidence_is_thin() -> None:
    assert AgeProfile.of(lives((3, False)), (0.0, 1.0), 4.0) == AGELESS
    leaning = AgeProfile.of(lives((0.5, True), (3, False)), (0.0, 1.0), 1000.0)
    assert leaning.factors == pytest.approx((1.0, 1.0), abs=0.01)
    known = lives((0.5, True), (3, True), (4, False), (0.2, False))
    profile = AgeProfile.of(known, (0.0, 1.0, 2.0), 2.0)
    watched = np.array([0.5 + 1 + 1 + 0.2, 2.0, 1.0 + 2.0])
    assert float(np.array(profile.factors) @ watched) == pytest.approx(watched.sum())


def test_exposure_counts_hours_up_and_evictions() -> None:
    trace = AvailabilityTrace("t", 1800, np.array([2, 2, 0, 1, 1], dtype=np.int64))
    assert (trace.preemptions, trace.machine_hours) == (2, 2.5)
    assert exposure_of_lives(lives((2, True), (3, False))) + Exposure(1, 1) == Exposure(2, 6)
