"""Names of strategies, and their arguments."""

from __future__ import annotations

import pytest

from bidbrain.strategies.names import MAY_HAVE_ARGUMENT, NAMES, NEEDS_ARGUMENT, known
from bidbrain.strategies.registry import BadStrategy, set_up
from tests.bidbrain.strategies.test_registry import INPUTS

ARGUMENTS = {"fixed-bid": "0.0001", "price-capacity": "3", "lookahead": "12.5"}


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
