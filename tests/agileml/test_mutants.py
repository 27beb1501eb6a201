"""The fault schedules detect deliberate bugs; `python -m tests.agileml.mutants 100` prints how
often.
"""

from __future__ import annotations

from inspect import Parameter, getattr_static, signature
from itertools import islice

import pytest

from tests.agileml.mutants import MUTANTS
from tests.agileml.mutation import Mutant, catching

SEEDS = 60
ENOUGH = 1
"""Schedules that must detect a bug here; `mutants 100` shows the bugs that only few detect."""


@pytest.mark.sampled(16)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_fault_is_caught(mutant: Mutant) -> None:
    found = list(islice(catching(mutant, SEEDS), ENOUGH))
    assert len(found) == ENOUGH, f"too few schedules detect that {mutant.name}: {found}"
    # Without the bug the same schedules pass.
    for seed, _ in found:
        mutant.run(seed)


def test_a_fault_takes_the_arguments_of_what_it_replaces() -> None:
    """Else its first call fails, and schedules that detect nothing seem to detect it."""
    for mutant in MUTANTS:
        replaced = getattr_static(mutant.where, mutant.attribute)
        if isinstance(replaced, property) or isinstance(mutant.fault, property):
            continue
        taken = signature(getattr(replaced, "__func__", replaced)).parameters.values()
        by_name = {one.name: None for one in taken if one.kind is Parameter.KEYWORD_ONLY}
        by_place = [None for one in taken if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
        signature(mutant.fault).bind(*by_place, **by_name)
