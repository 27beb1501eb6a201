"""A node's process, with a controller played by the test: its messages, its work and its end."""

from __future__ import annotations

import re
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.errors import AgileMLError, ControllerUnreachable
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Layout, Params
from agileml.protocol.actions import CONTROLLER, Action
from agileml.protocol.messages import (
    Broken,
    Hello,
    Leave,
    Limit,
    Ready,
    Recover,
    Saved,
    Stable,
    Table,
    WorkDone,
)
from agileml.roles.node import JobSettings, Node
from agileml.runtime.mailbox import ControllerConnection, Envelope, Mailbox
from agileml.runtime.node_process import NodeProcess, TrainerRole
from agileml.runtime.prepared_job import JobShape, PreparedJob
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.runtime.role_specs import Vitals
from agileml.trainer import plan_of
from tests.agileml.toys import Scripted

PATIENCE = 3600.0

PARAMS: Params = {"w": np.zeros((4, 2), np.float32)}


def passes(gate: str) -> None:
    """Says that it waits, and blocks until the gate is opened."""
    Path(f"{gate}.reached").touch()
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


class Looping(Vitals):
    """Counts the signs of life of the message loop."""

    turns = 0

    def note_turn(self, now: float) -> None:
        self.turns += 1
        super().note_turn(now)


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
        self.vitals = Looping()
        role = PreparedJob(job, shape).node_role(rendezvous, "r0", reliable=True)
        assert isinstance(role, TrainerRole)
        self.node = NodeProcess(role, self.vitals)
        self.error: AgileMLError | KeyError | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.node.run()
        except (AgileMLError, KeyError) as error:
            self.error = error

    def until(self, enough: Callable[[list[object]], bool]) -> list[object]:
        """The node's messages from here on, until `enough` holds."""
        messages: list[object] = []
        for _ in range(50_000):
            messages += [
                event.message
                for event in self.mailbox.receive(0.005)
                if isinstance(event, Envelope)
            ]
            if enough(messages):
                return messages
        raise AssertionError(f"only {messages[-5:]} came")

    def send(self, message: object) -> None:
        self.mailbox.send("r0", message)


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    interval = sys.getswitchinterval()
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        rendezvous = FolderRendezvous(
            Path(folder), b"0123456789abcdef0123456789abcdef", patience=PATIENCE
        )
        one = Played(rendezvous, tmp_path)
        yield one
        for gate in ("init", "load"):
            (tmp_path / gate).touch()
        one.send(Leave("the test is over"))
        while one.thread.is_alive():
            list(one.mailbox.receive(0.005))
        one.mailbox.close()
    sys.setswitchinterval(interval)


def count(kind: type, at_least: int = 1) -> Callable[[list[object]], bool]:
    return lambda messages: sum(isinstance(message, kind) for message in messages) >= at_least


def test_a_node_that_handles_many_messages_shows_that_it_goes_on(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "init").touch()
    played.until(count(Ready))
    begun, handled, gate = played.vitals.turns, 0, threading.Event()

    def handle(*_: object) -> list[Action]:
        nonlocal handled
        # So that all messages have arrived when the second is handled.
        gate.wait()
        handled += 1
        return []

    monkeypatch.setattr(Node, "handle", handle)
    for _ in range(20):
        played.send(Limit(0, 1))
    list(played.mailbox.receive(0.0))
    gate.set()
    while handled < 20:
        list(played.mailbox.receive(0.002))
    monkeypatch.undo()
    assert played.vitals.turns >= begun + 19


def test_a_node_works_and_writes_what_it_is_asked_to(played: Played, tmp_path: Path) -> None:
    messages = played.until(count(Hello))
    assert not any(isinstance(message, Ready) for message in messages)
    (tmp_path / "init").touch()
    played.until(count(Ready))
    played.send(Recover(1, 0, Table(1, ("r0", "r0"), ("", ""), ("r0", "r0")), ("init", "init"), 3))
    (tmp_path / "load").touch()
    played.until(count(WorkDone, 3))
    played.send(Stable(1, 3, checkpoint=True))
    saved = [message for message in played.until(count(Saved, 2)) if isinstance(message, Saved)]
    assert sorted((one.partition, one.clock) for one in saved) == [(0, 3), (1, 3)]


def test_a_node_that_was_declared_lost_ends_with_an_error(played: Played, tmp_path: Path) -> None:
    played.until(count(Hello))
    while not (tmp_path / "init.reached").exists():
        list(played.mailbox.receive(0.005))
    played.send(Leave("it was silent", lost=True))
    while played.thread.is_alive():
        list(played.mailbox.receive(0.005))
    # It was waiting for the test to open a gate.
    assert re.fullmatch(
        r"it was silent; it was in .*test_node_process.py, line \d+, in passes", str(played.error)
    )
    assert played.vitals.leaving


def test_a_node_that_was_given_up_may_learn_it_from_its_heartbeat_process(
    played: Played, tmp_path: Path
) -> None:
    """After a cut, the link of one may carry messages again many seconds before that of the
    other."""
    (tmp_path / "init").touch()
    played.until(count(Ready))
    assert not played.vitals.leaving
    played.vitals.give_up("it was silent")
    while played.thread.is_alive():
        list(played.mailbox.receive(0.005))
    assert str(played.error) == "it was silent"


def test_a_node_ends_when_it_was_without_a_controller_for_too_long(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "init").touch()
    played.until(count(Ready))
    monkeypatch.setattr(ControllerConnection, "away", lambda *_: PATIENCE + 1)
    played.send(Limit(0, 1))
    while played.thread.is_alive():
        list(played.mailbox.receive(0.005))
    assert isinstance(played.error, ControllerUnreachable)
    assert str(played.error).endswith("for 3600 s: the link to it broke")


def test_a_node_that_ends_by_its_own_error_ends_the_job_and_says_why(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "init").touch()
    played.until(count(Ready))

    def fails(*_: object) -> list[Action]:
        raise KeyError("no such partition")

    monkeypatch.setattr(Node, "handle", fails)
    played.send(Limit(0, 1))
    broken = [one for one in played.until(count(Broken)) if isinstance(one, Broken)]
    assert broken == [Broken("r0", "r0 failed: KeyError: 'no such partition'")]
    while played.thread.is_alive():
        list(played.mailbox.receive(0.005))
    assert isinstance(played.error, KeyError)
