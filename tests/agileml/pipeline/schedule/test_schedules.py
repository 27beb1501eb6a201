"""Orders of operations, their peaks and their bubbles."""

from __future__ import annotations

import json

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
    timeline_page,
    trace_json,
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


def test_two_one_one_needs_one_input_more_than_its_depth() -> None:
    """The first stage takes twice as long on twice the replicas, which synchronize after every
    round.
    """
    times = [StageTimes(2 / 3, 4 / 3), StageTimes(1 / 3, 2 / 3), StageTimes(1 / 3, 2 / 3)]
    speeds = [
        200 / play(replicated_orders([2, 1, 1], 200, extra), times).seconds for extra in (0, 1)
    ]
    assert speeds[0] == pytest.approx(0.66, abs=0.01)
    assert speeds[1] == pytest.approx(0.98, abs=0.01)


def test_replicas_take_inputs_in_turn() -> None:
    first, second = replicated_orders([2, 1], 6)
    assert written(first[1]) == "F1 F3 B1 F5 B3 B5"
    assert written(second[0]).startswith("F0 B0 F1 B1")


def test_transfers_take_a_link_in_turn_and_leave_compute_alone() -> None:
    shape = ScheduleShape("2bw", 2, 8, batches=6)
    lines = [[order] for order in orders(shape)]
    # Two inputs in flight go once round both stages and back over the link in 3 + 0.5 + 3 + 0.5
    # seconds.
    assert play(lines, [StageTimes(1, 2, send=0.5), StageTimes(1, 2)]).period() == pytest.approx(
        8 * 3.5
    )
    # The link is the slowest stage of this pipeline.
    assert play(lines, [StageTimes(1, 2, send=6.0), StageTimes(1, 2)]).period() >= 8 * 6.0


def test_a_timeline_shows_every_operation() -> None:
    run = played(ScheduleShape("flush", 2, 4))
    events = json.loads(trace_json(run))["traceEvents"]
    assert len(events) == 2 * (2 * 4 + 1)
    assert {event["name"] for event in events} >= {"F0", "B3", "U3"}
    page = timeline_page(run, "a <b>")
    assert page.count("<rect") == len(events)
    assert "a &lt;b&gt;" in page


def test_a_deadlock_names_the_stage() -> None:
    order = (PipelineStep(Pass.BACKWARD, 0), PipelineStep(Pass.FORWARD, 0))
    with pytest.raises(BadArgument, match="pipeline stage 1 waits forever for the input of B0"):
        play([[order], [order]], [StageTimes(1, 1)] * 2)
