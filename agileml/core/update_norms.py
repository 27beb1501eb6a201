"""The norm of all updates of a clock, from the squares that the servers of its partitions report."""

from dataclasses import dataclass, field

from agileml.core.members import IN_EPOCH, Members
from agileml.protocol.actions import Send
from agileml.protocol.messages import SquareOfAll, SquareOfPart


@dataclass(slots=True)
class UpdateNorms:
    """Squares by clock: `parts` of clocks that are not complete, by partition, and `whole` of those that are.

    A square follows from the contributions alone, so that one that is reported again is the same.
    """

    partitions: int
    parts: dict[int, dict[int, float]] = field(default_factory=dict)
    whole: dict[int, float] = field(default_factory=dict)

    def add(self, report: SquareOfPart, members: Members) -> list[Send]:
        """The answers to a report: to all nodes once every partition has reported, and to one that reports later."""
        clock, to = report.clock, [report.node]
        if clock not in self.whole:
            squares = self.parts.setdefault(clock, {})
            squares[report.partition] = report.square
            if len(squares) < self.partitions:
                return []
            self.whole[clock] = sum(square for _, square in sorted(self.parts.pop(clock).items()))
            to = members.names(*IN_EPOCH)
        return [Send(name, SquareOfAll(report.epoch, clock, self.whole[clock])) for name in to]

    def forget_until(self, stable: int) -> None:
        """Every partition has these versions."""
        self.whole = {clock: square for clock, square in self.whole.items() if clock > stable}

    def roll_back(self) -> None:
        """An epoch begins: all of its clocks are reported again."""
        self.parts.clear()
        self.whole.clear()
