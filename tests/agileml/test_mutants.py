"""The fault schedules notice deliberate faults; `python -m tests.agileml.mutants 300` says which seed caught which."""

from __future__ import annotations

import pytest

from tests.agileml.mutants import MUTANTS, Mutant, caught

SEEDS = 200


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_is_caught(mutant: Mutant) -> None:
    assert caught(mutant, SEEDS) is not None, f"nobody notices that {mutant.name}"
