"""The controller's process: gives the state machine time, messages and a memory, and can be killed
and restarted.
"""

import json
import os
import threading
import time
from dataclasses import asdict, replace
from itertools import starmap
from pathlib import Path
from typing import Any, BinaryIO

from agileml.core.events import (
    ClockRepeated,
    ControllerInstruction,
    Failed,
    Finished,
    Implausible,
    Iteration,
    NodeLost,
    Remember,
    RememberCheckpoint,
    RememberDecision,
    Tick,
)
from agileml.core.members import NodePhase, heartbeat_name
from agileml.errors import AgileMLError
from agileml.job import Observation
from agileml.policies.stage import ClockSums
from agileml.protocol.actions import CONTROLLER, JOB_LOOP, Send
from agileml.protocol.messages import Heartbeat, Hello, Leave, Saved, Unlinked
from agileml.runtime.blob_store import PIECE_BYTES
from agileml.runtime.checkpoints import CheckpointCleaner, ModelCheckpoints
from agileml.runtime.ground import replaced
from agileml.runtime.mailbox import BrokenLinks, Envelope, Mailbox
from agileml.runtime.node_loop import described
from agileml.runtime.output import Printed
from agileml.runtime.remote_blobs import BLOB_MESSAGES, BlobRequest, BlobServer, blobs_of
from agileml.runtime.results import (
    Acknowledged,
    Attendance,
    ModelPart,
    RepeatedIteration,
    Result,
    Settle,
    observation_of,
)
from agileml.runtime.rights import MISCONDUCT, Grant, may_use
from agileml.runtime.role_specs import ControllerRole, controller_settings
from agileml.transport import Connected, Identity, Lost
from agileml.transport.handshake import BLOB_CLIENT, Reason, node_of

TICKS = 4
"""Ticks within the heartbeat timeout."""

MAX_CHECKPOINT_BYTES, CHECKPOINT_GROWTH = 1 << 20, 16
"""The most bytes of a checkpoint: these, and this many for each of the model's, as optimizers keep
more than that."""

MAX_DESCRIPTION_BYTES = 4 << 20
"""The most bytes of a message of a node, without the memory of its arrays."""

MAX_UNREAD_BYTES = 64 << 20
"""Bytes for a node that it has not read yet, after which it counts as lost."""

REWRITE_BYTES = 4 << 20
"""Bytes after which the memory file is rewritten without obsolete lines."""


