"""Scenarios with a condition that must hold; each takes a seed and raises if it does not.

They show bugs that leave the model as it is: work that is done again without need, or not counted,
and jobs that are given up too early.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

from agileml.apps.registry import TrainerSource
from agileml.core.clocks import CheckpointSchedule
from agileml.core.controller import Controller
from agileml.core.events import CheckpointRules, ControllerSettings, Iteration
from agileml.core.recovery import Mode
from agileml.engines.base import FleetEvent, Gone, Joined
from agileml.engines.chaos import QUIET
from agileml.engines.job_loop import MAX_FROM_OUTSIDE, JobLoop
from agileml.engines.sim.fleet import Simulation
from agileml.engines.sim.job import Machines
from agileml.job import Stopping, TrainingJob
from agileml.policies.stage import FixedStage
from agileml.protocol.actions import CONTROLLER, WorkUnit
from agileml.protocol.messages import Broken, EndOfLife, Evaluate, Hello, Limit, Unlinked
from agileml.reference import model_digest
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.node import JobSettings
from agileml.runtime.controller_process import ControllerProcess, Memory
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.output import Printed
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.results import Result, model_of
from agileml.runtime.role_specs import ControllerRole
from agileml.transport import Connected, Lost
from agileml.work import WorkPlan
from tests.agileml.schedules import PARTITIONS, small, undisturbed, undisturbed_loss
from tests.agileml.toys import Decades

SECRET = b"0123456789abcdef0123456789abcdef"
CHUNKS = 32
"""Chunks of a clock of the small job."""


def simulated(
    nodes: tuple[int, int],
    clocks: int,
    machines: Machines,
    seed: int,
    trainer: Decades | None = None,
) -> Simulation:
    """A job in stage 1 with the default settings, whose machines have been started."""
    settings = ControllerSettings(*nodes, clocks, FixedStage(1))
    job = JobSettings(partitions=PARTITIONS, deterministic=True, loss_sample=0)
    simulation = Simulation(trainer or small(Decades), settings, job, machines, seed)
    for number in range(sum(nodes)):
        simulation.join(reliable=number < nodes[0], loading=machines.loading * (1 + number / 10))
    return simulation


def a_job_starts_whatever_happens_to_its_nodes(seed: int) -> None:
    """While the others are ready, the slowest node is warned, or it is killed; its first message
    may be lost.
    """
    simulation = simulated((1, 2), 2, Machines(loading=0.2), seed)
    match seed % 3:
        case 0:
            simulation.time.at(0.23, partial(simulation.warn, "t2", 1.0))
        case 1:
            simulation.kill("t2", lambda _: True)
        case 2:
            simulation.time.at(0.23, partial(simulation.kill, "t2"))
    assert simulation.run().clock == 2


def a_warned_node_does_not_wait_for_the_end_of_its_clock(seed: int) -> None:
    """It was to give a shard to a new node at the end of a clock of several seconds, and is warned
    before.
    """
    machines = Machines(seconds_per_item=0.1 + seed / 10000, loading=0.1)
    simulation = simulated((1, 2), 3, machines, seed, Decades(lengths=(40,) * 8, chunk=1))
    simulation.time.at(2.0, partial(_join, simulation, "t3"))
    for name in ("t1", "t2"):
        simulation.time.at(3.0, partial(simulation.warn, name, 1.0))
    result = simulation.run()
    assert (result.evictions, result.failures) == (2, 0), "a node could not leave in time"


def redone_work_is_counted(seed: int) -> None:
    """What nodes have computed beyond one time each chunk is in the log, but for a chunk at each
    loss.
    """
    chance, computed, run = random.Random(seed), 0, ChunkRunner.run

    def counting(runner: ChunkRunner, work: WorkUnit) -> WorkResult:
        nonlocal computed
        result = run(runner, work)
        # A chunk that read rows it did not have is abandoned, whether nodes are lost or not.
        computed += not result.missed
        return result

    simulation = simulated((1, 3), 6, Machines(seconds_per_item=0.05, saving=0.01), seed)
    for name in ("t1", "t2", "r0")[: chance.choice([1, 2, 3])]:
        # Just after a heartbeat.
        simulation.time.at(0.25 * chance.randint(3, 10) + 0.001, partial(simulation.kill, name))
        if name == "r0":
            simulation.time.at(1.0, partial(_join, simulation, "r9"))
    with patch.object(ChunkRunner, "run", counting):
        result = simulation.run()
    wasted, counted = computed - result.clock * CHUNKS, _redone(simulation)
    assert counted <= wasted <= counted + result.failures, (
        f"{wasted} chunks were done in vain, {counted} are counted"
    )


def a_lost_reliable_node_costs_one_clock(seed: int) -> None:
    """The only reliable node is killed twice, a few clocks apart."""
    chance = random.Random(seed)
    simulation = simulated(
        (1, 2), 12, Machines(seconds_per_item=0.05, saving=0.01, loading=0.1), seed
    )
    times = (chance.uniform(2.0, 4.0), chance.uniform(5.0, 7.0))
    for lost, new, at in zip(("r0", "r9"), ("r9", "r10"), times, strict=True):
        simulation.time.at(at, partial(simulation.kill, lost))
        simulation.time.at(at + 0.1, partial(_join, simulation, new))
    result = simulation.run()
    assert result.failures == 2
    model = model_of(simulation.layout, result.versions)
    assert model_digest(model) == model_digest(undisturbed(Decades, True)(result.clock)), (
        "the model is another"
    )
    # A whole clock, and what was done of the next one.
    assert _redone(simulation) <= 2 * 2 * CHUNKS, f"{_redone(simulation)} chunks were done again"


def a_checkpoint_that_cannot_be_written_is_not_the_last(seed: int) -> None:
    """The disk was full for a while."""
    schedule = CheckpointSchedule(2, CheckpointRules())
    full = range(3, 4 + seed % 5)
    for clock in range(1, 21):
        if schedule.request(clock, clock - 1, clock) and clock not in full:
            schedule.add(clock, 0, clock)
            schedule.add(clock, 1, clock)
    assert schedule.latest == 20


def the_loss_is_that_of_the_final_model(seed: int) -> None:
    """The nodes learn late which clock is the last, and have gone on until then."""
    settings = ControllerSettings(
        1, 2, 1000, FixedStage(1), stop=lambda iteration: iteration.clock == 3, loss_sample=16
    )
    job = JobSettings(partitions=PARTITIONS, deterministic=True, loss_sample=16)
    simulation = Simulation(
        small(Decades), settings, job, Machines(seconds_per_item=0.01, loading=0.1), seed
    )
    put_on_wire = simulation.messages.send

    def late(sender: str, receiver: str, message: object) -> None:
        if isinstance(message, Limit | Evaluate):
            simulation.time.at(
                simulation.time.now + 0.3 + seed / 1000,
                partial(put_on_wire, sender, receiver, message),
            )
        else:
            put_on_wire(sender, receiver, message)

    with patch.object(simulation.messages, "send", late):
        for number in range(3):
            simulation.join(reliable=not number)
        result = simulation.run()
    assert (
        max(
            max(node.server.served[0].versions)
            for node in simulation.nodes.values()
            if node.server.served
        )
        > 4
    )
    assert result.loss == undisturbed_loss(Decades, result.clock), (
        "the loss is that of another model"
    )


def _join(simulation: Simulation, name: str) -> None:
    simulation.join(reliable=name.startswith("r"), name=name)


def _redone(simulation: Simulation) -> int:
    return sum(iteration.redone for iteration in simulation.log)


# -- processes that fail ---------------------------------------------------------------------------


@dataclass
class FailingFleet:
    """Its reliable machine fails soon after it has been started."""

    seconds: float = 0.0
    happened: list[FleetEvent] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def start_controller(self) -> None:
        """Never fails."""

    def start_node(self, name: str, *, reliable: bool) -> None:
        """Joins at once."""
        self.happened.append(Joined(name, reliable))
        self.started.append(name)

    def stop(self, name: str, notice: float | None = None) -> None:
        """Never asked for."""

    def fail(self) -> None:
        """The last machine that was started fails."""
        self.happened.append(Gone(self.started[-1], -9))

    def events(self) -> Sequence[FleetEvent]:
        """What has happened."""
        happened, self.happened = self.happened, []
        return happened

    def close(self) -> None:
        """Nothing is left."""


@dataclass
class RedoingLink:
    """A controller that finishes clocks again, and no new one."""

    last_clock: int = 30
    progress: int = 30
    result: Result | None = None

    def listen(self, longest: float) -> Iterator[Iteration]:  # noqa: ARG002
        """No new clock."""
        return iter(())

    def settle(self, seconds: float) -> None:
        """Not needed."""

    def stop(self) -> None:
        """A job that is given up ends with its last stable model."""
        raise AssertionError

    def warn(self, name: str, seconds: float) -> None:
        """Not needed."""

    def lose(self, name: str) -> None:
        """Not needed."""

    def forget(self, name: str) -> None:
        """Not needed."""

    def close(self) -> None:
        """Not needed."""


def a_job_that_redoes_clocks_is_not_given_up(seed: int) -> None:
    """Machines fail more often than may be without progress, but each time some clocks have been
    done again.
    """
    fleet, link, chance = FailingFleet(), RedoingLink(), random.Random(seed)
    loop = JobLoop(fleet, link, QUIET, lambda _: None)
    fleet.start_node("r0", reliable=True)
    loop.turn(0.0)
    for _ in range(3):
        for _ in range(chance.randint(2, MAX_FROM_OUTSIDE)):
            fleet.fail()
            loop.turn(0.0)
        link.progress += chance.randint(1, 3)
        loop.turn(0.0)


# -- processes and their links ---------------------------------------------------------------------


def a_peer_lost_as_soon_as_it_is_linked_costs_only_its_messages(seed: int) -> None:  # noqa: ARG001
    """The link was opened and lost before its opening was reported."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        rendezvous = FolderRendezvous(Path(folder), SECRET)
        with closing(Mailbox(rendezvous, "t1")) as here:
            here.open()
            with closing(Mailbox(rendezvous, "t2")) as there:
                there.open()
                here.send("t2", EndOfLife(1, "t1"))
                while "t2" not in here._endpoint.peers:
                    list(there.receive(0.002))
                    # Turns the endpoint and leaves the events for `receive`, as a flush between two
                    # messages does.
                    here._endpoint.flush(0.0, "t2")
            while "t2" in here._endpoint.peers:
                here._endpoint.flush(0.0, "t2")
            assert [type(event) for event in here.receive(0.0)] == [Connected, Lost]
            # A node whose link was lost gets nothing more until a new epoch begins.
            here.begin_epoch()
            with closing(Mailbox(rendezvous, "t2")) as again:
                again.open()
                here.send("t2", EndOfLife(2, "t1"))
                came: list[object] = []
                while not came:
                    list(here.receive(0.002))
                    came = [
                        event.message
                        for event in again.receive(0.002)
                        if isinstance(event, Envelope)
                    ]
                assert came == [EndOfLife(2, "t1")]


