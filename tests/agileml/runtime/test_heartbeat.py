"""The heartbeat process of a real node, with a controller played by the test."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.core.events import NodeLost
from agileml.core.members import heartbeat_name
from agileml.engines.base import Gone
from agileml.engines.local.fleet import Processes
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Params
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Heartbeat, Hello, Leave, Ready, Recover, Table, WorkDone
from agileml.roles.node import JobSettings
from agileml.runtime.heartbeat import LEAVE_SECONDS, STACK_SECONDS, beating
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.output import Printed, captured
from agileml.runtime.prepared_job import PreparedJob, shape_of
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.trainer import ParamReader, ParamView, Sample
from agileml.transport.handshake import node_of
from tests.agileml.engines.jobs import node_pid

pytestmark = pytest.mark.usefixtures("left_behind")

START = Recover(1, 0, Table(1, ("r0", "r0"), ("", ""), ("r0",)), ("init", "init"), 3)


class Holding:
    """Its second clock waits in C, and holds the interpreter lock, until something is written to a
    pipe.
    """

    def __init__(self, pipe: str) -> None:
        self.pipe = pipe

    def init(self, rng: np.random.Generator) -> Params:
        del rng
        return {"w": np.zeros((4, 2), np.float32)}

    def shards(self) -> Sequence[range]:
        return [range(1)]

    def step(
        self,
        shard: range,
        lo: int,
        hi: int,
        params: ParamView,
        clock: int,
        rng: np.random.Generator,
    ) -> None:
        del shard, lo, hi, rng
        if clock == 2:
            descriptor = os.open(self.pipe, os.O_RDONLY)
            ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)
        params.update("w", None, np.ones((4, 2), np.float32))

    def loss(self, params: ParamReader, sample: Sample) -> float:
        del params, sample
        return 0.0


class Controlled:
    """A node `r0` as a process of its own, and the controller's mailbox."""

    def __init__(self, processes: Processes, pipe: Path) -> None:
        os.mkfifo(pipe)
        # A pipe that has a writer does not end.
        self.pipe = os.open(pipe, os.O_RDWR)
        rendezvous = FolderRendezvous(processes.folder, b"0123456789abcdef0123456789abcdef")
        self.mailbox = Mailbox(rendezvous, CONTROLLER)
        self.mailbox.open()
        source = TrainerSource(f"{__name__}:Holding", {"pipe": str(pipe)})
        settings = JobSettings(partitions=2, loss_sample=0)
        job = TrainingJob(source, 1, 0, Stopping(clocks=3), settings, heartbeat_timeout=0.1)
        self.processes = processes
        processes.start(
            "r0", PreparedJob(job, shape_of(job)).node_role(rendezvous, "r0", reliable=True)
        )

    def until(self, enough: Callable[[str, object], bool]) -> None:
        """Waits for a message of the node or its heartbeat process."""
        for _ in range(12000):
            events = list(self.mailbox.receive(0.005))
            if any(
                isinstance(event, Envelope) and enough(event.sender, event.message)
                for event in events
            ):
                return
        raise AssertionError("it did not come")

    def until_stalled(self, seconds: float) -> None:
        self.until(
            lambda sender, message: (
                sender != "r0" and isinstance(message, Heartbeat) and message.stalled > seconds
            )
        )

    def begin(self) -> None:
        self.until(lambda _, message: isinstance(message, Ready))
        self.mailbox.send("r0", START)

    def ended(self) -> Gone:
        while not (ended := self.processes.ended()):
            list(self.mailbox.receive(0.005))
        return ended[0]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Controlled]:
    with closing(Processes()) as processes:
        node = Controlled(processes, tmp_path / "pipe")
        yield node
        os.close(node.pipe)
        node.mailbox.close()


def test_heartbeats_continue_while_user_code_holds_the_interpreter_lock(node: Controlled) -> None:
    node.begin()
    node.until_stalled(0.5)
    os.write(node.pipe, b"x")
    node.until(lambda _, message: isinstance(message, WorkDone) and message.clock == 3)
    node.mailbox.send("r0", Leave("the test is over"))
    assert node.ended() == Gone("r0", 0)


