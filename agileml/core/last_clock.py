"""The last clock of a job: which one it is, and the model and the loss that are fetched after it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agileml.core.events import Finished
from agileml.protocol.actions import Send
from agileml.protocol.messages import Collect, Collected, Evaluate, Evaluated, Version
from agileml.work import sampled_items


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


@dataclass(slots=True)
class LastClock:
    """The last clock, and what has been fetched of its model."""

    limit: int
    final_loss: FinalLoss
    stopping: bool = False
    """Whether the job ends before the clock that its settings name."""
    interrupted: bool = False
    """The job's end waits for nothing. Not recorded: the job loop repeats it, and a later run goes on."""
    _collecting: bool = False
    _collected: dict[int, Version] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"limit": self.limit, "stopping": self.stopping}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Takes over from an earlier controller. A resumed job may change its last clock unless it was stopping."""
        self.stopping = record["stopping"]
        self.limit = record["limit"] if self.stopping else max(self.limit, record["stable"])

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version, so that nothing is fetched yet."""
        # Nodes that had not received the limit have worked beyond it.
        self.limit = max(self.limit, clock)
        self._collecting = False
        self._collected.clear()
        self.final_loss.reset()

    def may_stop_after(self, clock: int) -> bool:
        """Whether it is still open that the job ends with this clock."""
        return clock < self.limit and not self.stopping and not self.interrupted

    def stop(self, reached: int, stable: int) -> None:
        """Ends the job with the clock in progress."""
        # Backups may have reported a version before its servers did, if the servers' links are slower.
        self.stopping, self.limit = True, max(reached + 1, stable)

    def interrupt(self, stable: int) -> bool:
        """Ends the job with the last stable version: a later one could take as long as a clock; whether that is new."""
        self.interrupted = True
        if self._collecting or self.limit <= stable:
            return False
        self.limit = stable
        return True

    def requests(self, epoch: int, owners: Sequence[str], nodes: Iterable[str]) -> Iterator[Send]:
        """Fetches the model from its servers, and its loss from those nodes that have not been asked."""
        if not self._collecting:
            self._collecting = True
            for partition, owner in enumerate(owners):
                yield Send(owner, Collect(epoch, partition, self.limit))
        if not self.interrupted:
            for name in self.final_loss.to_ask(nodes):
                yield Send(name, Evaluate(epoch, self.limit))

    def add(self, event: Collected | Evaluated) -> None:
        """Adds a partition of the model, or a part of its loss."""
        if isinstance(event, Collected):
            self._collected[event.partition] = event.version
        else:
            self.final_loss.add(event)

    def finished(self, partitions: int, tally: Callable[[int], tuple[int, int]]) -> Finished | None:
        """The end of the job, once the model is complete, and so is its loss; `tally` checks versions of a clock."""
        if len(self._collected) < partitions or not (self.interrupted or self.final_loss.complete):
            return None
        versions = tuple(self._collected[partition] for partition in range(partitions))
        return Finished(self.limit, versions, self.final_loss.loss, tally(self.limit))
