"""Systems of the benchmark of goodput go on after losses, make the undisturbed training, and leave
nothing running.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from bench.goodput.schedule import KINDS

# torchrun is none of them: on a busy computer its nodes may end for good.
CELLS = [
    *(("kills", name) for name in ("ray", "command", "trainer-reliable")),
    *((kind, name) for kind in KINDS if kind != "none" for name in ("trainer", "trainer-tls")),
    ("coordinator", "command"),
]
APART = 0.02
"""How far apart the final losses of two trainings may be if one of them adds in a different
order."""


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize(("schedule", "system"), CELLS)
def test_a_system_goes_on_after_losses_makes_the_same_training_and_leaves_nothing(
    schedule: str, system: str
) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.bench.goodput_cell",
        system,
        schedule,
        str(random.getrandbits(32)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    step, loss, undisturbed, left = json.loads(done.stdout)
    assert step > 0, done.stderr
    assert loss == pytest.approx(undisturbed, abs=APART), done.stderr
    assert left == 0
