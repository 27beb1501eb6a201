"""`spotctl lab train` for tests, and a small trainer of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.spotctl.command_line import Ended, spotctl

SMALL = (
    "--partitions",
    "8",
    "--arg",
    "ratings=4000",
    "--arg",
    "users=200",
    "--arg",
    "items=100",
    "--arg",
    "rank=4",
)
_PATIENCE = ("--timeouts", "heartbeat=20")
"""Where many tests share two processors, a node may be silent for long."""

_AVERAGE = """
import numpy as np

class Average:
    '''Goes from 0 to the mean of its shards' numbers.'''

    batch = 0

    def __init__(self, wrong="", shards=8):
        self.wrong, self.count = wrong, shards

    def init(self, rng):
        return {"file": np.zeros((6, 2), np.float32), "b": np.zeros(3)}

    def shards(self):
        return [range(number, number + 4) for number in range(self.count)]

    def step(self, shard, lo, hi, params, clock, rng):
        mean = np.full((6, 2), np.mean(shard[lo:hi]), np.float32)
        delta = (mean - params.read("file")) / (4 * self.count) * (hi - lo)
        if clock == 4 and self.wrong:
            delta = delta * np.inf if self.wrong == "infinite" else delta[:, :1]
        params.update("file", None, delta)

    def loss(self, params, sample):
        return float(np.abs(params.read("file") - 5).mean())
"""


def average(folder: Path) -> Path:
    """A file with a trainer."""
    path = folder / "average.py"
    path.write_text(_AVERAGE)
    return path


def trained(*words: str | Path, engine: str = "sim") -> Ended:
    return spotctl("lab", "train", *words, "--engine", engine, *_PATIENCE)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def last_line(ended: Ended) -> str:
    """The error, after what the trainer printed and the traceback of its own code."""
    return ended.err.splitlines()[-1]
