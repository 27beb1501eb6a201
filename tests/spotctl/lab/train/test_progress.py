"""How a training looks on a terminal, and what its picture marks."""

from __future__ import annotations

import pytest

from agileml.core.events import Iteration
from agileml.policies.stage import ClockSums
from spotctl.lab.train import progress
from spotctl.lab.train.progress import marked_clocks


def iteration(clock: int, *events: str) -> Iteration:
    sums = ClockSums(loss_sum=3.0, loss_count=2)
    return Iteration(clock, 0.25, 2, 1, 3, sums, 0, events)


def test_a_line_and_the_events_of_a_clock() -> None:
    one = iteration(7, "t1 left", "t2 ready")
    assert progress.line(one) == "clock 7  stage 2  nodes 1+3  loss 1.5  250 ms"
    assert progress.events(one) == ["clock 7: t1 left", "clock 7: t2 ready"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0004, "0.4 ms"), (0.25, "250 ms"), (1.5, "1.5 s"), (99.4, "99.4 s"), (252.3, "4 min 12 s")],
)
def test_spans(value: float, text: str) -> None:
    assert progress.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")]
)
def test_sizes(value: float, text: str) -> None:
    assert progress.size(value) == text


def test_which_events_the_picture_marks() -> None:
    history = [
        iteration(1, "t1 ready", "epoch 1 from version 0"),
        iteration(2, "t1 warned: 5 s", "t1 left", "t2 ready"),
        iteration(3, "t2 lost: its machine is gone", "controller restarted"),
        iteration(4),
    ]
    assert marked_clocks(history) == {
        "warned": [2],
        "left": [2],
        "ready": [2],
        "lost": [3],
        "controller": [3],
    }
