"""What observed availability says about spells of spot capacity."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import cast

import numpy as np
import pytest

from bidbrain.eviction.hazard import PRIOR, Hazard, RateEvidence, evidence_of_spans
from bidbrain.eviction.survival import Exposure
from bidbrain.strategies.known_spells import (
    HALF_LIFE,
    UNSEEN,
    KnownSpells,
    known_spells,
    spot_spell,
    with_rate,
)
from bidbrain.strategies.spells import CLASSES, HAZARDS
from pricing_data.availability import AvailabilitySpan, Ending
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR, MINUTE

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
NOW = 100 * DAY


def span(since: float, until: float, *, up: bool, ended: str = "") -> AvailabilitySpan:
    """From and until so many hours before now."""
    begin, end = NOW - round(since * HOUR), NOW - round(until * HOUR)
    return AvailabilitySpan(MARKET, begin, end, int(up), 1, cast("Ending", ended), "a test")


def test_without_observations_only_the_prior_is_known() -> None:
    assert KnownSpells.of([], NOW) == UNSEEN
    assert spot_spell([UNSEEN], offered=True) is None
    factors = [UNSEEN.factor(1, luck) for luck in np.linspace(0.001, 0.999, 999).tolist()]
    assert np.mean(factors) == pytest.approx(1, rel=0.02)
    assert np.quantile(factors, 0.95) > 2 * np.quantile(factors, 0.05)


def test_refusals_and_evictions_are_spells() -> None:
    """Held for two hours, evicted, and refused since."""
    refused = [span(ago, ago, up=False, ended="refused") for ago in (0.9, 0.6, 0.3, 0.1)]
    known = KnownSpells.of([span(3, 1, up=True, ended="evicted"), *refused], NOW)
    assert known.up is False
    assert known.age + known.ago == pytest.approx(1.0, abs=0.01)
    assert known.endings[1] == pytest.approx(1.0, abs=0.01)
    assert known.endings[0] == 0
    assert known.expected[0] > 0.5
    down = spot_spell([known], offered=False)
    assert down is not None
    assert not down.up
    assert down.state > 0, "it began an hour ago, not just now"
    # If the market may be asked again, it has returned at some time since it was last seen down.
    asked = spot_spell([known], offered=True)
    assert asked is not None
    assert asked.state == CLASSES


def test_nothing_is_known_between_looks_that_are_far_apart() -> None:
    looks = [span(48, 48, up=True), span(24, 24, up=False, ended="refused")]
    known = KnownSpells.of(looks, NOW)
    assert known.endings == (0.0, 0.0)
    assert known.expected == (0.0, 0.0)
    assert (known.up, known.age, known.ago) == (False, 0.0, 24.0)


def test_a_span_that_begins_when_another_ends_says_how_it_goes_on() -> None:
    record = [span(10, 6, up=True), span(6, 2, up=False), span(2, 0, up=True)]
    known = KnownSpells.of(record, NOW)
    assert known.endings == pytest.approx((1, 1), abs=0.05)
    assert known.expected[0] == pytest.approx(HAZARDS[False].until(4.0), rel=0.05)
    assert known.up
    assert known.age == pytest.approx(2)
    part = AvailabilitySpan(MARKET, NOW - 4 * HOUR, NOW - 2 * HOUR, 8, 8, "evicted", "a test")
    rest = replace(part, since=part.until, until=NOW, machines=6, ended="")
    assert KnownSpells.of([part, rest], NOW).endings == (0, 0), (
        "six of eight machines are still there"
    )


def test_what_several_runs_saw_at_a_moment_does_not_depend_on_their_order() -> None:
    seen = [
        span(2, 1, up=True, ended="evicted"),
        span(2, 2, up=False, ended="refused"),
        span(3, 2, up=False),
    ]
    known = {KnownSpells.of([seen[i] for i in order], NOW) for order in permutations(range(3))}
    (only,) = known
    assert only.endings == pytest.approx((1, 1), abs=0.02)


def test_older_observations_count_less() -> None:
    flapping = [span(at + 0.5, at, up=True, ended="evicted") for at in (1.0, 2.0, 3.0)]
    later = KnownSpells.of(flapping, NOW + HALF_LIFE)
    assert later.endings[1] == pytest.approx(KnownSpells.of(flapping, NOW).endings[1] / 2)
    continued = KnownSpells.of(flapping, NOW).continued([], HALF_LIFE, NOW + HALF_LIFE)
    assert continued.endings == pytest.approx(later.endings)
    assert continued.ago == pytest.approx(later.ago)


def test_a_market_that_evicts_often_is_expected_to_do_so() -> None:
    often = KnownSpells.of(
        [span(at + 0.3, at, up=True, ended="evicted") for at in range(1, 40)], NOW
    )
    rarely = KnownSpells.of([span(40, 0, up=True)], NOW)
    assert often.factor(1, 0.5) > UNSEEN.factor(1, 0.5) > rarely.factor(1, 0.5)


def test_a_published_rate_shifts_the_prior_and_an_observed_one_replaces_it() -> None:
    def rated(kind: str, evictions: float, hours: float) -> Hazard:
        return Hazard((RateEvidence("x", Exposure(evictions, hours), kind),))  # type: ignore[arg-type]

    assert with_rate(UNSEEN, PRIOR) == UNSEEN
    safest = with_rate(UNSEEN, rated("published", 4, 4e6))
    assert 0.5 < safest.factor(1, 0.5) / UNSEEN.factor(1, 0.5) < 1
    observed = with_rate(UNSEEN, rated("observed", 4, 4e6))
    assert observed.factor(1, 0.5) < 0.01


def test_spans_are_evidence_of_evictions_that_counts_less_with_age() -> None:
    spans = [
        span(3, 1, up=True, ended="evicted"),
        span(1, 1, up=False, ended="refused"),
        span(1, 0, up=True),
    ]
    (evidence,) = evidence_of_spans(spans, NOW)
    assert (evidence.exposure.evictions, evidence.exposure.hours) == pytest.approx((1, 3), rel=0.01)
    (old,) = evidence_of_spans(spans, NOW + 30 * DAY)
    assert old.exposure.hours == pytest.approx(1.5, rel=0.01)
    assert evidence_of_spans(spans, NOW - 4 * HOUR) == []


def test_markets_are_known_apart_and_only_from_what_was_before() -> None:
    other = replace(MARKET, zone="us-east-1b")
    later = replace(span(-2, -3, up=True), market=other)
    assert set(known_spells([span(2, 1, up=True), later], NOW)) == {MARKET}
    both = [KnownSpells(up=True, age=1.0), KnownSpells(up=False, age=9.0)]
    spell = spot_spell(both, offered=True)
    assert spell is not None
    assert spell.up
    assert KnownSpells.of([span(1, 1 - 5 / 60, up=True)], NOW).age == pytest.approx(
        5 * MINUTE / HOUR
    )
