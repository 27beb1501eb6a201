"""Answers on markets."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pricing_data.catalog import Catalog
from pricing_data.market import Market
from pricing_data.stats import describe
from spotctl.show.prices.price_answers import stats_table
from tests.pricing_data.histories import START, series


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_the_table_of_statistics_fits_the_terminal(width: int) -> None:
    named = Market.parse("local/sim-east/sim-east-a/standard.32xlarge")
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(
        stats_table([describe(series((0, 10**9), (60, 10**9), of=named), Catalog())], START, width)
    )
    lines = console.export_text().splitlines()
    assert len(lines) == 2, lines
    assert "(synthetic)" in lines[1]
