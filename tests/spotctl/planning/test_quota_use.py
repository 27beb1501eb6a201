"""What running jobs hold of the quotas is not planned with, and goes to the others when they end."""

from __future__ import annotations

from hypothesis import given, strategies as st

from bidbrain.decision.limits import CommonQuota
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.quotas import grown_parts, left_of, shared_quotas, used
from tests.spotctl.planning.worlds import catalog, offer

A, B = offer("a.large"), offer("b.huge")
FAR = offer("a.large", region="us-west-2")
VCPUS = Quota("aws", "us-east-1", "a", 32, QuotaUnit.VCPUS)
EACH = Quota("aws", "*", "a", 16, QuotaUnit.VCPUS)
MACHINES = Quota("aws", None, None, 10, QuotaUnit.MACHINES)
TYPES = catalog()


def amounts(quotas: tuple[Quota, ...]) -> dict[str, int]:
    return {one.name: one.amount for one in quotas}


def test_what_running_jobs_hold_is_not_left() -> None:
    held = [{A: 3, B: 1}, {FAR: 2}]
    left = amounts(left_of((VCPUS, MACHINES), held, TYPES))
    # a.large has 4 vCPUs; only one of the quotas counts b.huge and the other region.
    assert left == {"aws/us-east-1/a": 32 - 12, "aws": 10 - 6}
    assert amounts(left_of((VCPUS,), [{A: 100}], TYPES)) == {"aws/us-east-1/a": 0}
    assert left_of((VCPUS, EACH), [], TYPES) == (VCPUS, EACH)


def test_a_quota_for_every_region_is_stated_where_something_is_held() -> None:
    left = amounts(left_of((EACH,), [{A: 3}], TYPES))
    assert left == {"aws/*/a": 16, "aws/us-east-1/a": 4}


def test_a_quota_that_several_markets_share_is_told_with_what_each_takes() -> None:
    offers = [Offer(market, 1.0, 1) for market in (A, offer("a.large", "b"), B, FAR)]
    reliable = Rent(offers[0], 1, None)
    shared = shared_quotas(offers, reliable, (VCPUS, EACH, MACHINES), TYPES)
    zones = {offers[0].market: 4, offers[1].market: 4}
    # Of the quota for every region, only the one here is shared: there is one market in the other region.
    assert shared == (
        CommonQuota(32 - 4, zones),
        CommonQuota(16 - 4, zones),
        CommonQuota(9, {one.market: 1 for one in offers}),
    )


def test_a_run_gets_an_equal_share_of_what_another_leaves() -> None:
    part, held = Quota("aws", "us-east-1", "a", 8, QuotaUnit.VCPUS), {"mine": {A: 2}, "other": {A: 1}}
    assert amounts(grown_parts((part,), (VCPUS,), "mine", {"mine": {A: 2}}, TYPES)) == {"aws/us-east-1/a": 32}
    # 20 of 32 are free, for two runs: five machines, of which the run that holds less gets three.
    assert amounts(grown_parts((part,), (VCPUS,), "mine", held, TYPES)) == {"aws/us-east-1/a": 8 + 8}
    assert amounts(grown_parts((part,), (VCPUS,), "other", held, TYPES)) == {"aws/us-east-1/a": 4 + 12}
    assert amounts(grown_parts((part,), (EACH,), "mine", {"mine": {A: 2}}, TYPES)) == {"aws/us-east-1/a": 16}


@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(0, 32))
def test_parts_never_shrink_and_fit_together(machines: list[int], part: int) -> None:
    runs: dict[str, dict[Market, int]] = {str(i): {A: count} for i, count in enumerate(machines)}
    given_ = Quota("aws", "us-east-1", "a", part, QuotaUnit.VCPUS)
    parts = [grown_parts((given_,), (VCPUS,), run, runs, TYPES)[0].amount for run in runs]
    assert min(parts) >= part
    if sum(used(VCPUS, one, TYPES) for one in runs.values()) <= VCPUS.amount and part == 0:
        assert sum(parts) <= VCPUS.amount
