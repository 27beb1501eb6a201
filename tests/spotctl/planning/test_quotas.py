"""Quotas: what running jobs hold is not planned with, and what each of several jobs gets."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from bidbrain.decision.limits import CommonQuota
from bidbrain.strategies.base import Offer, Rent
from pricing_data.catalog import Catalog, InstanceType
from pricing_data.market import Market
from spotctl.files.job.reader import load
from spotctl.home.config import Settings
from spotctl.home.quotas import Quota, QuotaUnit, quotas_from
from spotctl.planning.quotas import left_of, on_demand_slices, shared_quotas
from spotctl.run.start.launch_plans import stored_plans
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
    # Of the quota for every region, only the one here is shared: there is one market in the other
    # region.
    assert shared == (
        CommonQuota(32 - 4, zones),
        CommonQuota(16 - 4, zones),
        CommonQuota(9, {one.market: 1 for one in offers}),
    )


MARKET = Market("aws", "us-east-1", "us-east-1a", "c5.2xlarge")
CATALOG = Catalog((InstanceType("aws", "c5.2xlarge", 8, 16.0, None, 0),), ())

JOB = """name: {name}
kind: agileml
app: mf
stop: {{clocks: 4000}}
throughputs: {{c4.xlarge: 40}}
resources: {{clouds: [local], types: [c4.xlarge], machines: {machines}, reliable: {{machines: 1}}}}
"""


@pytest.mark.parametrize(
    ("quota", "needs", "parts"),
    [
        (40, [4, 1], [32, 8]),  # both have what they need
        (48, [4, 1], [36, 12]),  # and the rest between them
        (40, [4, 4, 4], [16, 16, 8]),  # those named first get what equal parts leave
        (40, [0, 5], [0, 40]),
        (20, [2, 2], [10, 10]),  # a rest that holds no machine
        (0, [2, 1], [0, 0]),
    ],
)
def test_a_job_gets_its_need_or_an_equal_part_of_the_rest(
    quota: int, needs: list[int], parts: list[int]
) -> None:
    assert _parts(quota, needs) == parts


def test_the_smallest_parts_are_as_large_as_they_can_be() -> None:
    """Compared with all ways to divide a quota in whole machines."""
    chance = np.random.default_rng(3)
    for _ in range(200):
        needs = chance.integers(0, 5, int(chance.integers(2, 5))).tolist()
        whole = int(chance.integers(0, 12))
        ways = [way for way in product(*(range(need + 1) for need in needs)) if sum(way) <= whole]
        machines = [
            min(part // 8, need) for part, need in zip(_parts(8 * whole, needs), needs, strict=True)
        ]
        assert sorted(machines) == max(sorted(way) for way in ways)
        assert sum(_parts(8 * whole, needs)) <= 8 * whole


def test_a_quota_for_every_region_is_divided_in_each() -> None:
    quotas = quotas_from("aws/*/c5 on demand=24")
    every, region = on_demand_slices(quotas, [Counter({MARKET: 2}), Counter({MARKET: 2})], CATALOG)[
        1
    ]
    assert (every.amount, region.region, region.amount) == (24, "us-east-1", 8)


def test_a_job_that_needs_few_leaves_the_rest_to_the_one_with_a_deadline(tmp_path: Path) -> None:
    """One machine keeps the state of each training; the job with a deadline may turn to 16
    others."""
    file = tmp_path / "small.yaml"
    file.write_text(JOB.format(name="small", machines="1..3"))
    urgent = tmp_path / "urgent.yaml"
    urgent.write_text(JOB.format(name="urgent", machines="3..16") + "deadline: 500h\n")
    settings = Settings(home=tmp_path / "home", quotas=quotas_from("local on demand=18 machines"))
    plans = stored_plans([load(urgent), load(file)], settings).plans
    assert plans[0].decider.fallback.machines == 16
    assert [plan.share.on_demand_quotas[0].amount for plan in plans] == [17, 1]


def _parts(quota: int, needs: list[int]) -> list[int]:
    quotas = quotas_from(f"aws/us-east-1/c5 on demand={quota}")
    return [
        part.amount
        for (part,) in on_demand_slices(quotas, [Counter({MARKET: n}) for n in needs], CATALOG)
    ]
