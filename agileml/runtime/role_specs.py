"""Roles: all that a process of a job is given when it starts.

`Vitals` is the memory that a node shares with its heartbeat process: signs of progress, and of the
end.
"""

import mmap
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from agileml.core.events import (
    CheckpointRules,
    ControllerInstruction,
    ControllerSettings,
    Iteration,
    NodeRules,
)
from agileml.core.members import Members
from agileml.job import TrainingJob
from agileml.params.layout import Params
from agileml.protocol.actions import Action
from agileml.protocol.messages import UNKNOWN_STEP, Hello, Version
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.rights import Bounds, Grant
from agileml.slowdowns import uneven_share
from agileml.transport import new_instance

_LOOP_AT, _BUSY_SINCE, _USUAL_STEP, _UNREPORTED, _CLOCK, _SHARD, _GIVEN_UP, _LEAVING = range(8)
_CELL_BYTES = 8
_TEXT_BYTES = 1024
_IDLE = 0.0

RECENT_STEPS = 32
"""Number of recent steps whose longest is the usual step: steps differ, and a healthy node must not
be given up."""


class Vitals:
    """Written by the node, read by its heartbeat process, which is forked from it. Times are
    monotonic.

    Reading needs nothing of the node: its user code may hold the interpreter lock, or the node may
    be stopped.
    """

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, 8 * _CELL_BYTES)).cast("d")
        self._text, self._reason = (mmap.mmap(-1, _TEXT_BYTES) for _ in range(2))
        self._cells[_LOOP_AT] = time.monotonic()
        self._steps: deque[float] = deque(maxlen=RECENT_STEPS)

    def note_turn(self, now: float) -> None:
        """The node's message loop has made another turn."""
        self._cells[_LOOP_AT] = now

    def note_unreported(self, chunks: int) -> None:
        """Chunks are done that the node has not reported as a part of a clock."""
        self._cells[_UNREPORTED] = chunks

    @property
    def unreported(self) -> int:
        """The chunks that would have to be done again if the node were lost now."""
        return int(self._cells[_UNREPORTED])

    def note_loaded(self, entry: str) -> None:
        """The trainer is loaded; `entry` is the file and line at which its steps begin."""
        _write(self._text, entry)

    @property
    def whereabouts(self) -> str:
        """The place in the user's code, as seen without asking the node; empty if that code is not
        running.
        """
        if self._cells[_BUSY_SINCE] == _IDLE:
            return ""
        entry = _read(self._text)
        if not entry:
            return "it was loading the trainer"
        return (
            f"it was in {entry}, at clock {self._cells[_CLOCK]:.0f}, shard "
            f"{self._cells[_SHARD]:.0f}"
        )

    def give_up(self, reason: str) -> None:
        """Tells the node that the controller has given it up: its own link may be slower than this
        process's.
        """
        _write(self._reason, reason)
        self._cells[_GIVEN_UP] = True

    @property
    def given_up(self) -> str:
        """Why the controller has given the node up; empty as long as it has not."""
        if self._cells[_GIVEN_UP]:
            return _read(self._reason)
        return ""

    def leave(self) -> None:
        """The node leaves by itself; sending its last messages may take a while."""
        self._cells[_LEAVING] = True

    @property
    def leaving(self) -> bool:
        """Whether the node leaves by itself."""
        return bool(self._cells[_LEAVING])

    @contextmanager
    def step(
        self,
        *,
        first: bool,
        at: tuple[int, int] = (0, 0),
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[None]:
        """Runs user code at a clock and shard. `first`: it may also import modules and load
        data."""
        began = clock()
        self._cells[_CLOCK], self._cells[_SHARD] = at
        if first or not self._steps:
            self._cells[_USUAL_STEP] = UNKNOWN_STEP
        else:
            self._cells[_USUAL_STEP] = max(self._steps)
        self._cells[_BUSY_SINCE] = began

        try:
            yield
        finally:
            self._cells[_BUSY_SINCE] = _IDLE

        if not first:
            self._steps.append(clock() - began)

    def stalled(self, now: float) -> float:
        """Seconds since the node last made progress; a node that waits for messages makes
        progress."""
        loop = self._cells[_LOOP_AT]
        busy = self._cells[_BUSY_SINCE]
        return max(0.0, now - (min(loop, busy) if busy != _IDLE else loop))

    @property
    def usual_step(self) -> float:
        """Seconds that the present step would usually take; UNKNOWN_STEP if that is not known."""
        return self._cells[_USUAL_STEP]


def _write(memory: mmap.mmap, text: str) -> None:
    content = text.encode()[:_TEXT_BYTES]
    memory[: len(content)] = content


def _read(memory: mmap.mmap) -> str:
    return bytes(memory).rstrip(b"\0").decode(errors="replace")


SLOWEST_BYTES_PER_SECOND = 32 << 20
"""The rate at which a node on a busy computer handles a large model: 32 s for each GiB."""

CHECKPOINT_PAUSE = 0.1
"""Seconds between two checkpoints, at least: so much work is done again if every copy of a model is
lost."""

CHECKPOINT_SHARE = 0.1
"""The share of the time in which checkpoints are written: a large model takes longer to write than
a clock."""

UNLIMITED = 10**9
"""Clocks of a job that only another criterion stops."""


class NodeMachine(Protocol):
    """The state machine of a node."""

    epoch: int
    """The latest epoch in which the node takes part; 0 before its first, in which the job admits
    it."""

    def hello(self, reliable: bool, code: str) -> Hello:
        """Introduces this node, also to a restarted controller."""
        ...

    def handle(self, message: object, sender: str | None = None) -> Iterable[Action]:
        """Processes a message; carry out each action that follows from it before you ask for the
        next.

        `sender` is the process that sent it.
        """
        ...

    def lose_link(self) -> Iterable[Action]:
        """Processes the loss of a link to another node, with what was in flight."""
        ...

    def take_version(self, epoch: int, partition: int, version: Version) -> Iterable[Action]:
        """Processes the result of a `Fetch` action."""
        ...

    def confirm_saved(self, epoch: int, partition: int, clock: int) -> Iterable[Action]:
        """Processes the end of a `Save` action."""
        ...


NodeT = TypeVar("NodeT", bound=NodeMachine)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRole(ABC):
    """A machine of the job."""

    name: str
    reliable: bool
    rendezvous: Rendezvous
    job: TrainingJob
    work: object
    """The part that must be the same for a job to be continued, besides the code."""
    partitions: int
    """Partitions of the model; each has checkpoints of its own."""
    instance: str = field(default_factory=new_instance)
    """The node's process and its heartbeat process have this in common, and with no other of the
    same name."""

    @abstractmethod
    def process(self, vitals: Vitals) -> Any:  # noqa: ANN401 - a NodeLoop imports this module
        """The node's work."""

    @abstractmethod
    def model(self, versions: Sequence[Version]) -> Params:
        """The named arrays of a model, from its partitions."""


class JobControl(Protocol):
    """The state machine of a controller: events in, instructions out."""

    @property
    def members(self) -> Members:
        """The nodes."""
        ...

    @property
    def epoch(self) -> int:
        """The number of the current epoch; 0 before the first."""
        ...

    @property
    def reported(self) -> int:
        """Grows whenever nodes report more work."""
        ...

    def handle(
        self, event: object, now: float, sender: str | None = None
    ) -> list[ControllerInstruction]:
        """Processes an event and returns the instructions that follow from it, in order."""
        ...

    def granted(self, node: str, order: object) -> frozenset[Grant]:
        """The checkpoints that a node may write once it has this order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerRole:
    """The job's controller. `memory` is the file from which a restarted controller resumes.

    `code` is the version of the trainer's code when the job began: its file may change while the
    job runs. `needs_all` and `may_lack_nodes`: see `NodeRules`.
    """

    rendezvous: Rendezvous
    memory: Path
    code: str
    job: TrainingJob
    model_bytes: int
    control: Callable[[ControllerSettings, Mapping[str, Any] | None, float], JobControl]
    """Makes the state machine at a time: a new one, or one that continues from another's record."""
    needs_all: bool = False
    may_lack_nodes: bool = False
    messages: tuple[type, ...] = ()
    """Kinds of messages that only such jobs have."""
    bounds: Bounds = field(default_factory=Bounds)


Role = NodeRole | ControllerRole


def controller_settings(
    job: TrainingJob,
    code: str,
    stop: Callable[[Iteration], bool],
    *,
    needs_all: bool = False,
    may_lack_nodes: bool = False,
    model_bytes: int = 0,
) -> ControllerSettings:
    """The controller's settings for a job; `stop` is asked after each clock whether to end.

    A node may look hung while it moves or commits a model of `model_bytes` bytes.
    """
    moving = model_bytes / SLOWEST_BYTES_PER_SECOND
    nodes = NodeRules(
        code,
        job.heartbeat_timeout,
        job.hang_timeout + moving,
        job.startup_timeout + moving,
        needs_all,
        may_lack_nodes,
    )

    rules = CheckpointRules(job.checkpoint_every, CHECKPOINT_PAUSE, CHECKPOINT_SHARE)
    return ControllerSettings(
        job.reliable,
        job.transient,
        job.stopping.clocks or UNLIMITED,
        job.policy,
        nodes,
        rules,
        stop,
        job.settings.loss_sample,
        job.settings.stragglers,
        uneven_share(job.slowdowns),
    )
