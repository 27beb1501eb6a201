"""What is unknown is not safe; and GCP's preemptible machines end after a day."""

from __future__ import annotations

from dataclasses import replace
from math import exp, inf, log

import numpy as np
import pytest
from scipy.stats import gamma

from bidbrain.eviction.hazard import (
    PRIOR,
    PUBLISHED,
    Evidence,
    Hazard,
    RateEvidence,
    evidence_of_lives,
    family_of,
    hazard_of,
    in_force,
)
from bidbrain.eviction.survival import AgeProfile, Exposure
from bidbrain.replay.market import DrawnLives, Mortality
from pricing_data.availability import Interruption, Lifetime, Measure
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, parse_time

HERE = Market("aws", "us-east-1", "us-east-1a", "c5.large")
GOOGLE = Market("gcp", "us-west1", "us-west1-b", "n1-standard-8")
MICROSOFT = Market("azure", "eastus", "-", "Standard_NC6")


def seen(market: Market, evictions: float, hours: float) -> Evidence:
    return Evidence(market, Exposure(evictions, hours))


def figure(
    market: Market, measure: Measure, low: float, high: float, as_of: int = 0
) -> Interruption:
    return Interruption(market, measure, as_of, low, high, "test")


def known(hazard: Hazard | None) -> Hazard:
    assert hazard is not None
    return hazard


def other(number: int, instance_type: str = "c5.large", region: str = "us-west-2") -> Market:
    return Market("aws", region, f"{region}{chr(ord('a') + number)}", instance_type)


def test_own_observations_are_a_gamma_posterior() -> None:
    hazard = known(hazard_of(HERE, [seen(HERE, 6, 300)], ()))
    rate, low, high = hazard.rate
    assert rate == pytest.approx(6 / 300)
    assert (low, high) == pytest.approx(tuple(gamma.interval(0.95, 6, scale=1 / 300)))
    assert hazard.observed == Exposure(6, 300)
    assert "own observations (6 evictions in 300 machine-hours)" in hazard.basis


@pytest.mark.parametrize("window", [0.1, 1.0, 10.0, 100.0])
@pytest.mark.parametrize(
    ("evictions", "hours"), [(0.5, 2.0), (1.0, 50.0), (8.0, 100.0), (40.0, 20.0)]
)
def test_survival_averages_over_the_rates_distribution(
    evictions: float, hours: float, window: float
) -> None:
    """Against a mean over the rate's Gamma distribution, at 20,000 even quantiles."""
    rates = gamma.ppf((np.arange(20_000) + 0.5) / 20_000, evictions, scale=1 / hours)
    middle, low, high = Hazard((RateEvidence("test", Exposure(evictions, hours)),)).cumulative(
        0, window
    )
    assert exp(-middle) == pytest.approx(float(np.mean(np.exp(-rates * window))), abs=1e-4)
    assert exp(-high) <= exp(-middle) <= exp(-low)


def test_without_evidence_there_is_no_hazard_rather_than_a_zero_one() -> None:
    assert hazard_of(HERE, [], ()) is None
    assert (
        hazard_of(HERE, [seen(GOOGLE, 5, 10)], [figure(GOOGLE, "preemption-rate", 0.1, 0.1)])
        is None
    )


def test_with_no_eviction_seen_the_rate_is_low_but_not_zero() -> None:
    rate, low, high = known(hazard_of(HERE, [seen(HERE, 0, 1000)], ())).rate
    assert rate == pytest.approx(0.5 / 1000)
    assert low < rate < high < 0.01


def test_own_observations_eventually_dominate() -> None:
    elsewhere = [seen(other(i), 50, 100) for i in range(3)]
    bucket = [figure(Market("aws", "us-east-1", "-", "c5.large"), "monthly-bucket", 0.0, 0.05)]
    rates = [
        known(hazard_of(HERE, [*elsewhere, seen(HERE, n, 100 * n)], bucket)).rate[0]
        for n in (0, 10, 100, 10_000)
    ]
    assert rates[0] > 0.1
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("prior_rate", [1e-4, 1e-2, 1.0, 20.0])
def test_a_prior_orders_of_magnitude_off_yields_to_observations(prior_rate: float) -> None:
    """300 evictions in 1000 hours dominate any prior."""
    hazard = Hazard((RateEvidence("wrong", Exposure(4, 4 / prior_rate)),), Exposure(300, 1000))
    rate, low, high = hazard.rate
    assert rate == pytest.approx(0.3, rel=0.05)
    assert low < 0.3 < high


def test_a_prior_that_observations_do_not_contradict_is_kept_whole() -> None:
    """Gamma-Poisson: a prior of 4 evictions in 400 hours and none in 50 observed make 4 in 450."""
    hazard = Hazard((RateEvidence("right", Exposure(4, 400)),), Exposure(0, 50))
    assert hazard.rate[0] == pytest.approx(4 / 450)
    assert hazard.rate[1:] == pytest.approx(tuple(gamma.interval(0.95, 4, scale=1 / 450)))


