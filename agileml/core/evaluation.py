"""The loss of the final model: workers compute it on their shards once the last clock is done."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agileml.protocol.messages import Evaluated
from agileml.work.sample import sampled_items


@dataclass(slots=True)
class FinalLoss:
    """The nodes that were asked, and their answers. `counts` is the number of sampled items by shard."""

    counts: Mapping[int, int]
    _asked: set[str] = field(default_factory=set)
    _sums: dict[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, lengths: Sequence[int], sample: int) -> "FinalLoss":
        """The loss over a sample of this size of shards with these lengths."""
        return cls({shard: count for shard, count in enumerate(sampled_items(lengths, sample)) if count})

    def reset(self) -> None:
        """All nodes return to an earlier version, so they are asked again."""
        self._asked.clear()
        self._sums.clear()

    def to_ask(self, nodes: Iterable[str]) -> list[str]:
        """The nodes that have not been asked before."""
        new = [] if self.complete else [node for node in nodes if node not in self._asked]
        self._asked.update(new)
        return new

    def add(self, event: Evaluated) -> None:
        """Records the answer for one shard. Two workers of a shard give the same answer."""
        self._sums[event.shard] = event.loss_sum

    @property
    def complete(self) -> bool:
        """Whether the loss is known, or there is none."""
        return len(self._sums) == len(self.counts)

    @property
    def loss(self) -> float | None:
        """The mean over the sample; None without a sample, and until it is known."""
        if not self.counts or not self.complete:
            return None
        # In the order of shards, so that it does not depend on which node was faster.
        return sum(total for _, total in sorted(self._sums.items())) / sum(self.counts.values())
