"""Output of processes, and reports of their ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.agileml.engines.local.test_fleet_ends import job, printed
from tests.samples import LOCAL_FAULT

pytestmark = [pytest.mark.usefixtures("left_behind"), LOCAL_FAULT]


def test_what_every_node_prints_reaches_the_user(tmp_path: Path) -> None:
    step = (
        "if lo == 0 and clock == 1: print('at shard', shard, flush=False); os.system('echo from a "
        "child')"
    )
    lines = printed(job(tmp_path, step, clocks=3))
    assert {node for node, line in lines if line.startswith("at shard range(0, 4)")} == {
        "r0",
        "t1",
        "t2",
    }
    assert sum(line == "from a child" for _, line in lines) == 4


def test_the_end_of_a_crashed_process_is_reported_with_the_line(tmp_path: Path) -> None:
    crash = "__import__('ctypes').string_at(0) if clock == 2 else None"
    lines = printed(job(tmp_path, crash))
    assert any(
        "was ended by signal 11" in line and "steps.py, line 12, in step" in line
        for _, line in lines
    )
