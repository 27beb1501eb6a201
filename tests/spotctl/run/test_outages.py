"""A cloud or a store that fails for two minutes, from any call on: the job is done all the same."""

from __future__ import annotations

import random

import pytest

from tests.spotctl.run.local_outages import CLOUD, STORE, outlived_here
from tests.spotctl.run.outages import FAULTS, Outage, outlived, positions


@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_an_outage_from_any_call_of_a_run_on(fault: str) -> None:
    for begin in random.Random(fault).sample(range(positions()), 15):
        outlived(Outage(begin), FAULTS[fault])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("part", "begin"), [(CLOUD, at) for at in range(0, 60, 6)] + [(STORE, at) for at in range(16)]
)
def test_an_outage_from_any_call_of_a_launcher_on(part: str, begin: int) -> None:
    outlived_here(part, begin)
