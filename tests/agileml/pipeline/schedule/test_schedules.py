"""Orders of operations, their peaks and their bubbles."""

from __future__ import annotations

import pytest

from agileml.errors import BadArgument
from agileml.pipeline.schedule import schedules
from agileml.pipeline.schedule.schedules import (
    Pass,
    PipelineStep,
    ScheduleShape,
    StepOrder,
    orders,
    peak_in_flight,
    peak_versions,
    replicated_orders,
    versions_used,
)
from agileml.pipeline.schedule.simulator import (
    PipelineRun,
    StageTimes,
    play,
)

SHAPES = [
    (scheme, p, m, v)
    for scheme in schedules.SCHEMES
    for p in (1, 2, 3, 4)
    for m in (p, 2 * p, 12)
    for v in ((1, 2, 3) if scheme == "interleaved" else (1,))
    if m >= p
]


def played(shape: ScheduleShape, forward: float = 3.0, backward: float = 6.0) -> PipelineRun:
    times = [StageTimes(forward / shape.chunks, backward / shape.chunks)] * (
        shape.stages * shape.chunks
    )
    return play([[order] for order in orders(shape)], times)


def written(order: StepOrder) -> str:
    return " ".join(
        f"{step.kind.value}{step.microbatch}" for step in order if step.kind is not Pass.UPDATE
    )


def test_flush_order() -> None:
    first, last = orders(ScheduleShape("flush", 2, 3))
    assert written(first) == "F0 F1 B0 F2 B1 B2"
    assert written(last) == "F0 B0 F1 B1 F2 B2"
    assert first[-1] == PipelineStep(Pass.UPDATE, 2)


def test_gpipe_order() -> None:
    assert written(orders(ScheduleShape("gpipe", 2, 3))[1]) == "F0 F1 F2 B0 B1 B2"


def test_interleaved_order() -> None:
    order = orders(ScheduleShape("interleaved", 2, 4, chunks=2))[1]
    assert [(step.kind.value, step.microbatch, step.chunk) for step in order[:5]] == [
        ("F", 0, 0),
        ("F", 1, 0),
        ("F", 0, 1),
        ("B", 0, 1),
        ("F", 1, 1),
    ]


@pytest.mark.parametrize(("scheme", "p", "m", "v"), SHAPES)
def test_peaks_equal_the_table(scheme: str, p: int, m: int, v: int) -> None:
    shape = ScheduleShape(scheme, p, m, batches=4 if m >= p > 1 else 2 * p + 2, chunks=v)
    for s, order in enumerate(orders(shape), 1):
        used = versions_used(scheme, order, p, m)
        assert peak_in_flight(order) == schedules.in_flight(scheme, p, s, m, v)
        assert peak_versions(order, used) == schedules.versions(scheme, p, s)


@pytest.mark.parametrize(("scheme", "p", "m", "v"), SHAPES)
def test_simulated_bubbles_equal_the_table(scheme: str, p: int, m: int, v: int) -> None:
    """Thirds of the run where nothing is filled or drained; whole seconds, so that the comparison
    is exact.
    """
    shape = ScheduleShape(scheme, p, m, batches=9, chunks=v)
    ideal = 9.0 * (1 if scheme in schedules.STASHING else m)
    assert played(shape, 3.0, 6.0).period() == pytest.approx(
        ideal * (1 + schedules.bubble(scheme, p, m, v)), rel=1e-12
    )


@pytest.mark.parametrize(("scheme", "p", "m", "v"), SHAPES)
def test_every_pass_runs_once_and_after_what_it_needs(scheme: str, p: int, m: int, v: int) -> None:
    shape = ScheduleShape(scheme, p, m, batches=3, chunks=v)
    ends: dict[tuple[Pass, int, int], float] = {}
    spans = [span for span in played(shape).spans if span.step.kind is not Pass.UPDATE]
    for span in spans:
        key = (span.step.kind, span.step.microbatch, span.step.chunk * p + span.stage)
        assert key not in ends
        ends[key] = span.end
    assert len(ends) == 2 * p * v * m * 3
    for span in spans:
        virtual, k = span.step.chunk * p + span.stage, span.step.microbatch
        if span.step.kind is Pass.FORWARD and virtual:
            assert span.start >= ends[Pass.FORWARD, k, virtual - 1]
        if span.step.kind is Pass.BACKWARD:
            after = (
                (Pass.BACKWARD, k, virtual + 1)
                if virtual < p * v - 1
                else (Pass.FORWARD, k, virtual)
            )
            assert span.start >= ends[after]


@pytest.mark.parametrize(
    ("scheme", "stage", "delays"),
    [
        ("pipedream", 1, [0, 1, 2, 3, 3, 3]),
        ("pipedream", 4, [0] * 6),
        ("vertical-sync", 1, [0, 1, 2, 3, 3, 3]),
        ("vertical-sync", 4, [0, 1, 2, 3, 3, 3]),
    ],
)
def test_delays_with_stashing(scheme: str, stage: int, delays: list[int]) -> None:
    """W_s(t-p+s), and W(t-p+1) with vertical sync; versions below 0 are 0."""
    order = orders(ScheduleShape(scheme, 4, 1, batches=6))[stage - 1]
    used = versions_used(scheme, order, 4, 1)
    assert [t - used[t] for t in range(6)] == delays


def test_double_buffering_is_one_batch_late_in_every_stage() -> None:
    for order in orders(ScheduleShape("2bw", 3, 4, batches=4)):
        used = versions_used("2bw", order, 3, 4)
        assert [used[k] for k in range(16)] == [0] * 8 + [1] * 4 + [2] * 4
        assert max(used[step.microbatch] for step in order if step.kind is not Pass.UPDATE) == 2


@pytest.mark.parametrize("scheme", schedules.SCHEMES)
def test_a_version_exists_before_it_is_used(scheme: str) -> None:
    for order in orders(
        ScheduleShape(scheme, 4, 8, batches=3, chunks=2 if scheme == "interleaved" else 1)
    ):
        used, updates = versions_used(scheme, order, 4, 8), 0
        for step in order:
            updates += step.kind is Pass.UPDATE
            assert used[step.microbatch] <= updates or step.kind is Pass.UPDATE


def test_replicas_take_inputs_in_turn() -> None:
    first, second = replicated_orders([2, 1], 6)
    assert written(first[1]) == "F1 F3 B1 F5 B3 B5"
    assert written(second[0]).startswith("F0 B0 F1 B1")


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