def test_a_node_that_holds_the_lock_and_was_given_up_is_killed_and_shows_its_stacks(
    node: Controlled,
) -> None:
    node.begin()
    node.until_stalled(0.5)
    for name in ("r0", heartbeat_name("r0")):
        node.mailbox.send(name, Leave("it hangs", lost=True))
    gone = node.ended()
    assert gone.status == -signal.SIGABRT
    assert re.search(r"test_heartbeat.py, line \d+, in step$", gone.output)


def test_a_stopped_node_that_was_given_up_is_killed(node: Controlled) -> None:
    node.until(lambda sender, _: sender == heartbeat_name("r0"))
    os.kill(node_pid(node.processes.folder, "r0"), signal.SIGSTOP)
    node.until_stalled(0.5)
    node.mailbox.send(heartbeat_name("r0"), Leave("it hangs", lost=True))
    assert node.ended().status == -signal.SIGKILL


def test_what_a_node_printed_before_it_had_a_link_is_sent_at_its_end(tmp_path: Path) -> None:
    rendezvous = FolderRendezvous(tmp_path, b"0123456789abcdef0123456789abcdef")
    job = TrainingJob(TrainerSource("mf"), 1, 0, Stopping(clocks=3))
    role = PreparedJob(job, shape_of(job)).node_role(rendezvous, "r0", reliable=True)
    ending, ends = os.pipe()
    with closing(Mailbox(rendezvous, CONTROLLER)) as controller:
        controller.open()
        if os.fork() == 0:
            try:
                with captured(tmp_path) as (output, echo), beating(role, output, echo):
                    os.write(2, b"last words\n")
                    os.write(ends, b"x")
            finally:
                os._exit(0)
        # There is no link before the controller listens.
        os.read(ending, 1)
        os.close(ending)
        os.close(ends)
        time.sleep(0.3)
        said: list[str] = []
        while not said:
            messages = [
                event.message for event in controller.receive(0.05) if isinstance(event, Envelope)
            ]
            said += [message.text.strip() for message in messages if isinstance(message, Printed)]
    os.wait()
    assert said == ["last words"]


def test_a_node_that_leaves_when_it_was_given_up_is_not_killed(tmp_path: Path) -> None:
    """Its own link may be slower than that of its heartbeat process, which tells it."""
    rendezvous = FolderRendezvous(tmp_path, b"0123456789abcdef0123456789abcdef")
    job = TrainingJob(TrainerSource("mf"), 1, 0, Stopping(clocks=3))
    role = PreparedJob(job, shape_of(job)).node_role(rendezvous, "r0", reliable=True)
    with closing(Mailbox(rendezvous, CONTROLLER)) as controller:
        controller.open()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with captured(tmp_path) as (output, echo), beating(role, output, echo) as vitals:
                    while not vitals.given_up:
                        time.sleep(0.005)
                    vitals.leave()
                    time.sleep(LEAVE_SECONDS + 2 * STACK_SECONDS)
                    status = 7 if vitals.given_up == "it was silent" else 1
            finally:
                os._exit(status)
        ended, told = 0, False
        while not ended:
            beats = [one for one in controller.receive(0.01) if isinstance(one, Envelope)]
            if beats and not told:
                told = True
                controller.send(heartbeat_name("r0"), Leave("it was silent", lost=True))
            ended, status = os.waitpid(pid, os.WNOHANG)
    assert os.waitstatus_to_exitcode(status) == 7


def test_the_end_of_a_node_is_reported_by_its_heartbeat_process(node: Controlled) -> None:
    node.until(lambda sender, _: sender == heartbeat_name("r0"))
    os.kill(node_pid(node.processes.folder, "r0"), signal.SIGKILL)
    node.until(
        lambda sender, message: (
            sender != "r0"
            and isinstance(message, NodeLost)
            and message.why.startswith("its process")
        )
    )


def test_heartbeats_continue_with_a_restarted_controller(node: Controlled) -> None:
    node.until(lambda sender, message: sender == "r0" and isinstance(message, Hello))
    node.mailbox.close()
    node.mailbox = Mailbox(
        FolderRendezvous(node.processes.folder, b"0123456789abcdef0123456789abcdef"), CONTROLLER
    )
    node.mailbox.open()
    heard: set[str] = set()

    def both(sender: str, _: object) -> bool:
        heard.add(sender)
        return len(heard) == 2

    node.until(both)
    assert heard == {"r0", heartbeat_name("r0")}


def test_names() -> None:
    assert node_of(heartbeat_name("run-1.t3")) == node_of("run-1.t3") == "run-1.t3"
