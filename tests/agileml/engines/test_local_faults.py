"""Random faults on real processes; `python -m tests.agileml.local_faults 0 200` runs more."""

from __future__ import annotations

import pytest

from tests.agileml.local_faults import LocalSchedule

pytestmark = [pytest.mark.usefixtures("left_behind"), pytest.mark.timeout(600)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", [1, 8])
def test_the_model_equals_the_reference(seed: int) -> None:
    LocalSchedule(seed).run()
