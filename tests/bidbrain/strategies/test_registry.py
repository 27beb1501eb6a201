"""The registry of strategies and the list of their names."""

from __future__ import annotations

import pytest

from bidbrain.lab.backtest.run import inputs_of
from bidbrain.strategies.names import MAY_HAVE_ARGUMENT, NAMES, NEEDS_ARGUMENT, known
from bidbrain.strategies.registry import BadStrategy, set_up
from tests.bidbrain.lab.backtest.test_run import scenario

ARGUMENTS = {"fixed-bid": "0.0001", "price-capacity": "3", "lookahead": "12.5"}
INPUTS = inputs_of(scenario(), "us-east-1a")


@pytest.mark.parametrize("name", NAMES)
def test_every_listed_name_sets_up_a_strategy(name: str) -> None:
    written = f"{name}:{ARGUMENTS[name]}" if name in NEEDS_ARGUMENT else name
    assert known(written)
    assert set_up(written, INPUTS).name == written


def test_arguments_are_accepted_where_listed_and_refused_elsewhere() -> None:
    for name in NAMES:
        with_argument = f"{name}:{ARGUMENTS.get(name, '1')}"
        assert known(with_argument) == (name in MAY_HAVE_ARGUMENT)
        if name not in MAY_HAVE_ARGUMENT:
            with pytest.raises(BadStrategy, match="is unknown"):
                set_up(with_argument, INPUTS)


@pytest.mark.parametrize("name", ["", "magic", "bound", "fixed-bid", "proteus:", "lookahead:"])
def test_other_names_are_not_known(name: str) -> None:
    assert not known(name)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadStrategy, match=r"'magic' is unknown \(known: on-demand, "):
        set_up("magic", INPUTS)


def test_the_argument_of_price_capacity_is_a_number_of_pools() -> None:
    assert set_up("price-capacity:3", INPUTS).name == "price-capacity:3"
    for argument in ("0", "-1", "1.5", "three"):
        with pytest.raises(BadStrategy, match="is not a number of pools"):
            set_up(f"price-capacity:{argument}", INPUTS)
