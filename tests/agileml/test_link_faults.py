"""Links that break in virtual time; `python -m tests.agileml.link_faults 0 1000` plays more
schedules.
"""

from __future__ import annotations

import pytest

from tests.agileml.link_faults import played


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", [7, 42, 87, 92, 143, 771, 811, 903])
def test_the_model_survives_links_that_break(seed: int) -> None:
    assert not played(seed)[0]
