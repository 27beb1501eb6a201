"""The registry of strategies and the list of their names."""

from __future__ import annotations

import pytest

from bidbrain.lab.backtest.run import inputs_of
from bidbrain.strategies.registry import BadStrategy, set_up
from tests.bidbrain.lab.backtest.test_run import scenario

INPUTS = inputs_of(scenario(), "us-east-1a")


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadStrategy, match=r"'magic' is unknown \(known: on-demand, "):
        set_up("magic", INPUTS)


def test_the_argument_of_price_capacity_is_a_number_of_pools() -> None:
    assert set_up("price-capacity:3", INPUTS).name == "price-capacity:3"
    for argument in ("0", "-1", "1.5", "three"):
        with pytest.raises(BadStrategy, match="is not a number of pools"):
            set_up(f"price-capacity:{argument}", INPUTS)