class Memory:
    """Everything that a restarted controller has to know, as lines of a file.

    That includes which process has the name of a node, with its heartbeat process: see `Names`.
    """

    def __init__(self, path: Path) -> None:
        self.record: dict[str, Any] | None = None
        self.decided: list[Any] = []
        """The decisions about all clocks, in a job with backup workers."""
        self.history: list[Observation] = []
        self.iterations: list[Iteration] = []
        """Finished clocks that the job loop has not acknowledged."""
        self.instances: dict[str, str] = {}
        """Which process owns the name of a node."""
        self.expelled: set[str] = set()
        """Nodes that broke the rules."""

        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                # A line without a newline is a torn write; nothing acted on it.
                if line.endswith(b"\n"):
                    self._recall(json.loads(line))

        self._path = path
        self._written = 0
        self._rewriting = threading.Lock()
        self._file = self._rewrite()

    def _recall(self, entry: dict[str, Any]) -> None:
        if "record" in entry:
            self.record = entry["record"]
        elif "checkpoint" in entry:
            assert self.record is not None
            self.record["checkpoint"] = entry["checkpoint"]
        elif "decided" in entry:
            self.decided.append(entry["decided"])
        elif "observed" in entry:
            self.history.append(Observation(**entry["observed"]))
        elif "heard" in entry:
            heard = entry["heard"]
            self.iterations = [known for known in self.iterations if known.clock > heard]
        elif "joined" in entry:
            self.instances.update(entry["joined"])
        elif "expelled" in entry:
            self.expelled.update(entry["expelled"])
        else:
            fields = entry["iteration"]
            converted = {
                "sums": ClockSums(**fields["sums"]),
                "events": tuple(fields["events"]),
                "accepted": tuple(tuple(cover) for cover in fields.get("accepted", ())),
            }
            self.iterations.append(Iteration(**(fields | converted)))

    def _rewrite(self) -> BinaryIO:
        """Rewrites the file without torn and obsolete lines, and opens it for appending."""
        with replaced(self._path, lasting=True) as new, new.open("wb") as file:
            file.writelines(
                _line({"observed": asdict(observation)}) for observation in self.history
            )
            file.writelines(
                _line({"iteration": asdict(iteration)}) for iteration in self.iterations
            )
            file.writelines(_line({"decided": line}) for line in self.decided)
            file.write(_line({"joined": self.instances}))
            file.write(_line({"expelled": sorted(self.expelled)}))
            if self.record is not None:
                file.write(_line({"record": self.record}))

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

    def remember_decision(self, line: list[Any]) -> None:
        """Adds a decision about a clock."""
        self.decided.append(line)
        self._write({"decided": line})

    def sync(self) -> None:
        """Returns once everything that was written is on disk. May be called from another
        thread."""
        with self._rewriting:
            descriptor = os.dup(self._file.fileno())
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def log(self, iteration: Iteration) -> None:
        """Keeps a finished clock until it is acknowledged: a restarted controller could not
        reconstruct it.
        """
        self.iterations.append(iteration)
        self._write({"iteration": asdict(iteration)})

    def acknowledge(self, clock: int) -> None:
        """The clocks up to this one need not be repeated."""
        self.iterations = [known for known in self.iterations if known.clock > clock]
        self._write({"heard": clock})

    def observe(self, observation: Observation) -> None:
        """Keeps a finished clock for the stopping criterion."""
        self.history.append(observation)
        self._write({"observed": asdict(observation)})

    def refusal(self, peer: Identity) -> Reason | None:
        """Two processes under one name would each get half of its messages. A link for blobs is of
        any process.
        """
        node = node_of(peer.name)
        if node in self.expelled:
            return Reason.SHUT_OUT

        owner = (
            peer.instance
            if peer.name.startswith(BLOB_CLIENT)
            else self.instances.get(node, peer.instance)
        )

        if owner != peer.instance:
            return Reason.TAKEN
        return None

    def expel(self, node: str) -> None:
        """Notes a node that may not come back."""
        if node not in self.expelled:
            self.expelled.add(node)
            self._write({"expelled": [node]})

    def give(self, peer: Identity) -> None:
        """Notes the process of a node as the owner of its name."""
        if _is_node(peer.name) and peer.name not in self.instances:
            self.instances[peer.name] = peer.instance
            self._write({"joined": {peer.name: peer.instance}})

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, entry: dict[str, Any]) -> None:
        self._written += self._file.write(_line(entry))
        self._file.flush()
        if self._written > REWRITE_BYTES:
            with self._rewriting:
                self._file.close()
                self._file = self._rewrite()


def _line(entry: dict[str, Any]) -> bytes:
    return json.dumps(entry).encode() + b"\n"


