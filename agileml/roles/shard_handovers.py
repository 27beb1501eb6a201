"""The shards of a worker that change hands: those that come, and those that it is to give away."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agileml.errors import InvalidTransition
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Adopted, GiveShard, TakeShard
from agileml.roles.chunk_runner import WorkerContext
from agileml.roles.contributions import HeldShards, Remaining
from agileml.roles.work_exchange import Helping
from agileml.work import CountedWork


@dataclass(slots=True)
class ShardHandovers:
    """The shards of a worker. `promised` ones are given away at the end of their clock, to the node
    they name.

    Where workers help each other, a shard waits until nothing of it is lent: in `due` if only for
    that.
    """

    context: WorkerContext
    work: CountedWork
    shards: HeldShards = field(default_factory=HeldShards)
    promised: dict[int, str] = field(default_factory=dict)
    due: dict[int, str] = field(default_factory=dict)

    def begin(self, shards: Mapping[int, Remaining]) -> None:
        """An epoch begins with these shards."""
        self.promised.clear()
        self.due.clear()
        self.shards.restart(shards)

    def handle(self, order: TakeShard | GiveShard, helping: Helping | None) -> None:
        """Takes a shard over, or gives one away, now or once it may leave."""
        if isinstance(order, TakeShard):
            self.shards[order.shard] = Remaining(order.clock, order.chunks).counted(
                order.shard, self.work
            )
            if helping is not None:
                helping.recount()
            adopted = Adopted(self.context.node, self.context.epoch, order.shard)
            self.context.send(CONTROLLER, adopted)
            return

        shard = order.shard
        to = order.to
        if shard not in self.shards:
            if order.now:
                # The order crossed with the shard, which had been promised before.
                return
            raise InvalidTransition(
                f"{self.context.node} is to give shard {shard} to {to}, but does not have it"
            )

        ready = order.now or self.shards[shard].whole(shard, self.work)
        if helping is not None:
            helping.loans.kept_back.add(shard)
            # The later order replaces the earlier one.
            self.promised.pop(shard, None)
            self.due.pop(shard, None)
            # Until nothing of it is lent; see `give_unlent`.
            (self.due if ready else self.promised)[shard] = to
        elif ready:
            self._release(shard, to, None)
        else:
            self.promised[shard] = to

    def give_unlent(self, helping: Helping) -> None:
        """Gives away what was promised, as far as nothing of it is lent."""
        over = [
            (shard, to)
            for shard, to in self.promised.items()
            if self.shards[shard].whole(shard, self.work)
        ]
        for shard, to in [*self.due.items(), *over]:
            if not helping.outstanding(shard):
                self._release(shard, to, helping)

    def give_finished(self, shard: int) -> None:
        """A chunk of a shard is done: gives the shard away if that was promised and the clock is
        over.
        """
        if shard in self.promised and self.shards[shard].whole(shard, self.work):
            self._release(shard, self.promised[shard], None)

    def abandon(self, clock: int) -> None:
        """A clock has been decided: what is not done of it came too late."""
        for shard, left in list(self.shards.items()):
            if left.clock == clock:
                self.shards[shard] = left.counted(shard, self.work)

    def _release(self, shard: int, to: str, helping: Helping | None) -> None:
        self.promised.pop(shard, None)
        if helping is not None:
            self.due.pop(shard, None)
            helping.loans.kept_back.discard(shard)
            helping.recount()
        left = self.shards.pop(shard)
        take_shard = TakeShard(self.context.epoch, shard, left.clock, left.chunks)
        self.context.send(to, take_shard)
