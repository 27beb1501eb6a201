"""Plans as JSON."""

from __future__ import annotations

from dataclasses import replace

from pricing_data.units import HOUR, moment
from spotctl.files.job.values import Within
from spotctl.run.start.launch_plans import JobPlans
from spotctl.show.plans.plan_answers import answers
from tests.spotctl.planning.test_plan import BIGGER, CALM, CHEAP, planned
from tests.spotctl.planning.worlds import NOW, spec


def test_the_phases_of_a_mixture_have_their_moments() -> None:
    fast = replace(spec(), throughputs={"a.large": 4.0, "a.xlarge": 7.0})
    plan = planned(fast, CHEAP, BIGGER, hazard=CALM, deadline=NOW + 8 * HOUR)
    (answer,) = answers(JobPlans([plan]))
    first, last = answer["mixture"]["phases"]
    assert answer["at"] == answer["begins"] == first["begins"]
    assert last["begins"] == moment(NOW + round(first["hours"] * HOUR))


def test_how_long_a_plan_waits_is_no_deadline_of_the_job() -> None:
    plan = planned(spec(), CHEAP, hazard=CALM)
    waiting = replace(plan, job=replace(plan.job, deadline=plan.at + 20 * HOUR))
    (answer,) = answers(JobPlans([waiting]))
    assert answer["expected"]["deadline_met"] is None
    assert answer["expected"]["deadline_met_least"] is None
    limited = replace(waiting.job.spec, deadline=Within(20 * HOUR))
    named = replace(waiting, job=replace(waiting.job, spec=limited))
    (answer,) = answers(JobPlans([named]))
    assert answer["expected"]["deadline_met"] == 1.0
