"""A job that follows its parts of a quota as they change."""

from __future__ import annotations

from bidbrain.decision.limits import CommonQuota, MachineLimits
from bidbrain.decision.parts import InParts, QuotaPart
from bidbrain.strategies.base import Decision, Rent, Return
from pricing_data.market import Market
from pricing_data.units import HOUR
from tests.bidbrain.decision.deciders import A, B, deciding, held, rents, situation
from tests.spotctl.planning.worlds import CENT, NOW


def quota(amount: int) -> tuple[CommonQuota[Market], ...]:
    return (CommonQuota(amount, {A.market: 1, B.market: 1}),)


def test_a_job_whose_part_is_none_returns_its_machines_and_waits_for_the_next() -> None:
    parts = (QuotaPart(NOW, (), 0.0), QuotaPart(NOW + HOUR, quota(8), 64.0))
    decided = InParts(deciding(Rent(A, 3, CENT)), parts).decide(situation(held(1, B, 8)))
    assert decided == Decision((Return(1),), NOW + HOUR, "waits for its part of a quota")


def test_machines_beyond_a_part_are_returned_the_latest_first() -> None:
    parts = (QuotaPart(NOW, quota(10), 64.0),)
    decided = InParts(deciding(), parts).decide(situation(held(1, B, 8), held(2, A, 4)))
    assert decided.actions == (Return(2),)


def test_a_part_bounds_what_is_bought_and_the_next_one_wakes_the_job() -> None:
    parts = (QuotaPart(NOW - HOUR, quota(2), 64.0), QuotaPart(NOW + 60, quota(8), 64.0))
    told = deciding(Rent(A, 8, CENT), limits=MachineLimits(1, 8, {}))
    decided = InParts(told, parts).decide(situation())
    assert sum(rent.machines for rent in rents(decided)) <= 2
    assert decided.wake_at == NOW + 60
