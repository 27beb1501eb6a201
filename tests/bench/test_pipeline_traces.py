"""The replay of recorded fleets: what the figures of `bench.pipeline_traces` must satisfy on any
trace.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.pipeline_traces import BATCH, outcomes

TRACE = """\
time_s,event,nodes,n_delta
0,add,{first},8
60,no-op,,0
240,remove,n0|n1|n2|n3,4
420,add,n8|n9,2
540,no-op,,0
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "parcae_small.csv"
    path.write_text(TRACE.format(first="|".join(f"n{i}" for i in range(8))))
    return path


def test_what_is_trained_lies_between_a_restart_and_the_bound(trace: Path) -> None:
    played, machine_seconds = outcomes(trace)
    assert machine_seconds == 8 * 240 + 4 * 180 + 6 * 180
    warned, unwarned = played["elastic, warned"], played["elastic, unwarned"]
    assert warned.trained % BATCH == unwarned.trained % BATCH == 0
    assert played["restart"].trained < unwarned.trained <= warned.trained < played["bound"].trained
    assert warned.redone == 0
    assert 0 < unwarned.redone < BATCH
    for one in played.values():
        samples = [count for _, count in one.curve]
        assert samples[-1] == one.trained
