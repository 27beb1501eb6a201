"""A node's process, with a controller played by the test: heartbeats continue whatever the user's code does."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.job import TrainingJob
from agileml.params.layout import Layout, Params
from agileml.protocol.actions import CONTROLLER, Action
from agileml.protocol.messages import Heartbeat, Hello, Leave, Limit, Ready, Recover, Saved, Stable, Table, WorkDone
from agileml.roles.node import JobSettings, Node
from agileml.runtime.job_shape import JobShape
from agileml.runtime.mailbox import Envelope, Mailbox
from agileml.runtime.node_process import NodeProcess
from agileml.runtime.prepared_job import PreparedJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.stopping import Stopping
from agileml.trainer import plan_of
from tests.agileml.toys import Scripted

PARAMS: Params = {"w": np.zeros((4, 2), np.float32)}


def passes(gate: str) -> None:
    """Blocks until the gate is opened."""
    while not Path(gate).exists():
        time.sleep(0.002)


@dataclass(frozen=True)
class Slow:
    """A shard that loads when the test opens its gate."""

    gate: str

    def __len__(self) -> int:
        return 2

    def load(self) -> None:
        passes(self.gate)


class Gated(Scripted):
    """A trainer whose model and input take as long as the test wants."""

    def __init__(self, folder: str) -> None:
        def init(_: np.random.Generator) -> Params:
            passes(f"{folder}/init")
            return PARAMS

        super().__init__(
            init=init,
            shards=lambda: [Slow(f"{folder}/load")] * 2,
            step=lambda *given: given[3].update("w", None, np.ones((4, 2), np.float32)),
        )


class Played:
    """A node in a thread, and the controller's mailbox."""

    def __init__(self, rendezvous: FolderRendezvous, gates: Path) -> None:
        self.mailbox = Mailbox(rendezvous, CONTROLLER)
        self.mailbox.open()
        trainer = Gated(str(gates))
        source = TrainerSource(f"{__name__}:Gated", {"folder": str(gates)})
        settings = JobSettings(partitions=2, loss_sample=0)
        job = TrainingJob(source, 1, 0, Stopping(clocks=3), settings, heartbeat_timeout=0.1)
        shape = JobShape(plan_of(trainer, trainer.shards()), Layout.cut(PARAMS, 2), source.code())
        self.node = NodeProcess(PreparedJob(job, shape).node_role(rendezvous, "r0", reliable=True))
        self.thread = threading.Thread(target=self.node.run)
        self.thread.start()

    def until(self, enough: Callable[[list[object]], bool]) -> list[object]:
        """The node's messages from here on, until `enough` holds."""
        messages: list[object] = []
        for _ in range(4000):
            messages += [event.message for event in self.mailbox.receive(0.005) if isinstance(event, Envelope)]
            if enough(messages):
                return messages
        raise AssertionError(f"only {messages[-5:]} came")

    def send(self, message: object) -> None:
        self.mailbox.send("r0", message)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    interval = sys.getswitchinterval()
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        one = Played(FolderRendezvous(Path(folder), b"0123456789abcdef0123456789abcdef"), tmp_path)
        yield one
        for gate in ("init", "load"):
            (tmp_path / gate).touch()
        one.send(Leave("the test is over"))
        while one.thread.is_alive():
            list(one.mailbox.receive(0.005))
        one.mailbox.close()
    sys.setswitchinterval(interval)


def count_of(kind: type, events: Iterable[object]) -> int:
    return sum(isinstance(event, Envelope) and isinstance(event.message, kind) for event in events)


def count(kind: type, at_least: int = 1) -> Callable[[list[object]], bool]:
    return lambda messages: sum(isinstance(message, kind) for message in messages) >= at_least


def test_heartbeats_continue_while_a_node_handles_many_messages(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "init").touch()
    played.until(count(Ready))
    left = 20

    def slow(*_: object) -> list[Action]:
        nonlocal left
        # Longer than from one heartbeat to the next.
        time.sleep(0.03)
        left -= 1
        return []

    monkeypatch.setattr(Node, "handle", slow)
    for _ in range(left):
        played.send(Limit(0, 1))
    list(played.mailbox.receive(0.0))
    beats = 0
    while left > 2:
        beats += count_of(Heartbeat, played.mailbox.receive(0.002))
    monkeypatch.undo()
    assert beats > 5


def test_heartbeats_continue_while_the_users_code_runs(played: Played, tmp_path: Path) -> None:
    messages = played.until(count(Heartbeat, 5))
    assert any(isinstance(message, Hello) for message in messages)
    assert not any(isinstance(message, Ready) for message in messages)
    (tmp_path / "init").touch()
    played.until(count(Ready))
    played.send(Recover(1, 0, Table(1, ("r0", "r0"), ("", ""), ("r0", "r0")), ("init", "init"), 3))
    messages = played.until(count(Heartbeat, 5))
    assert not any(isinstance(message, WorkDone) for message in messages)
    (tmp_path / "load").touch()
    played.until(count(WorkDone, 3))
    # And it writes what it is asked to.
    played.send(Stable(1, 3, checkpoint=True))
    saved = [message for message in played.until(count(Saved, 2)) if isinstance(message, Saved)]
    assert [(one.partition, one.clock) for one in saved] == [(0, 3), (1, 3)]
