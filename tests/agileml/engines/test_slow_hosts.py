"""Partitions leave a server whose bandwidth is really limited, without changing the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agileml.engines import slow_hosts
from tests.samples import LONG_RUN


@pytest.mark.slow
@pytest.mark.timeout(600)
@LONG_RUN
def test_partitions_leave_a_host_that_sends_slowly(tmp_path: Path) -> None:
    found = {}
    for stragglers in ("", "balance"):
        (folder := tmp_path / (stragglers or "stay")).mkdir()
        found[stragglers] = slow_hosts.played(folder, 1, stragglers)
    stay, move = found[""], found["balance"]
    assert any("partitions move to other servers" in event for event in move.events)
    assert stay.answer["model_sha256"] == move.answer["model_sha256"]
    # Each of four servers sends about as much, until most partitions have left the slow one.
    assert move.share(0, 1) < stay.share(0, 1) / 2
