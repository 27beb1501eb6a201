"""Jobs on real processes that are killed: the model equals that of the undisturbed run, and nothing
is left behind.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from agileml import reference
from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.chaos import Act, Evict, RunningMachine, Script
from agileml.engines.local import LocalEngine
from agileml.job import Stopping, Trained, TrainingJob
from agileml.roles.node import JobSettings
from agileml.trainer import ParamView
from tests.agileml.engines.jobs import (
    Choice,
    Timetable,
    evict,
    join,
    kill,
    kill_controller,
    node_pid,
    processes,
    reliable,
)
from tests.agileml.toys import Decades, Paced
from tests.samples import LOCAL_FAULT

pytestmark = [pytest.mark.usefixtures("left_behind"), LOCAL_FAULT]

CLOCKS = 12
LENGTHS = (6,) * 16


@cache
def undisturbed(clocks: int) -> str:
    return reference.model_digest(reference.run(Decades(LENGTHS), clocks, 0))


JOB = TrainingJob(
    TrainerSource("tests.agileml.toys:Paced", {"lengths": LENGTHS}),
    reliable=1,
    transient=4,
    stopping=Stopping(clocks=CLOCKS),
    settings=JobSettings(partitions=8, deterministic=True),
    # The tests' machine may be busy; a killed process is noticed by its connections at once.
    heartbeat_timeout=20.0,
)


def played(
    acts: dict[int, list[Choice]] | Script, job: TrainingJob = JOB
) -> tuple[Trained, list[Iteration]]:
    log: list[Iteration] = []
    script = Timetable(acts) if isinstance(acts, dict) else acts
    trained = LocalEngine().run(job, script, log.append)
    assert [iteration.clock for iteration in log] == list(range(1, trained.clocks + 1))
    assert trained.clocks == job.stopping.clocks
    assert reference.model_digest(trained.model) == undisturbed(trained.clocks)
    sent = trained.counters.sent
    assert trained.counters == replace(trained.counters, applied=sent, lost=0, doubled=0)
    return trained, log


@pytest.mark.sampled(1)
@pytest.mark.parametrize("transients", [0, 1, 4])
def test_undisturbed_in_every_stage(transients: int) -> None:
    trained, _ = played({}, replace(JOB, transient=transients))
    assert (trained.evictions, trained.failures) == (0, 0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("pick", "count"), [(slice(1), 1), (slice(2, None), 2), (slice(None), 4)])
def test_transient_nodes_are_killed(pick: slice, count: int) -> None:
    trained, log = played({3: [kill(pick)]})
    assert trained.failures == count
    assert log[-1].transient == 4 - count


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("pick", "count"), [(slice(1), 1), (slice(1, 3), 2), (slice(None), 4)])
def test_transient_nodes_are_warned(pick: slice, count: int) -> None:
    trained, log = played({3: [evict(pick, 30.0)]})
    assert (trained.evictions, trained.failures) == (count, 0)
    assert log[-1].transient == 4 - count


BUCKETS = replace(JOB, settings=replace(JOB.settings, partitions=2, frame_bytes=128))
"""No frame holds a whole partition."""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "act", [kill(slice(2)), evict(slice(2), 30.0), join(1), kill_controller], ids=range(4)
)
def test_messages_in_buckets_survive_faults(act: Choice) -> None:
    played({3: [act]}, BUCKETS)


def test_a_warning_that_is_too_short_is_a_failure() -> None:
    trained, _ = played({3: [evict(slice(2), 0.0)]})
    assert trained.failures == 2


def test_nodes_join_and_are_killed_again_and_again() -> None:
    trained, _ = played(
        {2: [join(2)], 4: [kill(slice(3))], 6: [join(3)], 8: [kill(slice(None)), join(2)]}
    )
    assert trained.failures >= 3


class OnceCheckpointed:
    """Kills every machine once the controller knows of a checkpoint: then it has removed the first
    one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = False

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        written = {
            path.name.partition("-")[2] for path in self.folder.glob("*/checkpoints/*.checkpoint")
        }
        if self.done or not written or "c2.checkpoint" in written:
            return ()
        self.done = True
        return (Evict(tuple(machine.name for machine in machines), None),)


def test_all_nodes_are_lost_and_the_checkpoint_brings_a_reliable_one_back(
    left_behind: Path,
) -> None:
    job = replace(JOB, transient=2, stopping=Stopping(clocks=80), checkpoint_every=2)
    trained, log = played(OnceCheckpointed(left_behind), job)
    assert trained.failures == 3
    back = [event for iteration in log for event in iteration.events if "from version" in event]
    assert back[0].endswith("from version 0")
    assert not back[-1].endswith("from version 0")


