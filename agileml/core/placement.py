"""Placement: which node serves, backs up and works on what, in each stage. Pure: from the current
to the target table.

Stage 1 serves from reliable nodes; stage 2 from half of the transient nodes, with backups on
reliable nodes; stage 3 is stage 2 without work on reliable nodes (section 4.2.2 of the
dissertation).
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from agileml.core.members import Members
from agileml.policies.stage import NodesChanged, TrainingPolicy, TrainingReport
from agileml.protocol.messages import Table


@dataclass(frozen=True, slots=True)
class Footprint:
    """Active nodes, longest running first. `speeds` are relative to a node that is not named, whose
    speed is 1.
    """

    reliable: tuple[str, ...]
    transient: tuple[str, ...]
    speeds: Mapping[str, float] = field(default_factory=dict)


def target_table(
    footprint: Footprint,
    stage: int,
    now: Table,
    previous: Mapping[int, Sequence[str]],
    partition_bytes: Sequence[int],
    placed: Sequence[str] = (),
    more: int = 0,
) -> Table:
    """The table to aim for, with as few changes as balance allows.

    `previous` names the earlier workers of a shard, the latest last: they still have its data.
    `placed` are the servers that a policy chose, which holds for those that may serve, `more` of
    them than usual.
    """
    speeds = footprint.speeds
    preferred: dict[int, list[str]] = {}
    if stage == 1 or not footprint.transient:
        # The backup has the partition already.
        preferred = {partition: [name] for partition, name in enumerate(now.backups) if name}
    usual = may_serve(footprint, stage, len(now.owners))
    owners = balance(now.owners, usual, preferred, partition_bytes, speeds)

    if placed:
        servers = set(may_serve(footprint, stage, len(owners), more))
        owners = tuple(
            wish if wish in servers else owner for wish, owner in zip(placed, owners, strict=True)
        )

    backups: tuple[str, ...] = ("",) * len(owners)
    if stage != 1 and footprint.reliable:
        # A reliable node that served the partition keeps what it has.
        served = {partition: [owner] for partition, owner in enumerate(now.owners)}
        backups = balance(now.backups, footprint.reliable, served, partition_bytes, speeds)

    hosts = (
        footprint.transient
        if stage == 3 and footprint.transient
        else footprint.reliable + footprint.transient
    )

    latest_first = {shard: list(reversed(names)) for shard, names in previous.items()}
    workers = balance(now.workers, hosts, latest_first, [1] * len(now.workers), speeds)
    leveled = level(workers, hosts, set(owners), latest_first, speeds)
    return Table(now.version, owners, backups, leveled)


@dataclass(slots=True)
class Stages:
    """The stage that the policy proposes. With `uneven`, every second node counts as faster than
    the node is.
    """

    policy: TrainingPolicy
    uneven: float = 0.0
    stage: int = 0
    footprint: Footprint = field(default_factory=lambda: Footprint((), ()))
    """The active nodes; the policy has seen them."""
    _seen: int = -1
    """The value of `members.changes` that the footprint was made from."""

    def observe_nodes(self, members: Members) -> list[str]:
        """Reports the active nodes to the policy, if they have changed; returns its reasons."""
        if self._seen == members.changes:
            return []
        self._seen = members.changes
        reliable = members.active(reliable=True)
        transient = members.active(reliable=False)
        faster = [name for name in reliable + transient if self.uneven and members[name].rank % 2]
        speeds = dict.fromkeys(faster, self.uneven / (1 - self.uneven))
        self.footprint = Footprint(tuple(reliable), tuple(transient), speeds)
        return self.observe(NodesChanged(len(reliable), len(transient)))

    def observe(self, report: TrainingReport) -> list[str]:
        """Accepts every proposal of the policy; returns the reasons of those that come with one,
        for the log.
        """
        self.policy, proposals = self.policy.observe(report)
        reasons = []
        for proposal in proposals:
            before = self.stage
            self.stage = proposal.stage
            if proposal.reason:
                change = "stays" if self.stage == before else f"after stage {before}"
                reasons.append(f"stage {self.stage} {change}: {proposal.reason}")
        return reasons

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"learned": self.policy.record()}

    def restore(self, record: Mapping[str, Any], members: Members) -> list[str]:
        """Takes over what the policy of an earlier controller has learned; returns its reasons."""
        self.policy = self.policy.restored(record["learned"])
        self._seen = -1
        return self.observe_nodes(members)


_HALF_ITEM = 0.5
"""How much less a server's items weigh in all: of two hosts that differ by one item, the server
should have more."""


def may_serve(footprint: Footprint, stage: int, partitions: int, more: int = 0) -> tuple[str, ...]:
    """The nodes that may serve in a stage, with `more` transient ones than usual.

    In stages 2 and 3 these are the longest running half of the transient nodes, at most one per
    partition.
    """
    if stage == 1 or not footprint.transient:
        return footprint.reliable
    return footprint.transient[: max(1, min(partitions, -(-len(footprint.transient) // 2) + more))]


def balance(
    current: Sequence[str],
    hosts: Sequence[str],
    preferred: Mapping[int, Sequence[str]],
    weights: Sequence[int],
    speeds: Mapping[str, float],
) -> tuple[str, ...]:
    """Items over hosts: where they are, else where preferred, else where they finish first.

    Each host's fair share of the weight is proportional to its speed. An item stays, or goes to a
    preferred host, if the host then has less than its share and the heaviest item together; of
    equal items over equally fast hosts that is ceil(items / hosts).
    """
    if not hosts:
        return ("",) * len(current)

    weight = [max(1, size) for size in weights]
    rates = {host: speeds.get(host, 1.0) for host in hosts}
    # An item that goes where it finishes first leaves its host below this, so that balanced items
    # stay. Half a share of the heaviest item on top: items whose weights hardly differ count as
    # equal.
    limit = (sum(weight) + max(weight, default=1) * (len(hosts) - 0.5)) / sum(rates.values())
    most = {host: limit * rate for host, rate in rates.items()}
    load = dict.fromkeys(hosts, 0)
    places = [""] * len(current)

    def place(item: int, host: str) -> None:
        places[item] = host
        load[host] += weight[item]

    def fits(item: int, host: str) -> bool:
        return host in load and load[host] + weight[item] < most[host]

    for item, host in enumerate(current):
        if fits(item, host):
            place(item, host)

    for item in sorted(
        (item for item, host in enumerate(places) if not host), key=lambda item: -weight[item]
    ):
        wished = (host for host in preferred.get(item, ()) if fits(item, host))
        place(
            item,
            next(wished, "")
            or min(hosts, key=lambda host: (load[host] + weight[item]) / rates[host]),
        )

    return tuple(places)


def level(
    places: Sequence[str],
    hosts: Sequence[str],
    servers: Container[str],
    preferred: Mapping[int, Sequence[str]],
    speeds: Mapping[str, float],
) -> tuple[str, ...]:
    """Equal items of balanced hosts, moved from those that finish last to those that finish first.

    Balance alone lets most hosts keep as many items as the busiest may have, and leaves few to the
    others: all of the former then finish, and send, at the same time. Where some have one more than
    others, those are servers, if possible: of what their own work reads and updates, their part
    does not travel. Hosts that differ by less stay as they are, also if their measured speeds
    waver.
    """
    leveled = list(places)
    held = {host: list[int]() for host in hosts}
    for item, host in enumerate(places):
        if host:
            held[host].append(item)

    def finish(number: int, more: float = 0.0) -> float:
        host = hosts[number]
        return (len(held[host]) + more - (_HALF_ITEM if host in servers else 0.0)) / speeds.get(
            host, 1.0
        )

    first = [(finish(number), number) for number in range(len(hosts))]
    last = [(-at, number) for at, number in first]
    heapify(first)
    heapify(last)

    while hosts:
        giver = _top(last, lambda number: -finish(number))
        taker = _top(first, finish)
        if finish(taker, 1 + _HALF_ITEM) > finish(giver):
            break
        wished = [item for item in held[hosts[giver]] if hosts[taker] in preferred.get(item, ())]
        item = (wished or held[hosts[giver]])[-1]
        held[hosts[giver]].remove(item)
        held[hosts[taker]].append(item)
        leveled[item] = hosts[taker]
        for number in (giver, taker):
            heappush(first, (finish(number), number))
            heappush(last, (-finish(number), number))

    return tuple(leveled)


def _top(heap: list[tuple[float, int]], key: Callable[[int], float]) -> int:
    """The number on top of a heap, whose outdated entries are dropped."""
    while heap[0][0] != key(heap[0][1]):
        heappop(heap)
    return heap[0][1]
