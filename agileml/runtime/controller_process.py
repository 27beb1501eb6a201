"""The controller's process: gives the state machine time, messages and a memory. It can be killed and restarted."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from agileml.core.controller import Controller
from agileml.core.events import (
    ClockRepeated,
    ControllerSettings,
    Failed,
    Finished,
    Instruction,
    Iteration,
    NodeLost,
    Remember,
    RememberCheckpoint,
    Tick,
)
from agileml.core.senders import heartbeat_name, is_heartbeat_process, node_of
from agileml.errors import AgileMLError
from agileml.policies.policy import ClockSums
from agileml.protocol.actions import CONTROLLER, JOB_LOOP, Send
from agileml.protocol.messages import Leave
from agileml.runtime.checkpoints import CheckpointCleaner, ModelCheckpoints
from agileml.runtime.mailbox import Acknowledged, Envelope, JobEnded, Mailbox, ModelPart, RepeatedIteration
from agileml.runtime.output import Printed
from agileml.runtime.results import observation_of
from agileml.runtime.role_specs import ControllerRole, controller_settings
from agileml.stopping import Observation
from agileml.transport import Lost

TICKS = 4
"""Ticks within the heartbeat timeout."""

REWRITE_BYTES = 4 << 20
"""Bytes after which the memory file is rewritten without obsolete lines."""


class Memory:
    """What a restarted controller has to know, as lines of a file."""

    def __init__(self, path: Path) -> None:
        self.record: dict[str, Any] | None = None
        self.history: list[Observation] = []
        self.iterations: list[Iteration] = []
        """Finished clocks that the job loop has not acknowledged."""
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                # A line without a newline is a torn write; nothing acted on it.
                if line.endswith(b"\n"):
                    self._recall(json.loads(line))
        self._path = path
        self._written = 0
        self._rewriting = threading.Lock()
        self._file = self._rewritten()

    def _recall(self, entry: dict[str, Any]) -> None:
        if "record" in entry:
            self.record = entry["record"]
        elif "checkpoint" in entry:
            assert self.record is not None
            self.record["checkpoint"] = entry["checkpoint"]
        elif "observed" in entry:
            self.history.append(Observation(**entry["observed"]))
        elif "heard" in entry:
            self._drop(entry["heard"])
        else:
            fields = entry["iteration"]
            converted = {
                "sums": ClockSums(**fields["sums"]),
                "events": tuple(fields["events"]),
                "accepted": tuple(tuple(cover) for cover in fields.get("accepted", ())),
            }
            self.iterations.append(Iteration(**(fields | converted)))

    def _rewritten(self) -> BinaryIO:
        """Rewrites the file without torn and obsolete lines, and opens it for appending."""
        part = self._path.with_suffix(".part")
        with part.open("wb") as file:
            file.writelines(_line({"observed": asdict(observation)}) for observation in self.history)
            file.writelines(_line({"iteration": asdict(iteration)}) for iteration in self.iterations)
            if self.record is not None:
                file.write(_line({"record": self.record}))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        self._written = 0
        return self._path.open("ab")

    def remember(self, record: dict[str, Any]) -> None:
        """Makes a record durable before anything acts on it."""
        self.record = record
        self._write({"record": record})
        os.fsync(self._file.fileno())

    def remember_checkpoint(self, clock: int) -> None:
        """Adds a complete checkpoint to the record; `sync` makes it durable."""
        assert self.record is not None
        self.record["checkpoint"] = clock
        self._write({"checkpoint": clock})

    def sync(self) -> None:
        """Returns once everything that was written is on disk. May be called from another thread."""
        with self._rewriting:
            descriptor = os.dup(self._file.fileno())
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def log(self, iteration: Iteration) -> None:
        """Keeps a finished clock until it is acknowledged: a restarted controller could not reconstruct it."""
        self.iterations.append(iteration)
        self._write({"iteration": asdict(iteration)})

    def acknowledge(self, clock: int) -> None:
        """The clocks up to this one need not be repeated."""
        self._drop(clock)
        self._write({"heard": clock})

    def _drop(self, clock: int) -> None:
        self.iterations = [iteration for iteration in self.iterations if iteration.clock > clock]

    def observe(self, observation: Observation) -> None:
        """Keeps a finished clock for the stopping criterion."""
        self.history.append(observation)
        self._write({"observed": asdict(observation)})

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._written += self._file.write(_line(entry))
        self._file.flush()
        if self._written > REWRITE_BYTES:
            with self._rewriting:
                self._file.close()
                self._file = self._rewritten()


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


class ControllerProcess:
    """Runs the controller: passes it messages and ticks, and carries out its instructions."""

    def __init__(self, role: ControllerRole) -> None:
        self._role = role
        self._mailbox = Mailbox(role.rendezvous, CONTROLLER, role.job.transport)
        self._checkpoints = ModelCheckpoints(role.rendezvous.blobs)
        self._memory = Memory(role.memory)
        self._tick_every = role.job.heartbeat_timeout / TICKS
        self._next_tick = time.monotonic()
        self._cleaning = CheckpointCleaner(self._checkpoints, self._memory.sync)
        settings = controller_settings(role.job, role.code, self._stops)
        self._controller = self._create_controller(settings)

    def _create_controller(self, settings: ControllerSettings) -> Controller:
        role, record = self._role, self._memory.record
        if record is None:
            return Controller(role.plan, role.partition_bytes, settings)
        return Controller.resume(role.plan, role.partition_bytes, settings, record, time.monotonic())

    def _stops(self, iteration: Iteration) -> bool:
        history = self._memory.history
        self._memory.observe(observation_of(iteration, history))
        return self._role.job.stopping.reason(history) is not None

    def run(self) -> None:
        """Runs until the process is killed."""
        self._mailbox.open()
        self._repeat_iterations()
        while True:
            self._listen(max(0.0, self._next_tick - time.monotonic()))
            if time.monotonic() >= self._next_tick:
                # If this process itself was suspended, the heartbeats of that time are still unread.
                self._listen(0.0)
                self._next_tick = time.monotonic() + self._tick_every
                self._control(Tick())

    def _listen(self, longest: float) -> None:
        for event in self._mailbox.receive(longest):
            match event:
                case Envelope(message=Printed() as printed):
                    if node_of(event.sender) == printed.node:
                        self._mailbox.send(JOB_LOOP, printed)
                case Envelope():
                    self._receive(event)
                case Lost() if is_heartbeat_process(event.peer):
                    # If it does not connect again, the node is silent.
                    pass
                case Lost() if event.peer != JOB_LOOP:
                    self._control(NodeLost(event.peer, event.reason))
                case Lost():
                    # What was in flight is lost with the link.
                    self._repeat_iterations()

    def _repeat_iterations(self) -> None:
        """Sends, once there is a link, the clocks that the job loop has not acknowledged."""
        for iteration in self._memory.iterations:
            self._mailbox.send(JOB_LOOP, RepeatedIteration(iteration))

    def _receive(self, envelope: Envelope) -> None:
        if envelope.sender == JOB_LOOP and isinstance(envelope.message, Acknowledged):
            self._memory.acknowledge(envelope.message.clock)
        else:
            self._control(envelope.message, envelope.sender)

    def _control(self, event: object, sender: str | None = None) -> None:
        try:
            instructions = self._controller.handle(event, time.monotonic(), sender)
        except AgileMLError as error:
            instructions = [Failed(str(error))]
        for instruction in instructions:
            # Before the record that says that it was reported.
            if isinstance(instruction, Iteration):
                self._memory.log(instruction)
        for instruction in instructions:
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Remember():
                self._memory.remember(instruction.record)
            case RememberCheckpoint():
                self._memory.remember_checkpoint(instruction.clock)
                self._cleaning.keep_from(instruction.clock)
            case Send():
                self._mailbox.send(instruction.to, instruction.message)
                if isinstance(instruction.message, Leave):
                    # A node that hangs does not read its messages.
                    self._mailbox.send(heartbeat_name(instruction.to), instruction.message)
            case Iteration() | ClockRepeated() | Failed():
                self._mailbox.send(JOB_LOOP, instruction)
            case Finished():
                for partition, version in enumerate(instruction.versions):
                    self._mailbox.send(JOB_LOOP, ModelPart(partition, version))
                ended = JobEnded(instruction.clock, self._controller.evictions, self._controller.failures)
                self._mailbox.send(JOB_LOOP, ended)
