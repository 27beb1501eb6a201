"""Speed and memory in closed form, on equal stages."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agileml.errors import BadArgument
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


@pytest.mark.parametrize(
    ("scheme", "versions", "in_flight"),
    [
        ("gpipe", [1, 1, 1, 1], [8, 8, 8, 8]),
        ("flush", [1, 1, 1, 1], [4, 3, 2, 1]),
        ("pipedream", [4, 3, 2, 1], [4, 3, 2, 1]),
        ("vertical-sync", [4, 4, 4, 4], [4, 3, 2, 1]),
        ("2bw", [2, 2, 2, 2], [4, 3, 2, 1]),
    ],
)
def test_versions_and_inputs_in_flight(
    scheme: str, versions: list[int], in_flight: list[int]
) -> None:
    assert [schedules.versions(scheme, 4, s) for s in (1, 2, 3, 4)] == versions
    assert [schedules.in_flight(scheme, 4, s, 8) for s in (1, 2, 3, 4)] == in_flight
    assert schedules.bubble(scheme, 4, 8) == (3 / 8 if scheme in schedules.FLUSHING else 0)


def test_interleaving_peaks_above_the_depth() -> None:
    """p + (p-1)/v stages: 2(p-1) + (v-1)p + 1 chunks of 1/v stage each."""
    assert [schedules.in_flight("interleaved", 4, s, 8, 2) for s in (1, 2, 3, 4)] == [11, 9, 7, 5]
    assert schedules.in_flight("interleaved", 4, 1, 8, 2) / 2 == 4 + 3 / 2


@pytest.mark.parametrize(
    ("scheme", "stages", "microbatches", "chunks", "message"),
    [
        ("2bw", 4, 3, 1, "microbatches is 3: 2bw needs at least one per stage"),
        ("interleaved", 4, 6, 2, "microbatches is 6, not a multiple of 4 stages"),
        ("flush", 2, 4, 2, "chunks is 2: only the interleaved scheme"),
        ("zigzag", 2, 4, 1, "scheme is 'zigzag'; choose from gpipe"),
    ],
)
def test_shapes_that_cannot_run(
    scheme: str, stages: int, microbatches: int, chunks: int, message: str
) -> None:
    with pytest.raises(BadArgument, match=message):
        schedules.check_scheme(scheme, stages, microbatches, chunks)
