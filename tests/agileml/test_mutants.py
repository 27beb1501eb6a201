"""The fault schedules notice deliberate faults; `python -m tests.agileml.mutants 100` says how often each is caught."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.agileml.mutants import MUTANTS, Mutant, catching

SEEDS = 60
ENOUGH = 3
"""Schedules that catch a fault, of the seeds: one alone might be lost with the next change of the core."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_is_caught(mutant: Mutant) -> None:
    found = list(islice(catching(mutant, SEEDS), ENOUGH))
    assert len(found) == ENOUGH, f"hardly anybody notices that {mutant.name}: {found}"
    # It is the fault that is noticed: without it the same schedules end well.
    for seed, _ in found:
        mutant.schedule(seed).run()
