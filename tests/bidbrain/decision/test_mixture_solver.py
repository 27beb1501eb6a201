"""Mixtures of machine kinds: against every constant mixture, and against a linear program over
divisions of time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import OptimizeResult, linprog

from bidbrain.decision.mixture_solver import (
    KindOption,
    Mixture,
    MixtureTerms,
    Schedule,
    SharedQuota,
    cheapest,
    cheapest_rate,
    fastest,
    frontier,
    highest_rate,
)

P2, P3 = KindOption(48.0, 0.27, 8), KindOption(100.0, 0.918, 8)


def every_mixture(terms: MixtureTerms) -> list[Mixture]:
    counts = product(*(range(kind.most + 1) for kind in terms.kinds))
    whole = [one for one in counts if terms.least <= sum(one) <= terms.most]
    return [
        Mixture(
            one,
            sum(n * kind.nu for n, kind in zip(one, terms.kinds, strict=True)),
            sum(n * kind.usd_per_hour for n, kind in zip(one, terms.kinds, strict=True))
            + terms.usd_per_hour,
        )
        for one in whole
    ]


def divided(terms: MixtureTerms, work: float, hours: float, budget: float) -> tuple[float, float]:
    """Least dollars within the hours, and least hours within the budget, over all divisions of
    time; by an LP.
    """
    mixtures = every_mixture(terms)
    if not mixtures:
        return inf, inf
    rate, usd = (
        np.array([one.rate for one in mixtures]),
        np.array([one.usd_per_hour for one in mixtures]),
    )
    ones = np.ones(len(mixtures))
    in_time = linprog(usd, A_ub=[-rate, ones], b_ub=[-work, hours], method="highs")
    in_budget = linprog(ones, A_ub=[-rate, usd], b_ub=[-work, budget], method="highs")
    return optimum(in_time), optimum(in_budget)


def optimum(found: OptimizeResult) -> float:
    return float(found.fun) if found.success else inf


kinds = st.builds(
    KindOption,
    nu=st.sampled_from([1.0, 2.0, 3.0, 5.0, 8.0]),
    usd_per_hour=st.integers(1, 40).map(lambda cents: cents / 10),
    most=st.integers(0, 4),
)


@st.composite
def terms_of(draw: st.DrawFn) -> MixtureTerms:
    chosen = tuple(draw(st.lists(kinds, min_size=1, max_size=3)))
    least = draw(st.integers(0, 4))
    most = draw(st.integers(max(least, 1), 6))
    return MixtureTerms(chosen, least, most, draw(st.sampled_from([0.0, 0.5, 3.0])))


def check(terms: MixtureTerms, work: float, hours: float, budget: float) -> None:
    cheap, quick = cheapest(terms, work, hours), fastest(terms, work, budget)
    usd, shortest = divided(terms, work, hours, budget)
    assert (cheap is None) == (usd == inf)
    assert (quick is None) == (shortest == inf)
    if cheap is not None:
        assert cheap.usd == pytest.approx(usd, rel=1e-6)
        assert cheap.hours <= hours * (1 + 1e-6)
        consistent(terms, cheap, work)
    if quick is not None:
        assert quick.hours == pytest.approx(shortest, rel=1e-6)
        assert quick.usd <= budget * (1 + 1e-6)
        consistent(terms, quick, work)


def consistent(terms: MixtureTerms, schedule: Schedule, work: float) -> None:
    possible = every_mixture(terms)
    assert sum(phase.hours * phase.mixture.rate for phase in schedule.phases) == pytest.approx(work)
    assert sum(
        phase.hours * phase.mixture.usd_per_hour for phase in schedule.phases
    ) == pytest.approx(schedule.usd)
    assert sum(phase.hours for phase in schedule.phases) == pytest.approx(schedule.hours)
    for phase in schedule.phases:
        assert any(phase.mixture.machines == one.machines for one in possible)


@given(terms_of(), st.integers(1, 60), st.integers(1, 12), st.integers(1, 80))
def test_no_mixture_and_no_division_of_time_is_better(
    terms: MixtureTerms, work: int, hours: int, budget: int
) -> None:
    check(terms, float(work), float(hours), float(budget))


@given(terms_of())
def test_the_fastest_mixture_has_the_highest_rate(terms: MixtureTerms) -> None:
    possible, top = every_mixture(terms), highest_rate(terms)
    assert (top is None) == (not possible)
    if top is not None:
        assert top.rate == pytest.approx(max(one.rate for one in possible))


@pytest.mark.parametrize("kinds", [(), (P2,)], ids=["no kind", "a kind without a quota"])
def test_a_quota_of_kinds_that_are_not_offered_limits_nothing(
    kinds: tuple[KindOption, ...],
) -> None:
    """Markets may be empty for a moment."""
    terms = MixtureTerms(kinds, 1, 3, quotas=(SharedQuota((0.0,) * len(kinds), 16.0),))
    free = replace(terms, quotas=())
    assert cheapest(terms, 10, 5) == cheapest(free, 10, 5)
    assert fastest(terms, 10) == fastest(free, 10)
    assert (highest_rate(terms), cheapest_rate(terms)) == (highest_rate(free), cheapest_rate(free))


@given(terms_of(), st.integers(1, 60), st.integers(1, 12), st.sampled_from([0.1, 0.5]))
def test_a_change_in_the_middle_is_paid_and_planned_only_where_it_pays(
    terms: MixtureTerms, work: int, hours: int, change: float
) -> None:
    with_changes = MixtureTerms(
        terms.kinds, terms.least, terms.most, terms.usd_per_hour, change_hours=change
    )
    schedule = cheapest(with_changes, float(work), float(hours))
    constant = [one.usd_per_work * work for one in every_mixture(terms) if work <= one.rate * hours]
    if schedule is None:
        assert not constant
    elif len(schedule.phases) > 1 and constant:
        held = sum(phase.hours * phase.mixture.usd_per_hour for phase in schedule.phases)
        assert held <= schedule.usd <= min(constant) * (1 + 1e-6)


def test_a_deadline_that_the_cheap_kind_just_misses_takes_one_fast_machine() -> None:
    terms = MixtureTerms((P2, P3), 1, 8, change_hours=10.0)
    schedule = cheapest(terms, 2000.0, 5.0)
    assert schedule is not None
    assert [phase.mixture.machines for phase in schedule.phases] == [(7, 1)]
    assert schedule.hours == pytest.approx(2000 / 436)


def test_a_free_change_divides_the_time() -> None:
    schedule = cheapest(MixtureTerms((P2, P3), 1, 8), 2000.0, 5.0)
    assert schedule is not None
    assert [phase.mixture.machines for phase in schedule.phases] == [(8, 0), (7, 1)]


def test_a_budget_buys_as_much_speed_as_it_can_pay() -> None:
    terms = MixtureTerms((P2, P3), 1, 8)
    schedule = fastest(terms, 2000.0, 15.0)
    only_cheap = 2000 / (8 * P2.nu)
    assert schedule is not None
    assert schedule.usd == pytest.approx(15.0)
    assert schedule.hours < only_cheap
    assert len(schedule.phases) == 2


def test_many_machines_of_many_kinds_are_mixed_at_once() -> None:
    """A thousand machines of forty kinds: exchanges are made in blocks."""
    options = tuple(KindOption(1.0 + i, 0.1 * (1.0 + i) ** 1.3, 100) for i in range(40))
    corners = frontier(MixtureTerms(options, 1, 1000))
    assert len(corners) < 40 * 20
    assert corners[-1].rate == sum(100 * (1.0 + i) for i in range(30, 40))
