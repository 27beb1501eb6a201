"""The fault schedules notice deliberate faults; `python -m tests.agileml.mutants 200` says which seed caught which."""

from __future__ import annotations

import pytest

from tests.agileml.faults import Schedule
from tests.agileml.mutants import MUTANTS, Mutant, caught

SEEDS = 200


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_is_caught(mutant: Mutant) -> None:
    found = caught(mutant, SEEDS)
    assert found is not None, f"nobody notices that {mutant.name}"
    seed, _ = found
    # It is the fault that is noticed: without it the same schedule ends well.
    Schedule(seed, target=mutant.aims[seed % len(mutant.aims)]).run()
