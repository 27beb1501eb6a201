from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.arrays import Floats
from bidbrain.billing import (
    End,
    ImpossibleLife,
    Life,
    SampledSurvival,
    billing_rule,
    billing_rules,
    expected_seconds,
)
from bidbrain.errors import TooLittleHistory
from pricing_data.units import HOUR, MINUTE, SECOND
from tests.pricing_data.histories import START

FIRST_HOUR_FREE = "per-second-first-hour-free"
QUADRATURE = 30.0
"""Half a minute: the largest error of time paid as it runs, if all machines are evicted between two
samples."""

evictions = st.dictionaries(st.integers(1, 9000), st.integers(1, 5), max_size=8)
"""Number of machines evicted at each age, in seconds."""
plans = st.sampled_from((End.LEFT, End.HANDED_ON))
spans = st.sampled_from((0, 1, 30, 59, 60, 61, 3599, 3600, 3601, 5400)) | st.integers(0, 8000)


def never(ages: Floats) -> Floats:
    return np.ones_like(ages)


def fading(half_life: float) -> SampledSurvival:
    ages = np.arange(0, 30 * HOUR + 1, MINUTE, dtype=np.float64)
    return SampledSurvival(ages, 0.5 ** (ages / half_life))


def billed_positions(name: str, lived: int, ended: End) -> int:
    """Number of billed seconds in a life of `lived` seconds; they are its first ones, and those
    after its end.
    """
    if lived == 0:
        return 0
    if name == "hourly-refund":
        return {
            End.EVICTED: lived // 3600 * 3600,
            End.LEFT: -(-lived // 3600) * 3600,
            End.HANDED_ON: lived,
        }[ended]
    if ended is End.HANDED_ON:
        return lived
    if name == "azure":
        return lived // 60 * 60
    free = {"per-second": 0, FIRST_HOUR_FREE: 3600, "gcp": 60, "vast": 0, "runpod": 0, "slurm": 0}[
        name
    ]
    least = 0 if name in ("vast", "runpod", "slurm") else 60
    return 0 if ended is End.EVICTED and lived < free else max(lived, least)


@pytest.mark.parametrize("name", list(billing_rules()))
@settings(max_examples=200)
@given(evictions, st.integers(1, 5), spans, spans, plans)
def test_expected_seconds_are_the_mean_over_lives(
    name: str, evicted: dict[int, int], lasting: int, age: int, horizon: int, ended: End
) -> None:
    """Machines with known ends, each billed separately; charges before `age` do not count."""
    lives = [(at, count) for at, count in evicted.items() if at >= age]
    running = lasting + sum(count for _, count in lives)

    def survival(ages: Floats) -> Floats:
        alive = [
            lasting + sum(n for at, n in evicted.items() if at * SECOND >= age)
            for age in ages.tolist()
        ]
        return np.array(alive) / (lasting + sum(evicted.values()))

    end = age + horizon
    taken = [(at, count) for at, count in lives if at < end]
    kept = running - sum(count for _, count in taken)
    billed = kept * max(0, billed_positions(name, end, ended) - age)
    billed += sum(
        count * max(0, billed_positions(name, at, End.EVICTED) - age) for at, count in taken
    )

    found = float(
        expected_seconds(billing_rule(name), age * SECOND, horizon * SECOND, survival, ended)
    )
    exact = name in ("hourly-refund", "azure")
    error = 1e-6 if exact else 1e-6 + QUADRATURE * (running - kept) / running
    assert found == pytest.approx(billed / running, abs=error)


@given(
    beta=st.floats(0, 1),
    left=st.integers(1, HOUR),
    hours=st.integers(0, 5),
    price=st.integers(1, 10**10),
)
def test_under_hourly_refund_the_rest_of_the_hour_is_equation_4_1(
    beta: float, left: int, hours: int, price: int
) -> None:
    """C = (1 - beta) P t_r + beta 0 t_r, for one machine."""
    age = (hours + 1) * HOUR - left
    survival = SampledSurvival(
        np.array([0.0, age, age + left] if age else [0.0, left]),
        np.array([1.0, 0.9, 0.9 * (1 - beta)] if age else [1.0, 1 - beta]),
    )
    for ended in (End.LEFT, End.HANDED_ON):
        seconds = float(expected_seconds(billing_rule("hourly-refund"), age, left, survival, ended))
        assert seconds * price == pytest.approx(
            (1 - beta) * price * left / SECOND, rel=1e-9, abs=1e-3
        )


@pytest.mark.parametrize("name", list(billing_rules()))
@given(st.integers(1, 3 * HOUR), plans)
def test_without_evictions_the_expectation_is_the_bill(name: str, horizon: int, ended: End) -> None:
    rule = billing_rule(name)
    bill = rule.bill(Life(START, START + horizon, ended), 1000)
    # A bill counts started seconds, an expectation continuous time.
    seconds = float(expected_seconds(rule, 0, horizon, never, ended))
    assert seconds * 1000 == pytest.approx(bill.amount, abs=1001)


def test_an_hour_of_each_rule_solved_by_hand() -> None:
    """Survival falls linearly from 1 to 1/2 within two hours; the machine is kept for 90 minutes
    and then returned.
    """
    survival = SampledSurvival(np.array([0.0, 2 * HOUR]), np.array([1.0, 0.5]))

    def at_minute(minute: int) -> float:
        return 1 - minute / 240

    def integral(begin: int, end: int) -> float:
        return 60 * (end - begin) * (at_minute(begin) + at_minute(end)) / 2

    expected = {
        "hourly-refund": 3600 * at_minute(60) + 3600 * at_minute(90),
        "per-second": 60 + integral(1, 90),
        FIRST_HOUR_FREE: 3600 * at_minute(60) + integral(60, 90),
        "gcp": 60 * at_minute(1) + integral(1, 90),
        "azure": sum(60 * at_minute(minute) for minute in range(1, 91)),
        "slurm": integral(0, 90),
        "vast": integral(0, 90),
        "runpod": integral(0, 90),
    }
    found = {
        name: float(expected_seconds(billing_rule(name), 0, 90 * MINUTE, survival))
        for name in billing_rules()
    }
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("name", list(billing_rules()))
def test_many_markets_at_once_equal_each_separately(name: str) -> None:
    half_lives = np.array([HOUR / 2, HOUR, 10 * HOUR])
    rule = billing_rule(name)

    def together(ages: Floats) -> Floats:
        answer: Floats = 0.5 ** (ages[:, None] / half_lives)
        return answer

    found = expected_seconds(rule, 10 * MINUTE, 3 * HOUR, together)
    alone = [
        float(expected_seconds(rule, 10 * MINUTE, 3 * HOUR, fading(half)))
        for half in half_lives.tolist()
    ]
    assert found == pytest.approx(np.array(alone), rel=1e-9)


@pytest.mark.parametrize("name", list(billing_rules()))
@given(st.integers(0, 2 * HOUR), st.integers(0, 5 * HOUR), plans)
def test_a_machine_that_is_never_evicted_pays_most(
    name: str, age: int, horizon: int, ended: End
) -> None:
    """More survival never costs less, except that handing on within the minimum avoids the cost of
    an eviction.
    """
    rule = billing_rule(name)
    sure = float(expected_seconds(rule, age, horizon, never, ended))
    if name == "per-second" and ended is End.HANDED_ON and age + horizon < MINUTE:
        return
    assert -1e-6 <= float(expected_seconds(rule, age, horizon, fading(HOUR), ended)) <= sure + 1e-6


@pytest.mark.parametrize("name", list(billing_rules()))
def test_impossible_futures_are_refused(name: str) -> None:
    rule = billing_rule(name)
    with pytest.raises(ImpossibleLife, match="neither can be below 0"):
        expected_seconds(rule, 0, -1, never)
    with pytest.raises(ImpossibleLife, match="evictions come from the survival curve"):
        expected_seconds(rule, 0, HOUR, never, End.EVICTED)
    dead = SampledSurvival(np.array([0.0, HOUR, 9 * HOUR]), np.array([1.0, 0.0, 0.0]))
    with pytest.raises(ImpossibleLife, match=r"age of 2\.0 hours"):
        expected_seconds(rule, 2 * HOUR, HOUR, dead)


def test_survival_beyond_the_known_ages_is_refused() -> None:
    with pytest.raises(TooLittleHistory, match=r"30\.0 hours, not to 31\.0"):
        expected_seconds(billing_rule("gcp"), 0, 31 * HOUR, fading(HOUR))


@pytest.mark.parametrize(
    ("ages", "alive"),
    [([0.0, 1.0], [1.0]), ([], []), ([1.0, 2.0], [1.0, 0.5]), ([0.0, 0.0], [1.0, 0.5]), ([0.0, 1.0], [0.5, 0.6]),
     ([0.0, 1.0], [1.1, 0.6]), ([0.0, 1.0], [0.5, -0.1])],
)  # fmt: skip
def test_an_invalid_survival_curve_is_refused(ages: list[float], alive: list[float]) -> None:
    with pytest.raises(ImpossibleLife, match="survival curve"):
        SampledSurvival(np.array(ages), np.array(alive))
