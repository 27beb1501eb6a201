"""The contract of every fleet under the job loop. An engine's own tests subclass `FleetSuite` and
define `play`.

The job is the same for all: 16 shards whose updates cannot be reordered without changing the
model's bits.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from agileml import reference
from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import (
    Act,
    Evict,
    Join,
    KillController,
    RunningMachine,
    Script,
)
from agileml.job import Stopping, Trained, TrainingJob
from agileml.roles.node import JobSettings
from tests.agileml.engines.jobs import (
    Choice,
    Timetable,
    evict,
    join,
    kill,
    kill_controller,
    reliable,
)
from tests.agileml.toys import Decades, Gated

SAME = """
from tests.agileml.toys import Paced

class Same(Paced):
    pass
"""
"""A trainer in a file of its own."""

LENGTHS = (6,) * 16
CLOCKS = 12

JOB = TrainingJob(
    TrainerSource("tests.agileml.toys:Paced", {"lengths": LENGTHS}),
    reliable=1,
    transient=3,
    stopping=Stopping(clocks=CLOCKS),
    settings=JobSettings(partitions=8, deterministic=True),
    # The tests' machine may be busy; a killed process is noticed by its connections at once.
    heartbeat_timeout=20.0,
)


@cache
def undisturbed(clocks: int) -> str:
    return reference.model_digest(reference.run(Decades(LENGTHS), clocks, 0))


@dataclass
class Recorder:
    """Passes a timetable on and records which machines the loop offered to it before the job could
    end.

    Once the gate has let the last clock pass, machines leave because the job is over.
    """

    timetable: Timetable
    gate: Path
    last: int
    seen: list[tuple[RunningMachine, ...]] = field(default_factory=list)

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:
        if clock < self.last - Gated.AHEAD:
            self.seen.append(tuple(machines))
        os.truncate(self.gate, clock)
        return self.timetable.due(clock, seconds, machines)


Log = list[Iteration]


class FleetSuite:
    """`play` runs a job on a fleet with faults from a script. Afterwards no process and no file may
    be left.
    """

    @pytest.fixture
    def play(self) -> Callable[[TrainingJob, Script, Log], Trained]:
        raise NotImplementedError

    @pytest.fixture
    def gate(self, tmp_path: Path) -> Path:
        path = tmp_path / "gate"
        path.touch()
        return path

    @pytest.fixture
    def source(self, gate: Path) -> TrainerSource:
        return TrainerSource("tests.agileml.toys:Gated", {"lengths": LENGTHS, "gate": str(gate)})

    @pytest.fixture
    def run(
        self, play: Callable[[TrainingJob, Script, Log], Trained], source: TrainerSource, gate: Path
    ) -> Callable[..., tuple[Trained, Log, Recorder]]:
        def run(
            acts: dict[int, list[Choice]], job: TrainingJob = JOB
        ) -> tuple[Trained, Log, Recorder]:
            job = replace(job, source=source) if job.source == JOB.source else job
            log, recorder = Log(), Recorder(Timetable(acts), gate, job.stopping.clocks or 0)
            trained = play(job, recorder, log)
            assert [iteration.clock for iteration in log] == list(range(1, trained.clocks + 1))
            assert reference.model_digest(trained.model) == undisturbed(trained.clocks)
            sent = trained.counters.sent
            assert trained.counters == replace(trained.counters, applied=sent, lost=0, doubled=0)
            return trained, log, recorder

        return run

    def test_start_gives_every_role_a_machine(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        trained, log, recorder = run({})
        assert (trained.evictions, trained.failures) == (0, 0)
        assert (log[-1].reliable, log[-1].transient) == (1, 3)
        assert sorted(machine.reliable for machine in recorder.seen[-1]) == [False] * 3 + [True]

    def test_stop_without_notice_is_a_failure(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        trained, log, recorder = run({3: [kill(slice(2))]})
        assert trained.failures == 2, [one.events for one in log]
        assert log[-1].transient == 1
        assert len(recorder.seen[-1]) == 2

    def test_stop_with_notice_lets_the_node_leave(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        trained, log, recorder = run({3: [evict(slice(2), 60.0)]})
        assert (trained.evictions, trained.failures) == (2, 0), [one.events for one in log]
        assert log[-1].transient == 1
        assert {machine.name for seen in recorder.seen for machine in seen if machine.warned} == {
            "t1",
            "t2",
        }

    def test_stop_with_too_little_notice_is_a_failure(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        trained, _, _ = run({3: [evict(slice(1), 0.0)]})
        assert trained.failures == 1

    def test_machines_join_during_the_run(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        _, log, recorder = run(
            {2: [join(2)], 4: [kill(slice(1))]}, replace(JOB, stopping=Stopping(clocks=60))
        )
        assert max(iteration.transient for iteration in log) >= 4
        assert [machine.name for machine in recorder.seen[-1]] == ["r0", "t2", "t3", "t4", "t5"]

    def test_the_controller_is_restarted(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        _, log, _ = run(
            {3: [kill_controller], 7: [kill_controller]}, replace(JOB, stopping=Stopping(clocks=20))
        )
        assert any("controller" in event for iteration in log for event in iteration.events)

    def test_the_controller_may_go_as_the_job_ends(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        trained, _, _ = run({JOB.stopping.clocks or 0: [kill_controller]})
        assert trained.clocks == JOB.stopping.clocks

    def test_stopping_what_is_gone_changes_nothing(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        def again(machines: Sequence[RunningMachine]) -> Act:
            assert "t1" not in {machine.name for machine in machines}
            return Evict(("t1", "unknown"), None)

        def notice_again(_: Sequence[RunningMachine]) -> Act:
            return Evict(("t1", "unknown"), 1.0)

        trained, _, _ = run({3: [kill(slice(1))], 6: [again, notice_again]})
        assert (trained.evictions, trained.failures) == (0, 1)

    def test_a_node_that_runs_other_code_is_refused_and_the_job_goes_on(
        self, run: Callable[..., tuple[Trained, Log, Recorder]], tmp_path: Path
    ) -> None:
        trainer = tmp_path / "same.py"
        trainer.write_text(SAME)
        job = replace(
            JOB,
            source=TrainerSource(str(trainer), {"lengths": LENGTHS}),
            # Many, so that the job lasts until the new node is refused.
            stopping=Stopping(clocks=200),
        )

        def change_and_join(_: Sequence[RunningMachine]) -> Act:
            trainer.write_text(SAME + "# another version\n")
            return Join(1)

        _, log, _ = run({2: [change_and_join]}, job)
        refused = [event for one in log for event in one.events if event.startswith("refused")]
        assert len(refused) == 1
        assert job.source.code() in refused[0]
        assert log[-1].transient == 3

    def test_nothing_is_left_of_a_run_that_is_interrupted(
        self, play: Callable[[TrainingJob, Script, Log], Trained]
    ) -> None:
        def interrupt(_: Sequence[RunningMachine]) -> Act:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            play(JOB, Timetable({2: [interrupt]}), [])


class ReplacingFleetSuite(FleetSuite):
    """For fleets that start machines themselves: a reliable machine that is gone is replaced."""

    def test_a_reliable_machine_is_replaced(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        job = replace(JOB, reliable=2, stopping=Stopping(clocks=40), checkpoint_every=1)
        _, _, recorder = run({4: [kill(slice(1), reliable)]}, job)
        assert sum(machine.reliable for machine in recorder.seen[-1]) == 2

    def test_a_machine_that_is_gone_before_the_start_is_not_waited_for(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        def first_and_last(_: Sequence[RunningMachine]) -> Act:
            return Evict(("r0", "t3"), None)

        trained, _, recorder = run(
            {0: [first_and_last]}, replace(JOB, stopping=Stopping(clocks=40))
        )
        assert trained.failures == 2
        assert [machine.name for machine in recorder.seen[-1]] == ["t1", "t2", "r4"]

    def test_all_machines_and_the_controller_are_lost_at_once(
        self, run: Callable[..., tuple[Trained, Log, Recorder]]
    ) -> None:
        def everything(machines: Sequence[RunningMachine]) -> Act:
            return Evict(tuple(machine.name for machine in machines), None)

        def controller(_: Sequence[RunningMachine]) -> Act:
            return KillController()

        job = replace(JOB, stopping=Stopping(clocks=20), checkpoint_every=1)
        trained, _, _ = run({6: [everything, controller, join(2)]}, job)
        assert trained.clocks == 20
