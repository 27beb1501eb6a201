"""The end of a node: before it leaves, no message may be in flight from it or to it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agileml.protocol.actions import CONTROLLER, Action, Send
from agileml.protocol.messages import Drain, Drained, EndOfLife, EndOfLifeSeen


@dataclass(slots=True)
class Departure:
    """The end-of-life marks of a node and the peers that have not answered.

    Links keep their order: once a peer has answered the mark, everything that the peer sent has arrived here, and
    everything sent before the mark has arrived there. Messages forwarded in the meantime need another round.
    """

    node: str
    _peers: set[str] = field(default_factory=set)
    _unanswered: set[str] = field(default_factory=set)
    _sent_work: bool = False

    def cancel(self) -> None:
        """An epoch begins in which the node stays."""
        self._peers = set()

    def drain(self, message: Drain) -> list[Send]:
        """Marks the links to all peers; a repeated order names fewer of them, as the others have left."""
        first, self._peers = not self._peers, set(message.peers)
        marks = self._mark(message.epoch) if first else []
        self._unanswered &= self._peers
        return marks + self._continue(message.epoch)

    def answered(self, message: EndOfLifeSeen) -> list[Send]:
        """A peer has answered the mark."""
        self._unanswered.discard(message.node)
        return self._continue(message.epoch)

    def note_sent(self, actions: Sequence[Action]) -> None:
        """Remembers whether messages were sent to peers since the marks."""
        if self._peers and any(isinstance(action, Send) and _is_work(action) for action in actions):
            self._sent_work = True

    def _continue(self, epoch: int) -> list[Send]:
        """Once all have answered, marks the links again, or reports that nothing is in flight."""
        marks = self._mark(epoch) if not self._unanswered and self._sent_work else []
        return marks if self._unanswered else [*marks, Send(CONTROLLER, Drained(self.node, epoch))]

    def _mark(self, epoch: int) -> list[Send]:
        self._unanswered, self._sent_work = set(self._peers), False
        return [Send(peer, EndOfLife(epoch, self.node)) for peer in sorted(self._peers)]


def _is_work(action: Send) -> bool:
    return action.to != CONTROLLER and not isinstance(action.message, EndOfLife | EndOfLifeSeen)
