"""A run costs what the backtest predicts: both use the same replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.launch_bill import compare
from spotctl.clouds.wiring import library
from spotctl.home.config import load
from tests.samples import LONG_RUN


@LONG_RUN
def test_a_run_costs_what_the_backtest_predicted(tmp_path: Path) -> None:
    rows = {
        row.name: row
        for row in compare(library(load({}, tmp_path)), 5, 4.0, ("standard+agileml", "lookahead"))
    }
    for row in rows.values():
        assert row.launched.usd == pytest.approx(row.predicted.usd, rel=0.02)
        assert row.launched.hours == pytest.approx(row.predicted.hours, rel=0.05)
    assert rows["lookahead"].launched.evictions > 0
    assert rows["lookahead"].launched.usd < rows["standard+agileml"].launched.usd