def test_one_of_two_reliable_nodes_is_lost() -> None:
    played({4: [kill(slice(1), reliable)]}, replace(JOB, reliable=2, checkpoint_every=1))


def test_the_controller_is_killed() -> None:
    played({3: [kill_controller], 7: [kill_controller]})


@dataclass
class Stopped:
    """Suspends the controller's process for a while after the second clock; with `everything`, all
    of the job.

    The controller then goes on first, long enough before the others that it finds no new
    heartbeats.
    """

    folder: Path
    seconds: float
    everything: bool = False
    resumed: list[tuple[float, int]] = field(default_factory=list)
    """When each of the suspended processes goes on."""
    until: float = 0.0

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        if clock >= 2 and not self.until:
            controller = self._controller()
            others = (
                {*map(int, processes(str(self.folder)))} - {controller} if self.everything else ()
            )
            self.until = seconds + self.seconds
            self.resumed = [
                (self.until, controller),
                *((self.until + self.seconds / 6, pid) for pid in others),
            ]
            for _, pid in self.resumed:
                os.kill(pid, signal.SIGSTOP)
        while self.resumed and seconds >= self.resumed[0][0]:
            os.kill(self.resumed.pop(0)[1], signal.SIGCONT)
        return ()

    def _controller(self) -> int:
        """The process that prints to the controller's file."""
        (printed,) = self.folder.glob("*/controller.out")
        (pid,) = [
            pid
            for pid in processes(str(self.folder))
            if Path(f"/proc/{pid}/fd/1").resolve() == printed
        ]
        return int(pid)


@pytest.mark.slow
@pytest.mark.parametrize("everything", [False, True])
def test_a_suspended_controller_or_computer_loses_no_node(
    everything: bool, left_behind: Path
) -> None:
    timeout = 4.0
    stopped = Stopped(left_behind, 2 * timeout, everything)
    job = replace(
        JOB, stopping=Stopping(clocks=60), heartbeat_timeout=timeout, hang_timeout=timeout
    )
    trained, _ = played(stopped, job)
    assert stopped.until > 0
    assert trained.failures == 0


def test_the_controller_and_nodes_are_killed_at_once() -> None:
    played({3: [kill_controller, kill(slice(2))], 7: [kill_controller, evict(slice(1), 30.0)]})


@dataclass
class Struck:
    """Sends a signal to a transient node's process after the second clock, as nothing of the job
    does.
    """

    folder: Path
    number: signal.Signals
    done: bool = False
    replaced: bool = False

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        if clock >= 2 and not self.done:
            self.done = True
            (folder,) = self.folder.iterdir()
            os.kill(node_pid(folder, machines[-1].name), self.number)
        self.replaced |= machines[-1].name == "t5"
        return ()


def test_a_transient_node_that_dies_is_replaced(left_behind: Path) -> None:
    struck = Struck(left_behind, signal.SIGKILL)
    trained, _ = played(struck, replace(JOB, stopping=Stopping(clocks=20)))
    assert trained.failures == 1
    assert struck.replaced


@pytest.mark.slow
def test_a_stopped_node_is_given_up(left_behind: Path) -> None:
    struck = Struck(left_behind, signal.SIGSTOP)
    trained, log = played(struck, replace(JOB, stopping=Stopping(clocks=20), hang_timeout=2.0))
    assert any(
        "it hangs: no progress for" in event for iteration in log for event in iteration.events
    )
    assert trained.failures >= 1


class Deadlocked(Paced):
    """One step waits for a lock that it holds itself, until a file says that this has happened
    before.
    """

    def __init__(self, lengths: Sequence[int], once: str) -> None:
        super().__init__(lengths)
        self.once = Path(once)

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        if clock == 3 and shard[lo] == 500 and not self.once.exists():
            self.once.touch()
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()
        super().step(shard, lo, hi, params, clock, rng)


@pytest.mark.slow
def test_a_deadlocked_node_ends_and_says_where_it_was(tmp_path: Path) -> None:
    source = TrainerSource(
        f"{__name__}:Deadlocked", {"lengths": LENGTHS, "once": str(tmp_path / "once")}
    )
    lines: list[str] = []
    job = replace(JOB, source=source, hang_timeout=2.0)
    LocalEngine().run(
        job, Timetable({}), lambda _: None, lambda printed: lines.append(printed.text)
    )
    assert any(
        "it hangs: no progress for" in line and Path(__file__).name in line and "in step" in line
        for line in lines
    )