def a_node_cannot_speak_for_another(seed: int) -> None:  # noqa: ARG001
    """To a real controller process, over a real link."""
    source = TrainerSource("tests.agileml.toys:Decades", {})
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        rendezvous = FolderRendezvous(Path(folder), SECRET)
        job = TrainingJob(source, 1, 1, Stopping(clocks=3))
        role = ControllerRole(
            rendezvous=rendezvous,
            memory=Path(folder) / "memory",
            code="",
            job=job,
            model_bytes=8,
            control=partial(Controller.resume, WorkPlan((2,), 0, 1), (8,)),
        )
        process = ControllerProcess(role)
        controller = process._controller
        assert isinstance(controller, Controller)
        with (
            closing(process._mailbox),
            closing(process._memory),
            closing(Mailbox(rendezvous, "t1")) as node,
        ):
            process._mailbox.open()
            node.reach(CONTROLLER)
            while CONTROLLER not in node._endpoint.peers:
                process._listen(0.002)
                list(node.receive(0.002))
            forged = (
                Hello("t2", False, ""),
                Broken("t2", "forged"),
                Unlinked("t2", "t3", ""),
                Printed("t2", "forged"),
            )
            for message in (*forged, Printed("t1", "its own"), Hello("t1", False, "")):
                node.send(CONTROLLER, message)
            with patch.object(process._mailbox, "send") as send:
                while (
                    controller.members.get("t1") is None and controller.epochs.mode is not Mode.OVER
                ):
                    list(node.receive(0.002))
                    process._listen(0.002)
            assert controller.members.get("t2") is None
            assert controller.epochs.mode is Mode.GATHERING
            assert not process._broken_links._reports
            assert not [sent for (_, sent), _ in send.call_args_list if isinstance(sent, Printed)]
            # What it has said for itself comes after that.
            assert process._memory.expelled == {"t1"}


def a_restarted_controller_knows_the_latest_checkpoint(seed: int) -> None:
    """Older ones have been deleted."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        path = Path(folder) / "memory"
        with closing(Memory(path)) as memory:
            memory.remember({"checkpoint": -1})
            memory.remember_checkpoint(seed)
        with closing(Memory(path)) as again:
            assert again.record == {"checkpoint": seed}
