"""A strategy gets only those offers of its plan that the provider has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from spotctl.clouds.local.replayed import Replayed
from spotctl.planning.values import JobPlan
from spotctl.run.turn.live_strategy import terms_of
from tests.spotctl.clouds.fake import FakeProvider
from tests.spotctl.run.worlds import OFFERS, PRICES, START, terms


def test_offers_that_the_provider_does_not_have_are_left_out() -> None:
    given = terms()
    decider = SimpleNamespace(
        offers=OFFERS, baseline=given.baseline, most_nu=given.most_nu, reliable=given.reliable
    )
    plan = cast("JobPlan", SimpleNamespace(decider=decider, fleet=SimpleNamespace(work=given.work)))
    everything = FakeProvider(Replayed.of(PRICES.values()), START)
    first_only = FakeProvider(Replayed.of([PRICES[OFFERS[0].market]]), START)
    assert terms_of(plan, everything.offers()) == given
    assert terms_of(plan, first_only.offers()).offers == OFFERS[:1]
