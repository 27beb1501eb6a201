"""Twenty seconds of continuous chaos; `python -m tests.agileml.soak 1800` runs for half an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.job import Stopping
from agileml.reference import model_digest, run
from tests.agileml.soak import Paced, Storm, growth, soak
from tests.samples import LONG_RUN

MAX_CLOCKS = 500
"""What a fast machine does in less than that time."""


@LONG_RUN
@pytest.mark.slow
def test_continuous_chaos_loses_no_update_and_leaks_nothing(left_behind: Path) -> None:
    storm = Storm(left_behind, seed=1)
    trained = soak(storm, Stopping(clocks=MAX_CLOCKS, seconds=20.0))
    assert model_digest(trained.model) == model_digest(run(Paced(), trained.clocks, 0))
    counters = trained.counters
    assert (counters.lost, counters.doubled, counters.applied) == (0, 0, counters.sent)
    assert 0 < trained.failures <= storm.started
    more = growth(storm.samples)
    # Machines come and go; what grew with their number would be far above this.
    assert more.surplus <= 6
    assert max(more.descriptors, more.own_descriptors) <= 16
    assert more.files <= 36
    assert more.mebibytes < 32
    assert more.written < 8