def test_near_siblings_count_more_than_far_ones() -> None:
    """Each level counts once with its weight: same type 4, same family and region 2, the cloud
    1."""
    kin = other(0)
    family = Market("aws", "us-east-1", "us-east-1b", "c5.xlarge")
    stranger = Market("aws", "eu-west-1", "eu-west-1a", "m4.large")
    pieces = known(
        hazard_of(HERE, [seen(one, 100, 1000) for one in (kin, family, stranger)], ())
    ).prior
    assert [piece.exposure.evictions for piece in pieces] == pytest.approx([4, 2, 1])
    assert [piece.exposure.hours for piece in pieces] == pytest.approx([40, 20, 10])
    assert [piece.source.split(" ", 1)[1] for piece in pieces] == [
        "market of the same type",
        "market of the same family and region",
        "market of aws",
    ]


def test_evidence_is_averaged_on_the_log_scale_and_weakens_when_it_disagrees() -> None:
    """Hand-solved: 4 evictions at 0.1 and 4 at 0.025 per hour; combined 0.05, with less weight than
    either.
    """
    pieces = (RateEvidence("a", Exposure(4, 40)), RateEvidence("b", Exposure(4, 160)))
    hazard = Hazard(pieces)
    assert hazard.rate[0] == pytest.approx(0.05)
    shape = hazard.rate[0] * hazard.effective_hours
    assert shape == pytest.approx(1 / (1 / 8 + log(2) ** 2))
    agreeing = Hazard((pieces[0], pieces[0]))
    assert agreeing.rate[0] * agreeing.effective_hours == pytest.approx(8)


def test_few_sibling_observations_are_not_inflated_to_their_weight() -> None:
    piece = known(hazard_of(HERE, [seen(other(0), 1, 10)], ())).prior[0]
    assert piece.exposure == Exposure(1, 10)


def test_siblings_that_differ_count_less() -> None:
    """Rates drawn from a Gamma of shape 1 against equal rates: the moments distinguish them."""
    rng = np.random.default_rng(21)
    same = [seen(other(i), float(rng.poisson(20)), 1000) for i in range(20)]
    apart = [seen(other(i), float(rng.poisson(20 * rng.gamma(1.0))), 1000) for i in range(20)]
    weights = [
        known(hazard_of(HERE, evidence, ())).prior[0].exposure.evictions
        for evidence in (same, apart)
    ]
    assert weights[0] > 10
    assert 0.5 <= weights[1] < 3


def test_pooling_predicts_markets_of_few_observations_better_than_either_extreme() -> None:
    """Twenty markets of different rates, a few hours each: squared error of own rate, common rate,
    and both.
    """
    rng = np.random.default_rng(22)
    truth = 0.02 * rng.gamma(4.0, 1 / 4, 20)
    evidence = [seen(other(i), float(rng.poisson(rate * 200)), 200) for i, rate in enumerate(truth)]
    common = sum(one.exposure.evictions for one in evidence) / (20 * 200)
    pooled = np.array([known(hazard_of(one.market, evidence, ())).rate[0] for one in evidence])
    own = np.array([one.exposure.evictions / 200 for one in evidence])
    errors = [float(np.sum((guess - truth) ** 2)) for guess in (pooled, own, np.full(20, common))]
    assert errors[0] < min(errors[1:])


def test_googles_preemption_rate_is_a_daily_share() -> None:
    days = [
        figure(GOOGLE, "preemption-rate", share, share, day * DAY)
        for day, share in enumerate((0.9, *[0.24] * 31))
    ]
    hazard = known(hazard_of(GOOGLE, (), days))
    assert hazard.rate[0] == pytest.approx(-log(1 - 0.24) / 24)
    assert hazard.prior[0].exposure.evictions == PUBLISHED
    quiet = known(hazard_of(GOOGLE, (), [figure(GOOGLE, "preemption-rate", 0, 0)]))
    assert 0 < quiet.rate[0] < 0.05


def test_azures_band_holds_the_rate() -> None:
    for low, high in ((0.0, 0.05), (0.05, 0.1), (0.2, 1.0)):
        rate, least, most = known(
            hazard_of(MICROSOFT, (), [figure(MICROSOFT, "eviction-rate", low, high)])
        ).rate
        assert -log(1 - low) <= rate <= -log(1 - min(high, 0.4))
        assert least < -log(1 - low) + 0.02
        assert most > rate


def test_the_newest_figure_counts() -> None:
    old = figure(MICROSOFT, "eviction-rate", 0.2, 1.0, 1)
    new = figure(MICROSOFT, "eviction-rate", 0.0, 0.05, 2)
    rates = [
        known(hazard_of(MICROSOFT, (), known_figures)).rate
        for known_figures in ([new], [old, new], [new, old])
    ]
    assert rates[0] == rates[1] == rates[2]


