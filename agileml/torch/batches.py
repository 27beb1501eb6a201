"""Which samples of a dataset belong to a clock.

The samples follow from the seed and the number of the clock alone. Samplers therefore have no state that an eviction
could lose: a chunk that is computed again, on whichever node, has the same samples.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """A share of every batch, as a shard with one item for each of its samples in an epoch."""

    number: int
    length: int

    def __len__(self) -> int:
        return self.length


@dataclass(frozen=True, slots=True)
class Batches:
    """Cuts each epoch into batches of `size` samples, in random order if `shuffle`, and each batch into parts.

    The last batch of an epoch may be shorter, or is left out with `drop_last`. `size` is a multiple of `parts`.
    """

    samples: int
    size: int
    parts: int
    shuffle: bool
    drop_last: bool = False

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch; a clock is one batch."""
        return self.samples // self.size if self.drop_last else -(-self.samples // self.size)

    def length(self, clock: int) -> int:
        """The number of samples in the batch of a clock."""
        return self.size if clock % self.per_epoch else self._last

    def shards(self) -> list[BatchPart]:
        """The parts. One without a sample in the last batch has an empty item there, to take part in every clock."""
        before = (self.per_epoch - 1) * self._share
        return [BatchPart(number, before + max(1, len(self._of_last(number)))) for number in range(self.parts)]

    def chosen(self, seed: int, clock: int, part: int, lo: int, hi: int) -> Numbers:
        """The samples of items lo..hi of a part, in the epoch of a clock."""
        items = np.arange(lo, hi)
        batch, place = np.divmod(items, self._share)
        last, of_last = batch == self.per_epoch - 1, self._of_last(part)
        positions = np.where(
            last, batch * self.size + of_last.start + place, batch * self.size + part * self._share + place
        )
        chosen: Numbers = positions[~last | (place < len(of_last))]
        if self.shuffle:
            chosen = _order(self.samples, seed, (clock - 1) // self.per_epoch)[chosen]
        return chosen

    @property
    def _share(self) -> int:
        return self.size // self.parts

    @property
    def _last(self) -> int:
        return min(self.size, self.samples - (self.per_epoch - 1) * self.size)

    def _of_last(self, part: int) -> range:
        return range(self._last * part // self.parts, self._last * (part + 1) // self.parts)


@lru_cache(maxsize=2)
def _order(samples: int, seed: int, epoch: int) -> Numbers:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(epoch,))))
    return rng.permutation(samples)
