"""Covers name chunks of a clock; they say what a contribution brings, what has arrived, and what was accepted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from agileml.work.ranges import Ranges

Cover = tuple[int, int, int]
"""Shard, first chunk, one past the last chunk."""

FINGERPRINT_MASK = (1 << 61) - 1

_NONE = Ranges()


def covers_of(chunks: Mapping[int, Ranges]) -> tuple[Cover, ...]:
    """Chunks by shard as covers, in the order of the shards."""
    return tuple((shard, first, last) for shard, ranges in sorted(chunks.items()) for first, last in ranges.spans)


@lru_cache(maxsize=1 << 14)
def cover_fingerprint(clock: int, cover: Cover) -> int:
    """Sum over the cover's chunks of a 61-bit hash of (clock, shard, chunk)."""
    shard, first, last = cover
    return sum(hashed(clock, shard, chunk) for chunk in range(first, last)) & FINGERPRINT_MASK


def hashed(clock: int, shard: int, chunk: int) -> int:
    """61 bits that look random."""
    word = (clock * 0x9E3779B97F4A7C15 + shard * 0xC2B2AE3D27D4EB4F + chunk * 0x165667B19E3779F9) & (1 << 64) - 1
    word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    word = (word ^ word >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return (word ^ word >> 30) & FINGERPRINT_MASK


@lru_cache(maxsize=8)
def covers_fingerprint(clock: int, covers: tuple[Cover, ...]) -> int:
    """The sum of the fingerprints, modulo 2^61. Kept for the partitions of one push, which all ask for the same."""
    return sum([cover_fingerprint(clock, cover) for cover in covers]) & FINGERPRINT_MASK


@dataclass(frozen=True, slots=True)
class Accepted:
    """The chunks whose updates make up a clock: the next version of every partition sums these and no others.

    The controller decides and logs this. With the logged decisions a run can be replayed to the same model.
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
    """The chunks of one clock that have arrived. Most shards arrive as one cover, which is kept as it came."""

    def __init__(self) -> None:
        self._arrived: dict[int, Cover | Ranges] = {}
        self.chunks = 0

    def clash(self, covers: Iterable[Cover]) -> Cover | None:
        """The first of these covers with a chunk that has arrived before; None if there is no such cover."""
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
            self._arrived[shard] = cover if arrived is None else _ranges(arrived) | Ranges(((first, last),))
            self.chunks += last - first

    def complete(self, accepted: Accepted) -> bool:
        """Whether every accepted chunk has arrived."""
        return self.chunks >= accepted.chunks and all(map(self._holds, accepted.covers))

    def _holds(self, cover: Cover) -> bool:
        shard, first, last = cover
        arrived = self._arrived.get(shard)
        return arrived == cover or _ranges(arrived).covers(first, last)

    def covers(self) -> tuple[Cover, ...]:
        """All chunks that have arrived."""
        return covers_of({shard: _ranges(arrived) for shard, arrived in self._arrived.items()})


def _ranges(arrived: Cover | Ranges | None) -> Ranges:
    if isinstance(arrived, tuple):
        return Ranges((arrived[1:],))
    return arrived or _NONE
