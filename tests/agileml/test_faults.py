"""A job's model equals the reference whatever faults occur. `python -m tests.agileml.faults` runs
more schedules.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from agileml.params.deltas import Delta, accumulate
from agileml.protocol.actions import WorkUnit
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.partitions import PendingClock
from agileml.transport import FrameLimits
from agileml.transport.codec import Encoded, split
from tests.agileml import faults
from tests.agileml.schedules import Schedule
from tests.agileml.targets import EVENTS, KINDS, OUTSIDE, PHASES, STAGES, Target, sought_by, targets
from tests.agileml.toys import Decades, Largest, Momentum, Steady

SPREAD = 61
"""Seeds this far apart aim at different kinds of messages."""


@pytest.mark.sampled(24)
@pytest.mark.parametrize("seed", range(0, 60 * SPREAD, SPREAD))
def test_the_model_equals_the_reference(seed: int) -> None:
    Schedule(seed).run()


@pytest.mark.parametrize("seed", [3, 10, 907])
def test_a_seed_reproduces_the_log(seed: int) -> None:
    one, two = Schedule(seed), Schedule(seed)
    one.run()
    two.run()
    assert one.watch.digest == two.watch.digest
    assert one.log == two.log
    other = Schedule(seed + 1)
    other.run()
    assert other.watch.digest != one.watch.digest


BUCKETS = 128
"""Bytes of a frame, so that a snapshot takes several, and a push takes dozens."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(4, 4 + 20 * 157, 157))
def test_the_model_equals_the_reference_when_messages_are_sent_in_buckets(seed: int) -> None:
    schedule = Schedule(seed, frame_bytes=BUCKETS)
    schedule.run()
    assert "MessageBucket" in {kind for _, kind in schedule.watch.kinds}


@pytest.mark.parametrize("kind", ["Push", "Snapshot", "Patch", "Handover", "Restore", "Collected"])
def test_every_message_with_partition_data_is_sent_in_buckets(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = set[str]()

    def noted(message: Encoded, limits: FrameLimits) -> Iterator[Encoded]:
        cut.add(message[0])
        return split(message, limits)

    monkeypatch.setattr("agileml.engines.sim.network.split", noted)
    for seed in range(3):
        if kind not in cut:
            Schedule(seed, target=Target(2, "kill one", kind), frame_bytes=BUCKETS).run()
    assert kind in cut


@pytest.mark.parametrize("kind", [Momentum, Largest])
@pytest.mark.parametrize("seed", range(5, 5 + 8 * 157, 157))
def test_the_model_equals_the_reference_with_an_optimizer_or_another_aggregation(
    kind: type[Decades], seed: int
) -> None:
    Schedule(seed, kind).run()


@pytest.mark.parametrize("seed", range(7, 7 + 8 * 157, 157))
def test_without_deterministic_mode_the_models_are_close(seed: int) -> None:
    Schedule(seed, Steady, deterministic=False).run()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("slack", [1, 2, None])
@pytest.mark.parametrize("seed", range(8, 8 + 6 * 157, 157))
def test_with_slack_nothing_is_lost_and_reads_keep_the_bound(
    seed: int, slack: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    staleness: list[int] = []
    compute = ChunkRunner.run

    def run(chunk_runner: ChunkRunner, work: WorkUnit, *arguments: object) -> WorkResult:
        staleness.append(work.clock - 1 - min(chunk_runner.cache.clocks))
        return compute(chunk_runner, work, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ChunkRunner, "run", run)
    Schedule(seed, slack=slack).run()
    assert max(staleness) > 0
    assert slack is None or max(staleness) <= slack


def test_a_shuffled_sum_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(0)

    def shuffled(pending: PendingClock) -> Delta | None:
        total: Delta | None = None
        for entry in chance.sample(pending.entries, len(pending.entries)):
            total = accumulate(total, entry.delta, pending.by)
        return total

    Schedule(0).run()
    monkeypatch.setattr(PendingClock, "summed", shuffled)
    with pytest.raises(AssertionError, match="is not what it should be"):
        Schedule(0).run()


def test_failures_and_missed_targets_are_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert faults.main(0, 2) == 0
    output = capsys.readouterr().out
    assert "seeds 0 to 1: 2 schedules ended with the undisturbed model" in output
    assert "missing" not in output
    monkeypatch.setattr(faults, "sought_by", lambda *_: {Target(6, "kill one", "Restore")})
    monkeypatch.setitem(PHASES, 6, "another phase")
    monkeypatch.setattr(faults, "ATTEMPTS", 0)
    assert faults.main(0, 2) == 1
    assert "missing: kill one after Restore in another phase" in capsys.readouterr().out

    def fails(_: Schedule) -> None:
        raise AssertionError("two owners")

    monkeypatch.setattr(Schedule, "run", fails)
    [line] = faults.Report.of(7).failed
    assert line.startswith("seed 7, Target(")
    assert line.endswith("AssertionError: two owners")


def test_every_target_is_aimed_at() -> None:
    assert sought_by(0, 5000) == set(targets())
    assert not sought_by(0, 500)
    assert len(targets()) == len(EVENTS) * (
        len(KINDS) * len(STAGES) + sum(map(len, OUTSIDE.values()))
    )


def test_learning_the_stage_does_not_change_the_model() -> None:
    changes = set[tuple[int, int]]()
    for seed in range(3, 3 + 20 * 157, 157):
        stages = [line.stage for line in Schedule(seed, learning=True).run()[0].log]
        changes.update(pairwise(stages))
    assert changes > {(1, 2), (2, 3), (3, 2), (2, 1)}


@pytest.mark.parametrize("seed", range(5))
def test_a_backup_changes_while_partitions_move(seed: int) -> None:
    Schedule(seed, target=Target(3, "warn reliable", "Move"), then=("warn half", "Move")).run()


@pytest.mark.parametrize(
    "target",
    [
        Target(1, "kill one", "Recover"),
        Target(2, "warn one", "Handover"),
        Target(3, "kill controller", "Restore"),
        Target(1, "suspect one", "Patch"),
    ],
)
def test_a_schedule_hits_its_target(target: Target) -> None:
    met = set[Target]()
    for seed in range(5):
        schedule = Schedule(seed, target=target)
        schedule.run()
        met |= schedule.met
    assert target in met
