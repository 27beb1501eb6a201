"""The chunks that a worker has lent, those that it does for others, and its progress with its own work."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from agileml.work.covers import Cover, covers_of
from agileml.work.ranges import Ranges


@dataclass(slots=True)
class Loan:
    """Chunks that another worker is to do."""

    to: str
    clock: int
    covers: tuple[Cover, ...]
    begun: bool = False
    cancelled: bool = False


@dataclass(slots=True)
class Errand:
    """Chunks outside of a worker's own remaining work; without a `number` they were lent and came back too late."""

    owner: str
    number: int | None
    clock: int
    chunks: deque[tuple[int, int]]
    begun: bool = False

    def left(self) -> tuple[Cover, ...]:
        """The chunks that are not done."""
        return covers_of_chunks(self.chunks)


@dataclass(slots=True)
class WorkPace:
    """Progress of a worker's own work in a clock."""

    clock: int = 0
    total: int = 0
    left: int = 0
    seconds: float = 0.0
    computed: int = 0
    latest: float = 0.0
    """Seconds of the clock at the speed of the last chunk; 0: unknown."""
    reported: bool = False

    @property
    def progress(self) -> float:
        """Clocks done, counting the part of this one."""
        return self.clock + 1 - self.left / self.total if self.total else float(self.clock)


@dataclass(slots=True)
class Loans:
    """The chunks that a worker has lent, by number. Of `kept_back` shards, which leave, nothing is lent any more."""

    lent: dict[int, Loan] = field(default_factory=dict)
    kept_back: set[int] = field(default_factory=set)
    _numbers: int = 0

    def clear(self) -> None:
        """Returns everything to its owner."""
        self.lent.clear()
        self.kept_back.clear()

    def add(self, loan: Loan) -> int:
        """Adds a loan and returns its number."""
        self._numbers += 1
        self.lent[self._numbers] = loan
        return self._numbers

    def abandon(self, clock: int) -> None:
        """Forgets the loans of a clock."""
        self.lent = {number: loan for number, loan in self.lent.items() if loan.clock != clock}

    def contain(self, shard: int) -> bool:
        """Whether chunks of a shard are lent."""
        return any(shard == cover[0] for loan in self.lent.values() for cover in loan.covers)

    def borrowers(self) -> set[str]:
        """The workers that have chunks of this one."""
        return {loan.to for loan in self.lent.values()}

    def unwanted(self) -> list[tuple[int, Loan]]:
        """The loans with chunks of shards that leave."""
        return [
            (number, loan)
            for number, loan in self.lent.items()
            if self.kept_back.intersection(shard for shard, _, _ in loan.covers)
        ]


def covers_of_chunks(chunks: Iterable[tuple[int, int]]) -> tuple[Cover, ...]:
    """The chunks, each named by its shard and its number, as covers."""
    by_shard: dict[int, list[tuple[int, int]]] = {}
    for shard, chunk in chunks:
        by_shard.setdefault(shard, []).append((chunk, chunk + 1))
    return covers_of({shard: Ranges.of(*spans) for shard, spans in by_shard.items()})
