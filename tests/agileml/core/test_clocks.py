"""When the controller requests checkpoints, and which ones count."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import pytest

from agileml.core.clocks import CheckpointSchedule
from agileml.core.events import (
    CheckpointRules,
    ClockRepeated,
    Iteration,
    NodeLost,
    RememberCheckpoint,
)
from agileml.core.recovery import CHECKPOINT, Mode
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Heartbeat,
    PartitionProgress,
    Recover,
    Restored,
    Saved,
    Stable,
    WorkDone,
)
from tests.agileml.core.control import committed, handle, join, mode_of, running


def test_a_checkpoint_is_requested_every_n_clocks_and_counts_when_complete() -> None:
    control = running("r", "t", checkpoints=CheckpointRules(2))
    assert Send("r", Stable(1, 1, checkpoint=False)) in committed(control, 1)
    assert Send("r", Stable(1, 2, checkpoint=True)) in committed(control, 2)
    handle(control, Saved("r", 1, 0, 2))
    assert control.clocks.checkpoints.latest == -1
    handle(control, Saved("r", 1, 1, 2))
    assert control.clocks.checkpoints.latest == 2


def test_no_checkpoint_is_requested_while_one_is_written_unless_it_is_overdue() -> None:
    control = running("r", "t", clocks=20, checkpoints=CheckpointRules(1))
    requested = []
    for clock in range(1, 12):
        requested += [clock] * (
            Send("r", Stable(1, clock, checkpoint=True)) in committed(control, clock)
        )
        if clock == 3:
            handle(control, Saved("r", 1, 0, 1), Saved("r", 1, 1, 1))
    assert requested == [1, 4, 8]


def test_checkpoints_are_no_closer_than_their_pause() -> None:
    schedule = CheckpointSchedule(1, CheckpointRules(1, pause=0.1))
    requested = []
    for clock in range(1, 41):
        if schedule.request(clock, clock - 1, now=clock * 0.03):
            requested.append(clock)
            schedule.add(clock, 0, now=clock * 0.03)
    assert requested == list(range(1, 41, 4))


def _gaps(schedule: CheckpointSchedule, seconds: int, lost_at: int = -1) -> list[tuple[int, int]]:
    """When checkpoints of two seconds are requested, and how long after each the next one is."""
    requested = list[int]()
    for now in range(seconds):
        if schedule.request(now + 1, now, float(now)):
            requested.append(now)
        elif now == requested[-1] + 2:
            for partition in range(schedule.partitions):
                assert schedule.add(requested[-1] + 1, partition, float(now)) is (
                    partition + 1 == schedule.partitions
                )
        if now == lost_at:
            schedule.roll_back(schedule.latest, loads=True)
    return [(at, after - at) for at, after in pairwise(requested)]


def test_writing_checkpoints_takes_a_tenth_of_the_time_at_most_once_a_job_is_not_young() -> None:
    gaps = [gap for _, gap in _gaps(CheckpointSchedule(2, CheckpointRules(1, share=0.1)), 2000)]
    assert gaps == sorted(gaps)
    assert gaps[0] == 3
    assert gaps[20:] == [20] * (len(gaps) - 20)


def test_a_checkpoint_that_takes_long_is_followed_by_the_next_a_minute_later() -> None:
    schedule = CheckpointSchedule(1, CheckpointRules(1, share=0.1))
    assert schedule.request(1, 0, now=0.0)
    assert schedule.add(1, 0, now=0.0)
    assert schedule.request(2, 1, now=1000.0)
    assert schedule.add(2, 0, now=1050.0)
    assert not schedule.request(3, 2, now=1109.0)
    assert schedule.request(4, 3, now=1110.0)


def test_checkpoints_are_as_frequent_as_costs_least_if_one_more_loss_comes_as_soon_as_those_before() -> (
    None
):
    gaps = _gaps(CheckpointSchedule(1, CheckpointRules(1, share=0.02)), 4000, lost_at=100)
    for at, gap in gaps:
        young = sqrt(2 * (at + 2) / (1 + (at > 100)))
        assert gap == pytest.approx(young, abs=1.01), at
    assert len(gaps) > 90


def test_a_checkpoint_never_mixes_versions_from_before_and_after_a_rollback() -> None:
    control = running("r", "t", checkpoints=CheckpointRules(2))
    committed(control, 1)
    committed(control, 2)
    handle(control, Saved("r", 1, 0, 2))
    handle(control, NodeLost("r", "killed"))
    assert mode_of(control) is Mode.GATHERING
    join(control, "r2")
    assert (control.epoch, control.clocks.stable) == (2, 0)
    handle(control, *(Restored(name, 2) for name in ("r2", "t")))
    handle(control, Saved("r2", 2, 1, 2))
    assert control.clocks.checkpoints.latest == -1
    handle(control, Saved("r2", 2, 0, 2))
    assert control.clocks.checkpoints.latest == 2


def test_by_default_every_clock_is_saved_and_the_loss_of_the_reliable_node_costs_one() -> None:
    control = running("r", "t", clocks=50)
    for clock in range(1, 31):
        assert Send("r", Stable(1, clock, checkpoint=True)) in committed(control, clock)
        written = [one for part in (0, 1) for one in handle(control, Saved("r", 1, part, clock))]
        assert written == [RememberCheckpoint(clock)]
    committed(control, 31)
    handle(control, Saved("r", 1, 0, 31))
    handle(control, NodeLost("r", "killed"))
    sent = join(control, "r2")
    (recover, _) = (one.message for one in sent if isinstance(one, Send))
    assert isinstance(recover, Recover)
    assert (recover.clock, recover.sources) == (30, (CHECKPOINT, CHECKPOINT))


def test_a_clock_that_is_done_again_is_reported_once() -> None:
    control = running("r", "t")
    for clock in (1, 2, 3):
        assert not [one for one in committed(control, clock) if isinstance(one, ClockRepeated)]
    handle(control, NodeLost("r", "killed"))
    join(control, "r2")
    handle(control, *(Restored(name, 2) for name in ("r2", "t")))
    assert control.clocks.stable == 0
    repeated = []
    for clock in (1, 2, 3, 4):
        for partition in range(2):
            for _ in range(2):
                sent = handle(control, PartitionProgress("r2", 2, partition, clock, backup=False))
                repeated += [one.clock for one in sent if isinstance(one, ClockRepeated)]
    assert repeated == [1, 2, 3]


def test_chunks_that_died_with_a_node_count_as_redone() -> None:
    control = running("r", "t", "u")
    committed(control, 1)
    handle(
        control,
        Heartbeat("t", unreported=1),
        Heartbeat("t", unreported=3),
        Heartbeat("u", unreported=2),
    )
    # What it has reported is not underway any more.
    handle(control, WorkDone("u", 1, 2, 2, 0.1, 0, 0.0, 0))
    handle(control, NodeLost("t", "killed"), NodeLost("u", "killed"))
    handle(control, Restored("r", control.epoch))
    lines = [one for one in committed(control, 2, control.epoch) if isinstance(one, Iteration)]
    # The two reported chunks were computed again by the last node.
    assert [(line.clock, line.redone) for line in lines] == [(2, 3 + 2)]
    assert [
        one.redone for one in committed(control, 3, control.epoch) if isinstance(one, Iteration)
    ] == [0]
