"""Speed and memory in closed form, on equal stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agileml.pipeline.plan.candidates import (
    StageCost,
    double_buffered_seconds,
    flush_batch_seconds,
    held_bytes,
    unpipelined_seconds,
)
from agileml.pipeline.schedule import schedules

STAGE = StageCost(1.0, 2.0, 0.5, 4.0, weight_bytes=100.0, stash_bytes=40.0, input_bytes=5.0)
FOUR = (replace(STAGE, link_seconds=0.0), STAGE, STAGE, STAGE)


def test_double_buffering_takes_the_slowest_stage_or_its_all_reduce() -> None:
    assert double_buffered_seconds(FOUR, microbatches=8) == 3.5
    assert double_buffered_seconds(FOUR, microbatches=1) == 4.0
    assert unpipelined_seconds(FOUR, microbatches=8) == 4 * 3.0 + 3 * 0.5 + 4.0 / 8


def test_recomputing_costs_a_second_forward_pass() -> None:
    again = [replace(stage, recompute=True, link_seconds=0.0) for stage in FOUR]
    assert double_buffered_seconds(again, 8) == pytest.approx(3.0 * 4 / 3)


@pytest.mark.parametrize(("chunks", "bubble"), [(1, 3 / 8), (2, 3 / 16)])
def test_a_flush_adds_the_bubble(chunks: int, bubble: float) -> None:
    stages = [replace(stage, link_seconds=0.0) for stage in FOUR]
    assert flush_batch_seconds(stages, 8, chunks) == pytest.approx(8 * 3.0 * (1 + bubble) + 4.0)
    assert schedules.bubble("interleaved" if chunks > 1 else "flush", 4, 8, chunks) == bubble


def test_bytes_of_the_first_stage() -> None:
    """Weight versions and p stashes; with recomputation one stash and p inputs. Gradients and
    optimizer come on top.
    """
    extra = 3 * 100.0
    assert held_bytes(STAGE, 2, 4, "adam") == 2 * 100 + 4 * 40 + 4 * 5 + extra
    assert held_bytes(replace(STAGE, recompute=True), 2, 4, "adam") == 2 * 100 + 40 + 4 * 5 + extra
    assert held_bytes(replace(STAGE, recompute=True), 1, 16, "sgd") == 100 + 40 + 16 * 5 + 100
