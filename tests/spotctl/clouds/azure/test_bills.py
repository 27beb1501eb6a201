"""Bills of Azure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.show.costs.bills.exports import (
    WHOLE,
)
from tests.spotctl.show.costs.bills.test_reconcile import compared


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def test_azure_charges_traffic_on_the_id_of_the_machine_and_its_period_includes_the_last_day(
    path: Path,
) -> None:
    traffic = {**WHOLE["azure"][0], "MeterCategory": "Bandwidth", "CostInBillingCurrency": "0.3"}
    found = compared("azure", [*WHOLE["azure"], traffic], path)
    assert (found.agrees, found.unmeasured) == (True, 3 * 360 * 10**9)
    last = [
        {**line, "BillingPeriodEndDate": line["Date"]}
        for line in WHOLE["azure"]
        if line["Date"] == "06/01/2026"
    ]
    agreement = compared("azure", last, path)
    assert agreement.ledger == pytest.approx(agreement.bill, rel=1e-6)
    assert agreement.outside > 0
