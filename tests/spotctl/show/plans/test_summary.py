"""Sentences below a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import HOUR
from spotctl.files.job.values import WorkTime
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.test_reserved import holding_reservations, planned, reserved
from tests.spotctl.planning.worlds import CENT, gang


@pytest.mark.parametrize(("price", "usd"), [(0, None), (2 * CENT, "$0.01")])
def test_a_plan_states_what_machines_that_are_ordered_together_cost_if_none_boots(
    price: int, usd: str | None
) -> None:
    plan = planned(
        holding_reservations(replace(gang(4), hours=WorkTime(2 * HOUR)), reserved(4, price))
    )
    stated = (
        usd and f"up to {usd}: 4 machines are ordered together, and returned after 4 silent minutes"
    )
    assert dict(summary(plan)).get("dead boots") == stated
