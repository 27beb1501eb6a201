"""Tables of a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import HOUR, format_usd
from spotctl.files.job.values import WorkTime
from spotctl.show.plans.plan_tables import plan_view
from spotctl.show.plans.summary import summary
from tests.spotctl.planning.test_reserved import holding_reservations, planned, reserved
from tests.spotctl.planning.worlds import CENT, gang
from tests.spotctl.show.runs.made_up_run import text


@pytest.mark.parametrize("price", [0, 2 * CENT])
def test_a_plan_names_the_reservation_its_price_and_its_end(price: int) -> None:
    plan = planned(
        holding_reservations(replace(gang(4), hours=WorkTime(2 * HOUR)), reserved(4, price))
    )
    rows = dict(summary(plan))
    assert (
        rows["machines"]
        == f"4 x a.large (us-east-1b, reservation cr-0abc) at ${format_usd(price)}/h"
    )
    assert rows["evictions"] == "none on the machines of this plan"
    assert ("paid for already" in rows["next best"]) is (price == 0)
    shown = text(plan_view(plan, 160, explain=True), 160)
    assert not [
        line for line in shown if "cr-0abc" in line and ("on demand" in line or "on-demand" in line)
    ]
    assert any("not evicted before their reservation ends" in line for line in shown)
