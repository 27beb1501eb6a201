"""The controller's mode, and the epochs: each is a time in which no message is lost, and begins with a rollback."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agileml.core.recovery import Answers
from agileml.errors import InvalidTransition


class Mode(Enum):
    """The controller's current mode."""

    GATHERING = "gathering"
    """Waits for the first nodes, or for a node that can hold the model after the last one was lost."""
    RESUMING = "resuming"
    """Restarted: waits for the nodes to report what they hold."""
    RECOVERING = "recovering"
    """An epoch has begun: waits for the nodes to install the version from which it starts."""
    RUNNING = "running"
    OVER = "over"


NEXT_MODES = {
    Mode.GATHERING: {Mode.GATHERING, Mode.RECOVERING, Mode.RESUMING, Mode.OVER},
    Mode.RESUMING: {Mode.GATHERING, Mode.RECOVERING, Mode.OVER},
    Mode.RECOVERING: {Mode.GATHERING, Mode.RECOVERING, Mode.RUNNING, Mode.OVER},
    Mode.RUNNING: {Mode.GATHERING, Mode.RECOVERING, Mode.OVER},
    Mode.OVER: set[Mode](),
}
"""The modes that may follow each. A controller that resumes gathers only until its record is read."""


@dataclass(slots=True)
class Epochs:
    """The mode, the number of the current epoch, and the nodes that it waits for.

    `rolled_back` is the version from which the epoch started, `sources` say where its partitions were.
    """

    mode: Mode = Mode.GATHERING
    number: int = 0
    rolled_back: int = -1
    sources: tuple[str, ...] = ()
    restoring: set[str] = field(default_factory=set)
    answers: Answers = field(default_factory=Answers)

    def enter(self, mode: Mode) -> None:
        """Changes the mode; InvalidTransition if the new one cannot follow."""
        if mode not in NEXT_MODES[self.mode]:
            raise InvalidTransition(f"the controller cannot go from {self.mode.value} to {mode.value}")
        self.mode = mode

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"epoch": self.number, "gone_back": self.rolled_back}

    def restore(self, record: Mapping[str, Any], partitions: int, awaited: Iterable[str]) -> None:
        """Takes over from an earlier controller; once there was an epoch, its nodes are asked what they hold."""
        self.number, self.rolled_back, self.sources = record["epoch"], record["gone_back"], ("",) * partitions
        if self.number:
            self.enter(Mode.RESUMING)
            self.answers = Answers(set(awaited), self.number, self.rolled_back)

    def begin(self, rolled_back: int, sources: tuple[str, ...], nodes: Iterable[str]) -> None:
        """Begins an epoch from a version with these nodes."""
        self.enter(Mode.RECOVERING)
        self.number += 1
        self.rolled_back, self.sources, self.restoring = rolled_back, sources, set(nodes)

    def restored(self, node: str) -> None:
        """A node has installed its partitions; training continues after the last node."""
        self.restoring.discard(node)
        if not self.restoring and self.mode is Mode.RECOVERING:
            self.enter(Mode.RUNNING)

    @property
    def all_answered(self) -> bool:
        """Whether every node that a restarted controller asked has answered or is lost."""
        return self.mode is Mode.RESUMING and not self.answers.awaited