def test_amazons_buckets_order_and_observations_scale_them() -> None:
    """Observed: a market of bucket 5-10% at 0.03 per hour. A market of bucket 15-20% gets 0.175 /
    0.075 of that.
    """
    regional = [
        Market("aws", "us-east-1", "-", name) for name in ("m4.large", "c5.large", "r5.large")
    ]
    bands = ((0.05, 0.10), (0.15, 0.20), (0.20, 1.0))
    buckets = [
        figure(one, "monthly-bucket", *band) for one, band in zip(regional, bands, strict=True)
    ]
    watched = seen(Market("aws", "us-east-1", "us-east-1a", "m4.large"), 299.5, 10_000)
    piece = known(hazard_of(HERE, [watched], buckets)).prior[0]
    assert piece.exposure.evictions / piece.exposure.hours == pytest.approx(0.03 * 0.175 / 0.075)
    zones = [Market("aws", "us-east-1", "us-east-1a", one.instance_type) for one in regional]
    rates = [known(hazard_of(one, (), buckets)).rate for one in zones]
    assert rates == sorted(rates)
    # No observation fits the scale, so the buckets only shift the prior, and the worst one is not
    # safe.
    assert rates[0][0] == pytest.approx(0.05 * 0.075 / 0.125)
    assert rates[2][0] > 0.05
    assert {known(hazard_of(one, (), buckets)).kind for one in zones} == {"prior"}
    assert rates[0][2] > 1000 * rates[0][1]


def test_machines_with_a_longest_life_do_not_survive_it() -> None:
    hazard = Hazard((RateEvidence("test", Exposure(1, 100)),), longest_life=24)
    assert hazard.cumulative(0, 24)[0] < inf
    assert hazard.cumulative(23.5, 1) == (inf, inf, inf)


def test_age_changes_the_risk() -> None:
    hazard = Hazard(
        (RateEvidence("test", Exposure(10, 100)),), ages=AgeProfile((0.0, 1.0), (3.0, 0.5))
    )
    assert hazard.cumulative(0, 1)[0] > 5 * hazard.cumulative(1, 1)[0]


def test_families_follow_each_clouds_spelling() -> None:
    types = ("c4.2xlarge", "n1-standard-8", "a2-highgpu-1g", "Standard_NC24s_v2", "v100x8")
    assert [family_of(one) for one in types] == [
        "c4",
        "n1-standard",
        "a2-highgpu",
        "Standard_NC",
        "v100",
    ]


def test_lives_are_evidence_for_their_own_market() -> None:
    found = evidence_of_lives(
        [
            Lifetime("gcp", "us-west1-b", "n1-standard-8", 0, 7200, preempted=True),
            Lifetime("gcp", "us-west1-b", "n1-standard-8", 0, 3600, preempted=False),
            Lifetime("aws", "us-east-1c", "p3.2xlarge", 0, 3600, preempted=True),
        ]
    )
    assert found == [
        seen(GOOGLE, 1, 3),
        seen(Market("aws", "us-east-1", "us-east-1c", "p3.2xlarge"), 1, 1),
    ]


@pytest.mark.parametrize("evictions", [0, 1])
@pytest.mark.parametrize("watched", ["the market itself", "a sibling"])
def test_a_few_seconds_do_not_make_a_rate(watched: str, evictions: int) -> None:
    """A run of 16 seconds made 110 evictions per hour of it; the forecast of the next run then did
    not end.
    """
    market = Market("aws", "us-east-1", "us-east-1a", "c6i.large")
    seen = market if watched == "the market itself" else replace(market, zone="us-east-1b")
    bucket = Interruption(replace(market, zone="-"), "monthly-bucket", 0, 0.0, 0.05, "advisor")
    for published in ((), (bucket,)):
        hazard = hazard_of(market, [Evidence(seen, Exposure(evictions, 16 / 3600))], published)
        assert hazard is not None
        assert hazard.rate[0] < 0.2


THEN, LATER = parse_time("2016-03-01"), parse_time("2024-03-01")
KNOWN = Hazard((), Exposure(20.0, 1000.0))


def market(cloud: str) -> Market:
    return Market(cloud, "us-east-1", "-", "n1-standard-8")


@pytest.mark.parametrize(
    ("cloud", "at", "kind"),
    [
        ("aws", THEN, None),
        ("aws", LATER, "prior"),
        ("gcp", LATER, "prior"),
        ("azure", LATER, "prior"),
        ("local", LATER, None),
    ],
)
def test_without_a_record_a_prior_stands_in_where_capacity_evicts(
    cloud: str, at: int, kind: str | None
) -> None:
    found = in_force(market(cloud), None, at)
    assert (None if found is None else found.kind) == kind


def test_the_prior_is_wide_and_a_record_replaces_it() -> None:
    middle, low, high = PRIOR.rate
    assert low < middle / 100 < middle < 4 * middle < high
    found = in_force(market("aws"), KNOWN, LATER)
    assert found is not None
    assert (found.kind, found.rate) == ("observed", KNOWN.rate)


@pytest.mark.parametrize(("at", "limit"), [(parse_time("2020-03-01"), 24.0), (LATER, inf)])
def test_preemptible_machines_of_gcp_end_after_a_day(at: int, limit: float) -> None:
    found = in_force(market("gcp"), KNOWN, at)
    assert found is not None
    assert found.longest_life == limit
    died = DrawnLives({market("gcp"): Mortality(1e-9, longest=limit)}, 1).evicted_at(
        market("gcp"), at
    )
    assert died is not None
    assert (died - at <= 24 * HOUR) is (limit == 24.0)
