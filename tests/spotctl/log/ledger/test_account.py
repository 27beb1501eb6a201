"""The account of a run."""

from __future__ import annotations

import pytest

from spotctl.log.ledger.account import Eviction
from spotctl.log.ledger.rows import ChargeKind, Use
from spotctl.show.costs.cost import figures
from tests.spotctl.show.costs.made import (
    AWS,
    NIGHT,
    parts,
)
from tests.spotctl.show.costs.test_cost import DOLLAR, row, timeline


def test_the_figures_of_a_run_by_hand() -> None:
    rows = [
        row(6 * DOLLAR),
        row(2 * DOLLAR, use=Use.REDONE, on_demand=0),
        row(DOLLAR, use=Use.STARTING),
        row(DOLLAR, use=Use.LOADING),
        row(DOLLAR, use=Use.IDLE),
        row(-DOLLAR, kind=ChargeKind.REFUND, use=Use.REDONE, on_demand=0),
        row(DOLLAR // 2, kind=ChargeKind.DISK, on_demand=DOLLAR // 2, settled=False),
    ]
    evictions = (Eviction(NIGHT, "i-1", AWS[0], warned=True),)
    total = figures(parts(rows, [timeline(evictions=evictions)]))
    assert total.total == 10 * DOLLAR + DOLLAR // 2
    assert total.on_demand == 18 * DOLLAR + DOLLAR // 2
    assert total.saved_pct == pytest.approx(100 * (1 - 10.5 / 18.5), abs=1e-4)
    assert (total.free, total.lost_work, total.waiting) == (DOLLAR, DOLLAR, 3 * DOLLAR)
    assert (total.other_charges, total.unsettled) == (DOLLAR // 2, DOLLAR // 2)
    assert (total.evictions, total.work) == (1, 100)
    assert total.usd_per_work == pytest.approx(0.105)
    assert sum(total.uses.values()) + total.other_charges == total.total
