"""The process of the controller: the state machine's clock, mail and memory. It can be killed and started again."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from agileml.core.controller import Controller
from agileml.core.events import (
    ControllerSettings,
    Failed,
    Finished,
    Instruction,
    Iteration,
    NodeLost,
    Remember,
    Tick,
)
from agileml.errors import AgileMLError
from agileml.policies.policy import ClockSums
from agileml.protocol.actions import CONTROLLER, Send
from agileml.protocol.messages import Warned
from agileml.runtime.checkpoints import Checkpoints
from agileml.runtime.mailbox import PROVIDER, Again, Ended, Envelope, Heard, Mailbox, ModelPart
from agileml.runtime.results import observation_of
from agileml.runtime.role_specs import ControllerRole, controller_settings
from agileml.stopping import Observation
from agileml.transport import Lost

TICKS = 4
"""In the time after which a silent node is given up."""

MOST_WRITTEN = 4 << 20
"""Bytes after which the controller's memory is written anew, without what is outdated."""


class Memory:
    """What a controller that is started again has to know, as lines of a file."""

    def __init__(self, path: Path) -> None:
        self.record: dict[str, Any] | None = None
        self.history: list[Observation] = []
        self.iterations: list[Iteration] = []
        """Those of which the provider has not said that it heard them, and some more."""
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                # A line without an end is one that its writer died over: nothing was done upon it.
                if line.endswith(b"\n"):
                    self._recall(json.loads(line))
        self._path = path
        self._written = 0
        self._file = self._rewritten()

    def _recall(self, entry: dict[str, Any]) -> None:
        if "record" in entry:
            self.record = entry["record"]
        elif "observed" in entry:
            self.history.append(Observation(**entry["observed"]))
        elif "heard" in entry:
            self._drop(entry["heard"])
        else:
            told = entry["iteration"]
            made = {
                "sums": ClockSums(**told["sums"]),
                "events": tuple(told["events"]),
                "accepted": tuple(tuple(cover) for cover in told.get("accepted", ())),
            }
            self.iterations.append(Iteration(**(told | made)))

    def _rewritten(self) -> BinaryIO:
        """A file of what is still of use, open for more: no unfinished line, and of all records the latest."""
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
        """Writes it down, whatever happens next."""
        self.record = record
        self._write({"record": record})
        os.fsync(self._file.fileno())

    def log(self, iteration: Iteration) -> None:
        """Keeps what is to be told of a clock: whoever takes over cannot know it, nor whether it was told."""
        self.iterations.append(iteration)
        self._write({"iteration": asdict(iteration)})

    def heard(self, clock: int) -> None:
        """The clocks up to this one need not be told again."""
        self._drop(clock)
        self._write({"heard": clock})

    def _drop(self, clock: int) -> None:
        self.iterations = [iteration for iteration in self.iterations if iteration.clock > clock]

    def observe(self, observation: Observation) -> None:
        """Notes a finished clock, for the stopping criterion."""
        self.history.append(observation)
        self._write({"observed": asdict(observation)})

    def close(self) -> None:
        """Gives the file back."""
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._written += self._file.write(_line(entry))
        self._file.flush()
        if self._written > MOST_WRITTEN:
            self._file.close()
            self._file = self._rewritten()


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


class ControllerProcess:
    """The controller and its shell."""

    def __init__(self, role: ControllerRole) -> None:
        self._role = role
        self._mailbox = Mailbox(role.rendezvous, CONTROLLER)
        self._checkpoints = Checkpoints(role.rendezvous.blobs)
        self._memory = Memory(role.memory)
        self._tick_every = role.job.heartbeat_timeout / TICKS
        self._next_tick = time.monotonic()
        self._checkpoint = -1
        settings = controller_settings(role.job, role.code, self._stops)
        self._controller = self._made(settings)

    def _made(self, settings: ControllerSettings) -> Controller:
        role, record = self._role, self._memory.record
        if record is None:
            return Controller(role.plan, role.partition_bytes, settings)
        return Controller.resume(role.plan, role.partition_bytes, settings, record, time.monotonic())

    def _stops(self, iteration: Iteration) -> bool:
        history = self._memory.history
        self._memory.observe(observation_of(iteration, history))
        return self._role.job.stopping.reason(history) is not None

    def run(self) -> None:
        """For as long as the provider lets it."""
        self._mailbox.open()
        self._tell_again()
        while True:
            self._listen(max(0.0, self._next_tick - time.monotonic()))
            if time.monotonic() >= self._next_tick:
                # When this process was held up itself, the heartbeats of that time are still to be read.
                self._listen(0.0)
                self._next_tick = time.monotonic() + self._tick_every
                self._control(Tick())

    def _listen(self, longest: float) -> None:
        for event in self._mailbox.receive(longest):
            match event:
                case Envelope():
                    self._hear(event)
                case Lost() if event.peer != PROVIDER:
                    self._control(NodeLost(event.peer, event.reason))
                case Lost():
                    # What was on its way went with the link.
                    self._tell_again()

    def _tell_again(self) -> None:
        """Tells, once there is a link, of clocks of which the provider may not have heard."""
        for iteration in self._memory.iterations:
            self._mailbox.send(PROVIDER, Again(iteration))

    def _hear(self, envelope: Envelope) -> None:
        """Nobody speaks for another, but the provider, who says whom it will take and who is gone."""
        message, by_provider = envelope.message, envelope.sender == PROVIDER
        if by_provider and isinstance(message, Heard):
            self._memory.heard(message.clock)
        elif by_provider if isinstance(message, Warned | NodeLost) else getattr(message, "node", "") == envelope.sender:
            self._control(message)

    def _control(self, event: object) -> None:
        try:
            instructions = self._controller.handle(event, time.monotonic())
        except AgileMLError as error:
            instructions = [Failed(str(error))]
        for instruction in instructions:
            # Before the record that says that it was told.
            if isinstance(instruction, Iteration):
                self._memory.log(instruction)
        for instruction in instructions:
            self._carry_out(instruction)
        self._forget_checkpoints()

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Remember():
                self._memory.remember(instruction.record)
            case Send():
                self._mailbox.send(instruction.to, instruction.message)
            case Iteration() | Failed():
                self._mailbox.send(PROVIDER, instruction)
            case Finished():
                for partition, version in enumerate(instruction.versions):
                    self._mailbox.send(PROVIDER, ModelPart(partition, version))
                ended = Ended(instruction.clock, self._controller.evictions, self._controller.failures)
                self._mailbox.send(PROVIDER, ended)

    def _forget_checkpoints(self) -> None:
        """The one before the latest stays: whoever takes over may not have heard of the latest."""
        before, latest = self._checkpoint, self._controller.checkpoint
        if latest > before:
            self._checkpoint = latest
            self._checkpoints.delete_before(before)
