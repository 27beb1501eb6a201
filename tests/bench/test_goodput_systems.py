"""Each system of the benchmark of goodput goes on after a kill, and nothing of it is left running."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.goodput.schedule import COORDINATOR


@pytest.mark.parametrize(
    ("system", "node"),
    [
        *((name, 0) for name in ("ray", "command", "trainer", "trainer-tls")),
        ("trainer-tls", COORDINATOR),
    ],
)
def test_a_system_goes_on_after_a_kill_and_leaves_nothing(system: str, node: int) -> None:
    command = [sys.executable, "-m", "tests.bench.goodput_cell", system, str(node)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step, left = map(int, done.stdout.split())
    assert step > 0
    assert left == 0
