"""The iteration log as the dashboard, the reports and bidbrain read it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agileml.core.events import Iteration
from agileml.errors import BadArgument
from agileml.iteration_log import IterationLog, last_line_of, line_of, read_log
from agileml.job import Counters, Trained
from agileml.policies.stage import ClockSums
from agileml.reference import model_digest

SUMS = ClockSums(
    chunks=4, seconds=0.3, pushed=100, pulled=200, backup=50, loss_sum=6.0, loss_count=4
)
CLOCK = Iteration(7, 0.25, 2, 1, 3, SUMS, 2, ("t1 warned: 5 s", "t1 left"), ((0, 0, 2), (1, 0, 1)))
TRAINED = Trained(7, {"w": np.arange(3.0)}, Counters(80, 79, 1, 0), 2, 3, loss=0.5, samples=700)

LINE = {
    "clock": 7,
    "seconds": 0.25,
    "stage": 2,
    "nodes": {"reliable": 1, "transient": 3},
    "bytes": {"push": 100, "pull": 200, "backup": 50},
    "loss": 1.5,
    "redone": 2,
    "events": ["t1 warned: 5 s", "t1 left"],
    "accepted": [[0, 0, 2], [1, 0, 1]],
}
LAST = {
    "clocks": 7,
    "updates_sent": 80,
    "updates_applied": 79,
    "updates_lost": 1,
    "updates_doubled": 0,
    "evictions": 2,
    "failures": 3,
    "model_sha256": model_digest(TRAINED.model),
    "loss": 0.5,
    "samples": 700,
}


def test_every_key_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with IterationLog(path) as log:
        log.write(CLOCK)
        # A dashboard reads the log while it is written.
        assert path.read_text().count("\n") == 1
        log.put(last_line_of(TRAINED))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found == [LINE, LAST]
    assert [list(line) for line in found] == [list(LINE), list(LAST)]


def test_an_unknown_loss_is_null() -> None:
    assert line_of(Iteration(1, 0.1, 1, 1, 0, ClockSums(), 0, ()))["loss"] is None


def test_a_new_job_overwrites_the_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("of another job\n" * 9)
    with IterationLog(path) as log:
        log.write(CLOCK)
    assert json.loads(path.read_text()) == LINE


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    log = IterationLog(tmp_path / "no" / "run.jsonl")
    with pytest.raises(
        BadArgument,
        match=r"no/run.jsonl: No such file or directory; choose a file in an existing folder",
    ):
        log.write(CLOCK)


def test_a_job_that_fails_to_start_keeps_the_old_log(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text("of another job")
    with IterationLog(path):
        pass
    assert path.read_text() == "of another job"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no clock in it"),
        ('{"clock": 1}\n', "line 1: not a line of an iteration log"),
        ("[]\n", "line 1: not a line of an iteration log"),
        ("{\n", "line 1: not a line of an iteration log"),
        ('{"clock": 2, "accepted": []}\n', "line 1: clock 2 follows 0"),
    ],
)
def test_what_is_no_iteration_log_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(BadArgument, match=message):
        read_log(path)
