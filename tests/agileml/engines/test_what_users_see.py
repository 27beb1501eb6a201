"""Messages of `spotctl lab train` about trainers that fail as Python code does: one line says what
happened, and where.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.samples import LOCAL_FAULT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

TRAINER = """
import ctypes, threading
from pathlib import Path
import numpy as np


def once(name):
    try:
        return not Path(__file__).with_name(name).touch(exist_ok=False)
    except FileExistsError:
        return False


class Steps:
    def init(self, rng):
        return {"w": np.zeros((8, 2), np.float32)}

    def shards(self):
        return [range(10 * number, 10 * number + 4) for number in range(4)]

    def step(self, shard, lo, hi, params, clock, rng):
        if clock == 2:
            STEP
        params.update("w", None, np.ones((8, 2), np.float32))

    def loss(self, params, sample):
        return float(params.read("w").mean())
"""
LINE = 23
"""Of what replaces STEP."""

MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT = 900 << 20
"""For all processes of the command; the trainer needs more."""


class Seen:
    """What a command has printed."""

    def __init__(self, ended: subprocess.CompletedProcess[str], trainer: Path) -> None:
        self.code, self.lines, self.trainer = ended.returncode, ended.stderr.splitlines(), trainer

    def line(self, *parts: str) -> str:
        """The only line with all these parts."""
        found = [line for line in self.lines if all(part in line for part in parts)]
        assert len(found) == 1, self.lines
        return found[0]


Train = Callable[..., Seen]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    def train(step: str, *options: str, cgroup: Path | None = None) -> Seen:
        trainer = tmp_path / "steps.py"
        trainer.write_text(TRAINER.replace("STEP", step))
        # Heartbeats of a busy computer may be late.
        words = ("--nodes", "1+1", "--clocks", "4", "--timeouts", "heartbeat=20", *options)
        ended = subprocess.run(
            [sys.executable, "-m", "spotctl", "lab", "train", str(trainer), *words],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            preexec_fn=None if cgroup is None else lambda: _enter(cgroup),
        )
        return Seen(ended, trainer)

    return train


def _enter(cgroup: Path) -> None:
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))


@pytest.fixture
def little_memory() -> Iterator[Path]:
    """A control group in which the kernel kills the largest process when its memory is used up."""
    group = MEMORY / f"agileml-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"a limit of memory needs a control group, which cannot be made here: {error}")
    yield group
    group.rmdir()


@LOCAL_FAULT
def test_torch_is_imported_in_a_step(train: Train) -> None:
    """It blocks all threads of the node for seconds, which is no failure."""
    if find_spec("torch") is None:
        pytest.skip("torch is not installed; pip install torch==2.13.0")
    seen = train("import torch; assert float(torch.ones(3).sum()) == 3.0")
    assert (seen.code, seen.lines) == (0, [])


@LOCAL_FAULT
def test_the_kernel_kills_a_node_that_leaks_memory(train: Train, little_memory: Path) -> None:
    """The node is replaced, and the training goes on."""
    leak = "hog = once('leaked') and [bytearray(b'x') * (1 << 20) for _ in range(100_000)]"
    seen = train(leak, cgroup=little_memory)
    assert seen.code == 0, seen.lines
    ended = seen.line(
        "was ended by signal 9 (SIGKILL: sent from outside, or by Linux when memory runs out)"
    )
    # Where it was is known only if its heartbeat process reports the end before the fleet does.
    begin = f"{seen.trainer}, line {LINE - 2}, in step, at clock 2, shard "
    where = [line for line in seen.lines if "its process ended; it was in" in line]
    assert all(
        begin in line and line.partition("]")[0] == ended.partition("]")[0] for line in where
    )


def test_one_shard_is_bad(train: Train) -> None:
    seen = train("assert shard[0] != 20, 'item 20 is broken'")
    assert seen.code == 1
    place = f"{seen.trainer}, line {LINE}, in step"
    traceback = seen.line("  File ")
    node = traceback.partition("]")[0].removeprefix("[")
    assert seen.lines[-1] == (
        f"spotctl: Steps, clock 2, shard 2, items 0 to 1: AssertionError: item 20 is broken "
        f"({place}), on node {node}"
    )
    assert f'  File "{seen.trainer}", line {LINE}, in step' in traceback


@LOCAL_FAULT
def test_a_call_into_c_takes_ten_seconds(train: Train) -> None:
    """It holds the interpreter's lock, which is no failure."""
    seen = train("once('slept') and ctypes.PyDLL(None).sleep(10)")
    assert (seen.code, seen.lines) == (0, [])


@LOCAL_FAULT
def test_a_step_waits_for_itself(train: Train) -> None:
    """The node is replaced, and the training goes on."""
    seen = train(
        "lock = threading.Lock(); once('locked') and lock.acquire() and lock.acquire()",
        "--timeouts",
        "hang=3",
    )
    assert seen.code == 0, seen.lines
    hung = seen.line("was declared lost: it hangs")
    assert f"it was in {seen.trainer}, line {LINE}, in step" in hung
    assert re.match(r"\[[rt]\d\] ", hung)
