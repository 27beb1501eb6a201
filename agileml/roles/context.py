"""The place of a worker in the job, which its parts share."""

from dataclasses import dataclass, field

from agileml.protocol.actions import Action, Send
from agileml.protocol.messages import Table


@dataclass(slots=True)
class WorkerContext:
    """The worker's node, where its actions go, its epoch, the last clock to work on, and the routes."""

    node: str
    out: list[Action]
    epoch: int = 0
    limit: int = 0
    table: Table = field(default_factory=lambda: Table(0, (), (), ()))

    def send(self, to: str, message: object) -> None:
        """Sends a message."""
        self.out.append(Send(to, message))
