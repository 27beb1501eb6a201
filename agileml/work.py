"""The work of a job as values: which chunks a clock has, which are left, which have arrived, which
were accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

ChunkSpan = tuple[int, int]
"""First number, one past the last number."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Numbers as half-open spans: sorted, not empty, with gaps between them, so that equal sets
    compare equal.
    """

    spans: tuple[ChunkSpan, ...] = ()

    @classmethod
    def of(cls, *spans: ChunkSpan) -> Ranges:
        """The union of spans in any order; they may overlap or be empty."""
        merged: list[ChunkSpan] = []
        for first, last in sorted(spans):
            if first >= last:
                continue
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))

        return cls(tuple(merged))

    @property
    def first(self) -> int:
        """The smallest number; IndexError if the set is empty."""
        return self.spans[0][0]

    def __len__(self) -> int:
        return sum(last - first for first, last in self.spans)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.spans:
            yield from range(first, last)

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.of(*self.spans, *other.spans)

    def __and__(self, other: Ranges) -> Ranges:
        common = [(max(a, c), min(b, d)) for a, b in self.spans for c, d in other.spans]
        return Ranges.of(*common)

    def without(self, number: int) -> Ranges:
        """The set less one number; the same set if it does not contain the number."""
        spans: list[ChunkSpan] = []
        for first, last in self.spans:
            if first <= number < last:
                spans += [
                    span for span in ((first, number), (number + 1, last)) if span[0] < span[1]
                ]
            else:
                spans.append((first, last))

        return Ranges(tuple(spans))

    def overlaps(self, first: int, last: int) -> bool:
        """Whether the set contains a number of first..last-1."""
        return any(max(first, low) < min(last, high) for low, high in self.spans)

    def covers(self, first: int, last: int) -> bool:
        """Whether the set contains all of first..last-1."""
        return first >= last or any(low <= first and last <= high for low, high in self.spans)


Cover = tuple[int, int, int]
"""Shard, first chunk, one past the last chunk."""

FINGERPRINT_MASK = (1 << 61) - 1

_NONE = Ranges()


def covers_of(chunks: Mapping[int, Ranges]) -> tuple[Cover, ...]:
    """Chunks by shard as covers, in the order of the shards."""
    return tuple(
        (shard, first, last)
        for shard, ranges in sorted(chunks.items())
        for first, last in ranges.spans
    )


@lru_cache(maxsize=1 << 14)
def cover_fingerprint(clock: int, cover: Cover) -> int:
    """Sum over the cover's chunks of a 61-bit hash of (clock, shard, chunk)."""
    shard, first, last = cover
    return sum(hashed(clock, shard, chunk) for chunk in range(first, last)) & FINGERPRINT_MASK


