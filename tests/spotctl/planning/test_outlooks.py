"""What `plan --explain` says of the markets between which a job may move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import HOUR
from spotctl.files.job.programs import Checkpoint, Command
from spotctl.files.job.resources import Resources
from spotctl.files.job.spec import Range, Within
from spotctl.files.job.values import Nodes
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.planning.errors import NotInTime
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan
from spotctl.show.columns import as_json
from spotctl.show.plans.plan_tables import ZONE, considered_zones
from tests.spotctl.planning.worlds import CENT, NOW, flat, offer, snapshot, spec


def test_each_market_has_its_price_the_cost_of_the_move_and_the_reason_why_it_lost() -> None:
    near, far = offer("a.large"), offer("a.large", region="us-west-2")
    expensive = offer("a.large", zone="b")
    resources = Resources(("aws",), Range(1, 1), types=("a.large",), regions=("us-east-1", "us-west-2"))
    program = Command("train", checkpoint=Checkpoint("s3://bucket/", size=50 * 10**9))
    wanted = replace(
        spec(), program=program, resources=resources, strategy="regions", deadline=Within(30 * HOUR), throughputs={}
    )
    histories = (flat(near, 4 * CENT), flat(far, 6 * CENT), flat(expensive, 25 * CENT))
    (found,) = plan_jobs(PlanningFacts((Job(wanted, NOW + 30 * HOUR, hours=10.0),), snapshot(*histories)))
    rows = [as_json(ZONE, row) for row in considered_zones(found)]
    zones = {one["market"]: one for one in rows}
    assert {name: one["usd_per_hour"] for name, one in zones.items()} == pytest.approx(
        {str(near): 0.04, str(far): 0.06, str(expensive): 0.25}
    )
    assert zones[str(near)]["move_usd"] == zones[str(expensive)]["move_usd"] == 0.0
    assert zones[str(far)]["move_usd"] == pytest.approx(50 * 0.02)
    assert zones[str(expensive)]["why_not"] == "costs more than on demand"
    assert zones[str(near)]["cost_to_end_usd"] < zones[str(far)]["cost_to_end_usd"]
    assert 0 < zones[str(near)]["expected_life_hours"] <= 11.0
    assert zones[str(far)]["why_not"]


def test_a_job_with_a_range_of_nodes_moves_as_one_with_a_number_does() -> None:
    near, far = offer("a.large"), offer("a.large", region="us-west-2")
    resources = Resources(("aws",), Range(1, 4), types=("a.large",), regions=("us-east-1", "us-west-2"))
    kept = Checkpoint("s3://bucket/", size=50 * 10**9)

    def planned(nodes: Nodes, *quotas: Quota, strategy: str = "auto") -> JobPlan:
        wanted = replace(
            spec(),
            program=Command("train", nodes, kept),
            resources=resources,
            strategy=strategy,
            deadline=Within(30 * HOUR),
            throughputs={},
        )
        job, market = Job(wanted, NOW + 30 * HOUR, hours=10.0), snapshot(flat(near, 4 * CENT), flat(far, 6 * CENT))
        (found,) = plan_jobs(PlanningFacts((job,), market, on_demand_quotas=quotas))
        return found

    some, all_of_them = planned(Nodes(2, 4)), planned(Nodes(4, 4))
    assert some.decider.roaming is not None
    assert some.decision.strategy == all_of_them.decision.strategy
    assert [one.rent for one in some.cost.choice] == [one.rent for one in all_of_them.cost.choice]
    assert some.decision.outlooks == all_of_them.decision.outlooks
    # Two of its nodes on demand keep the deadline more slowly than a gang that moves counts on.
    few = Quota("aws", "*", None, 3, QuotaUnit.MACHINES)
    staying = planned(Nodes(2, 4), few)
    assert staying.decider.roaming is None
    assert {one.market for one in staying.decider.offers} == {near}
    with pytest.raises(NotInTime, match=r"strategy regions needs 4 machines of a\.large on demand near the deadline"):
        planned(Nodes(2, 4), few, strategy="regions")