class ControllerProcess:
    """Runs the controller: passes it messages and ticks, and carries out its instructions."""

    def __init__(self, role: ControllerRole) -> None:
        self._role = role
        self._memory = Memory(role.memory)
        most = MAX_CHECKPOINT_BYTES + CHECKPOINT_GROWTH * role.model_bytes
        transport = role.job.transport
        self._mailbox = Mailbox(
            role.rendezvous,
            CONTROLLER,
            replace(
                transport,
                limits=replace(
                    transport.limits,
                    body_bytes=min(transport.limits.body_bytes, most),
                    message_bytes=most,
                    description_bytes=MAX_DESCRIPTION_BYTES,
                ),
                helper_body_bytes=PIECE_BYTES,
                pooled_bytes=min(transport.pooled_bytes, most),
                max_queued_bytes=MAX_UNREAD_BYTES,
            ),
            names=self._memory,
            messages=(*role.messages, *BLOB_MESSAGES),
        )

        blobs = blobs_of(role.rendezvous)
        self._checkpoints = ModelCheckpoints(blobs)
        self._blobs = BlobServer(blobs, self._mailbox.wake, most)
        self._granted: dict[str, frozenset[Grant]] = {}
        """The checkpoints that each node was told to write."""
        self._told_gone: set[str] = set()
        """The lost nodes of which the others know."""
        self._failures = 0
        """How many there were at the last look."""
        self._nodes: set[str] = set()
        """Nodes that are linked to this process."""
        self._over = ""
        """Why the job is over."""
        self._ending: list[object] = []
        """The messages that tell the job loop how the job has ended."""
        self._broken_links = BrokenLinks(role.job.heartbeat_timeout)
        self._tick_every = role.job.heartbeat_timeout / TICKS
        self._next_tick = time.monotonic()
        self._cleaning = CheckpointCleaner(self._checkpoints, self._memory.sync)
        settings = controller_settings(
            role.job,
            role.code,
            self._stops,
            needs_all=role.needs_all,
            may_lack_nodes=role.may_lack_nodes,
            model_bytes=role.model_bytes,
        )

        record = self._memory.record
        resumed = None if record is None else record | {"accepted": self._memory.decided}
        self._controller = self._role.control(settings, resumed, time.monotonic())

    def _stops(self, iteration: Iteration) -> bool:
        history = self._memory.history
        self._memory.observe(observation_of(iteration, history))
        return self._role.job.stopping.reason(history) is not None

    def run(self) -> None:
        """Runs until the process is killed."""
        self._mailbox.open()
        self._repeat()
        while True:
            self._listen(max(0.0, self._next_tick - time.monotonic()))
            late = time.monotonic() - self._next_tick
            if late >= 0:
                # If this process itself was suspended, the heartbeats of that time are still
                # unread.
                self._listen(0.0)
                self._next_tick = time.monotonic() + self._tick_every
                self._control(Tick(late))
                members = self._controller.members
                epoch = self._controller.epoch
                victim = self._broken_links.victim(members, epoch, time.monotonic())
                if victim is not None:
                    self._control(NodeLost(*victim))

    def _listen(self, longest: float) -> None:
        for event in self._mailbox.receive(longest):
            match event:
                case Envelope(sender=sender, message=request) if sender.startswith(BLOB_CLIENT):
                    granted = self._granted.get(node_of(sender), frozenset())
                    allowed = not isinstance(request, BlobRequest) or may_use(
                        request.kind, request.name, granted
                    )
                    broken_rule = self._blobs.handle(sender, request, allowed=allowed)
                    if broken_rule:
                        self._mailbox.shut_out(sender, f"{MISCONDUCT} {broken_rule}")
                case Envelope(message=Printed() as printed):
                    self._mailbox.send(JOB_LOOP, printed)
                case Envelope(sender=sender, message=Settle() as settle) if sender == JOB_LOOP:
                    self._mailbox.send(JOB_LOOP, settle)
                case Envelope():
                    self._receive(event)
                case Connected() | Lost():
                    self._note_link(event)
        for client, answer in self._blobs.answers():
            self._mailbox.send(client, answer)

    def _note_link(self, event: Connected | Lost) -> None:
        if (
            isinstance(event, Lost)
            and event.reason.startswith(MISCONDUCT)
            and event.peer != JOB_LOOP
        ):
            self._memory.expel(node_of(event.peer))
            self._control(NodeLost(node_of(event.peer), event.reason))
        if event.peer.startswith(BLOB_CLIENT):
            if isinstance(event, Lost):
                self._blobs.drop(event.peer)
        elif _is_node(event.peer):
            # A heartbeat process that does not connect again leaves its node silent.
            present = isinstance(event, Connected)
            if present:
                self._nodes = self._nodes | {event.peer}
            else:
                self._nodes = self._nodes - {event.peer}
            present_nodes = sorted(self._nodes)
            expelled = sorted(self._memory.expelled)
            attendance = Attendance((*present_nodes,), self._controller.reported, (*expelled,))
            self._mailbox.send(JOB_LOOP, attendance)
            if isinstance(event, Lost):
                self._control(NodeLost(event.peer, event.reason))
        elif event.peer == JOB_LOOP and isinstance(event, Lost):
            # What was in flight is lost with the link.
            self._repeat()

    def _repeat(self) -> None:
        """Sends, once there is a link, the clocks that the job loop has not acknowledged, and how
        the job has ended.
        """
        for message in (*map(RepeatedIteration, self._memory.iterations), *self._ending):
            self._mailbox.send(JOB_LOOP, message)

    def _receive(self, envelope: Envelope) -> None:
        message = envelope.message
        if envelope.sender == JOB_LOOP and isinstance(message, Acknowledged):
            self._memory.acknowledge(message.clock)
        elif isinstance(message, Unlinked):
            if message.node == envelope.sender:
                self._broken_links.report(message, self._controller.epoch, time.monotonic())
        elif isinstance(message, Saved) and (
            message.partition,
            message.clock,
        ) not in self._granted.get(envelope.sender, frozenset()):
            # It was not told to write that, at least not by this controller: nobody relies on it.
            pass
        elif self._over and isinstance(message, Hello | Heartbeat):
            # Also to a node that was given up and has not been told yet.
            self._mailbox.send(node_of(envelope.sender), Leave(self._over))
        else:
            self._control(message, envelope.sender)

    def _control(self, event: object, sender: str | None = None) -> None:
        try:
            if sender is not None and sender != JOB_LOOP:
                self._role.bounds.check(event)
            instructions = self._controller.handle(event, time.monotonic(), sender)
        except Implausible as error:
            self._mailbox.shut_out(sender or "", f"{MISCONDUCT} {error}")
            return
        except Exception as error:
            # The state machine may have taken a part of the event: it cannot go on.
            if sender is None and not isinstance(error, AgileMLError):
                raise
            by = (
                ""
                if sender is None or sender == JOB_LOOP
                else f"{sender} sent {type(event).__name__}: "
            )
            instructions = [Failed(f"{by}{described(error)}")]

        for instruction in instructions:
            # Before the record that says that it was reported.
            if isinstance(instruction, Iteration):
                self._memory.log(instruction)

        for instruction in instructions:
            self._carry_out(instruction)
        failures = self._controller.members.failures
        if failures != self._failures:
            self._failures = failures
            for gone in set(self._controller.members.names(NodePhase.DEAD)) - self._told_gone:
                self._told_gone.add(gone)
                self._mailbox.tell_gone(gone)

    def _carry_out(self, instruction: ControllerInstruction) -> None:
        match instruction:
            case Remember():
                self._memory.remember(instruction.record)
            case RememberDecision():
                self._memory.remember_decision(instruction.line)
            case RememberCheckpoint():
                self._memory.remember_checkpoint(instruction.clock)
                self._cleaning.keep_from(instruction.clock)
                for node, grants in self._granted.items():
                    self._granted[node] = frozenset(
                        grant for grant in grants if grant[1] >= instruction.clock
                    )
            case Send():
                self._send(instruction.to, instruction.message)
            case Iteration() | ClockRepeated():
                self._mailbox.send(JOB_LOOP, instruction)
            case Failed():
                self._end(f"the job has failed: {instruction.why}", instruction)
            case Finished():
                members = self._controller.members
                rest = (instruction.loss, instruction.tally)
                ended = Result(instruction.clock, (), members.evictions, members.failures, *rest)
                self._end(
                    "the job is over", *starmap(ModelPart, enumerate(instruction.versions)), ended
                )
                # Nodes are told to leave after this: the job loop would take them for failed ones
                # while a large model is on its way, and without them nothing is left if this
                # process is killed.
                self._mailbox.finish_sending(JOB_LOOP)

    def _send(self, node: str, message: object) -> None:
        grants = self._controller.granted(node, message)
        if grants:
            self._granted[node] = self._granted.get(node, frozenset()) | grants
        if hasattr(message, "epoch"):
            self._mailbox.admit(node)
        self._mailbox.send(node, message)
        if isinstance(message, Leave):
            # A node that hangs does not read its messages.
            self._mailbox.send(heartbeat_name(node), message)

    def _end(self, over: str, *ending: object) -> None:
        self._over = over
        self._ending = list(ending)
        for message in ending:
            self._mailbox.send(JOB_LOOP, message)


def _is_node(name: str) -> bool:
    return name not in (JOB_LOOP, heartbeat_name(node_of(name))) and not name.startswith(
        BLOB_CLIENT
    )