def hashed(clock: int, shard: int, chunk: int) -> int:
    """61 bits that look random."""
    word = (
        clock * 0x9E3779B97F4A7C15 + shard * 0xC2B2AE3D27D4EB4F + chunk * 0x165667B19E3779F9
    ) & (1 << 64) - 1
    word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    word = (word ^ word >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return (word ^ word >> 30) & FINGERPRINT_MASK


@lru_cache(maxsize=8)
def covers_fingerprint(clock: int, covers: tuple[Cover, ...]) -> int:
    """The sum of the fingerprints, modulo 2^61. Kept for the partitions of one push, which all ask
    for the same.
    """
    return sum([cover_fingerprint(clock, cover) for cover in covers]) & FINGERPRINT_MASK


@dataclass(frozen=True, slots=True)
class Accepted:
    """The chunks whose updates make up a clock: the next version of every partition sums these and
    no others.

    The controller decides and logs this. With the logged decisions a run can be replayed to the
    same model.
    """

    clock: int
    covers: tuple[Cover, ...]
    chunks: int = field(init=False)
    """Number of accepted chunks, counted once because servers compare with it at every push."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", sum([last - first for _, first, last in self.covers]))

    @property
    def fingerprint(self) -> int:
        """The sum of the fingerprints of the accepted chunks, modulo 2^61."""
        return covers_fingerprint(self.clock, self.covers)

    def of_shard(self, shard: int) -> Ranges:
        """The accepted chunks of a shard."""
        return Ranges.of(*(cover[1:] for cover in self.covers if cover[0] == shard))


class Coverage:
    """The chunks of one clock that have arrived. Most shards arrive as one cover, which is kept as
    it came.
    """

    def __init__(self) -> None:
        self._arrived: dict[int, Cover | Ranges] = {}
        self.chunks = 0

    def clash(self, covers: Iterable[Cover]) -> Cover | None:
        """The first of these covers with a chunk that has arrived before; None if there is no such
        cover.
        """
        for shard, first, last in covers:
            arrived = self._arrived.get(shard)
            if arrived is not None and _ranges(arrived).overlaps(first, last):
                return shard, first, last
        return None

    def add(self, covers: Iterable[Cover]) -> None:
        """Adds covers that do not clash."""
        for cover in covers:
            shard, first, last = cover
            arrived = self._arrived.get(shard)
            if arrived is None:
                self._arrived[shard] = cover
            else:
                self._arrived[shard] = _ranges(arrived) | Ranges(((first, last),))
            self.chunks += last - first

    def complete(self, accepted: Accepted) -> bool:
        """Whether every accepted chunk has arrived."""
        if self.chunks < accepted.chunks:
            return False
        for cover in accepted.covers:
            shard, first, last = cover
            arrived = self._arrived.get(shard)
            if arrived != cover and not _ranges(arrived).covers(first, last):
                return False
        return True

    def covers(self) -> tuple[Cover, ...]:
        """All chunks that have arrived."""
        return covers_of({shard: _ranges(arrived) for shard, arrived in self._arrived.items()})


def _ranges(arrived: Cover | Ranges | None) -> Ranges:
    if isinstance(arrived, tuple):
        return Ranges((arrived[1:],))
    return arrived or _NONE


ClockCovers = tuple[int, tuple[Cover, ...]]
"""A clock and its accepted chunks, as messages carry it."""


@dataclass(slots=True)
class CountedWork:
    """The plan and the decisions about it. With `awaits`, a clock is complete only once it has been
    decided.
    """

    plan: WorkPlan
    awaits: bool = False
    _decided: dict[int, Accepted] = field(default_factory=dict)
    _past: int = 0
    """The clock up to which nothing is left to do, as no rollback of this epoch leads behind it."""

    def decide(self, decisions: Iterable[ClockCovers]) -> None:
        """Adds decisions of the controller."""
        self._decided.update((clock, Accepted(clock, covers)) for clock, covers in decisions)

    def forget_until(self, clock: int) -> None:
        """Forgets the decisions up to a clock, for which there is nothing left to do or undo."""
        if clock <= self._past and not self.awaits:
            return
        self._past = max(self._past, clock)
        for at in [at for at in self._decided if at <= clock]:
            del self._decided[at]

    def reset(self, clock: int, decisions: Iterable[ClockCovers]) -> None:
        """An epoch begins from a version, with the decisions about the clocks that are repeated."""
        self._decided.clear()
        self._past = clock
        self.decide(decisions)

    def accepted(self, clock: int) -> Accepted | None:
        """The chunks that make up a clock; None if that is not decided, or was forgotten."""
        if self.awaits or clock in self._decided:
            return self._decided.get(clock)
        # Partitions of one server ask for the same clocks.
        self._decided = {at: accepted for at, accepted in self._decided.items() if at >= clock - 2}
        self._decided[clock] = self.plan.accept_all(clock)
        return self._decided[clock]

    def ranges(self, shard: int, clock: int) -> Ranges:
        """The chunks of a shard that count; all of them as long as the clock is not decided."""
        if not self.awaits or clock > max(self._past, *self._decided, 0):
            return self.plan.ranges(shard, clock)
        if clock in self._decided:
            return self._decided[clock].of_shard(shard)
        return Ranges()

    def left_out(self, clock: int, covers: Iterable[Cover]) -> bool:
        """Whether a contribution with these chunks came too late for its clock. All of it counts,
        or nothing.
        """
        if not self.awaits:
            return False
        accepted = self._decided.get(clock)
        if accepted is None:
            return clock <= self._past
        return not any(
            accepted.of_shard(shard).overlaps(first, last) for shard, first, last in covers
        )


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """Shard lengths in items, items of a shard per clock (0: all), and the most items of a chunk.

    With `rotates`, the shard of a place changes with the clock.
    """

    lengths: tuple[int, ...]
    batch: int
    chunk_items: int
    rotates: bool = False

    def rotating(self) -> WorkPlan:
        """A plan with these chunks, whose shards rotate."""
        return replace(self, rotates=True)

    def shard_at(self, place: int, clock: int) -> int:
        """The shard of a place in a clock: each shard once in as many clocks as there are
        shards."""
        if not self.rotates:
            return place
        count = len(self.lengths)
        turns, turn = divmod(clock - 1, count)
        return _shuffled(count, turns)[(place + turn) % count]

    def covers_of_shards(self, accepted: Accepted) -> tuple[Cover, ...]:
        """The chunks of a decision by shard instead of by place."""
        shards = (
            (self.shard_at(place, accepted.clock), first, last)
            for place, first, last in accepted.covers
        )
        if self.rotates:
            return tuple(sorted(shards))
        return accepted.covers

    def items(self, place: int, clock: int) -> tuple[int, int]:
        """The items that a place has in a clock. Batches cycle through its shard; the last may be
        shorter.
        """
        length = self.lengths[self.shard_at(place, clock)]
        if not self.batch or self.batch >= length:
            return 0, length
        batches = -(-length // self.batch)
        low = (clock - 1) % batches * self.batch
        return low, min(length, low + self.batch)

    def items_until(self, clock: int) -> int:
        """The items of all clocks up to this one, of all shards together."""
        total = 0
        for length in self.lengths:
            batches = -(-length // self.batch) if 0 < self.batch < length else 1
            rounds, rest = divmod(clock, batches)
            total += rounds * length + min(rest * self.batch, length)
        return total

    def chunks(self, place: int, clock: int) -> int:
        """Number of chunks at a place in a clock: at least one, so that every shard takes part in
        every clock.
        """
        low, high = self.items(place, clock)
        return max(1, -(-(high - low) // self.chunk_items))

    def ranges(self, place: int, clock: int) -> Ranges:
        """All chunks at a place in a clock."""
        return Ranges(((0, self.chunks(place, clock)),))

    def bounds(self, place: int, clock: int, chunk: int) -> tuple[int, int]:
        """The items low..high-1 of a chunk."""
        low, high = self.items(place, clock)
        first = low + chunk * self.chunk_items
        return first, min(high, first + self.chunk_items)

    def accept_all(self, clock: int) -> Accepted:
        """The decision that leaves out no chunk: the only one, and known in advance, without backup
        workers.
        """
        covers = tuple((place, 0, self.chunks(place, clock)) for place in range(len(self.lengths)))
        return Accepted(clock, covers)

    def cover_items(self, clock: int, covers: Iterable[Cover]) -> int:
        """Number of items in these chunks of a clock."""
        return sum(
            max(0, self.bounds(place, clock, last - 1)[1] - self.bounds(place, clock, first)[0])
            for place, first, last in covers
        )

    def scale(self, accepted: Accepted) -> float:
        """By what the sum of the accepted updates is multiplied, so that a step stays one of a
        whole clock.
        """
        if accepted.chunks == self.accept_all(accepted.clock).chunks:
            return 1.0

        whole = sum(
            high - low
            for low, high in (
                self.items(place, accepted.clock) for place in range(len(self.lengths))
            )
        )

        return whole / self.cover_items(accepted.clock, accepted.covers)


@lru_cache(maxsize=8)
def _shuffled(count: int, turns: int) -> tuple[int, ...]:
    """The shards in an order that is another one after each turn of all: then no period of a
    machine meets theirs.
    """
    return tuple(sorted(range(count), key=lambda shard: hashed(turns, shard, 0)))


def sampled_items(lengths: Sequence[int], items: int) -> list[int]:
    """By shard, the number of its items in a sample of about this size.

    With more shards than items, only that many shards, evenly spread, have an item in the sample.
    """
    count = len(lengths)
    if not items:
        return [0] * count
    if count <= items:
        return [min(-(-items // count), length) for length in lengths]
    chosen = {number * count // items for number in range(items)}
    return [min(1, length) if number in chosen else 0 for number, length in enumerate(lengths)]
