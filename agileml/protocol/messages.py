"""What nodes and the controller say to each other.

A node is one machine: it may serve partitions, back them up, and work. Every message between nodes carries the epoch in
which it was sent: what belongs to an epoch that is over is dropped, what belongs to one not yet heard of waits.

Version c of a partition is its state after clock c; version 0 is the initial model. A cover `(shard, first, last)`
names the chunks first..last-1 of a shard in a clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from agileml.params.deltas import Delta, Rows
from agileml.params.layout import State

Cover = tuple[int, int, int]
"""Shard, first chunk, one past the last chunk."""


# -- from node to node ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """Summed updates to one partition: of one chunk (`shard`, `chunk`), or of all covers of its push (-1)."""

    shard: int
    chunk: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Part:
    """What a push brings to one partition."""

    partition: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Push:
    """A worker's contribution to a clock. `want` asks for what it reads of each partition in that version (-1: no)."""

    epoch: int
    worker: str
    clock: int
    covers: tuple[Cover, ...]
    parts: tuple[Part, ...]
    want: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Ask for a whole partition, once it has committed `at_least`."""

    epoch: int
    worker: str
    partition: int
    at_least: int


@dataclass(frozen=True, slots=True)
class Reads:
    """A worker's reads of a partition: the rows of each segment, None for all of them; without any, the whole.

    Whoever has not been told sends whole partitions.
    """

    epoch: int
    worker: str
    partition: int
    rows: list[Rows | None] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Values of a version for a worker: of the rows that it reads. All others it must take to be unknown.

    `stable` tells it which contributions it need no longer keep.
    """

    epoch: int
    partition: int
    version: int
    stable: int
    values: Delta


@dataclass(frozen=True, slots=True)
class Tally:
    """How many chunks a state contains, and the sum of their fingerprints: none is missing, none is there twice."""

    chunks: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Version:
    """A partition's committed state after a clock."""

    clock: int
    tally: Tally
    state: State


@dataclass(frozen=True, slots=True)
class PendingPush:
    """A contribution to a clock that is not complete yet, as it is handed over with its partition."""

    worker: str
    clock: int
    covers: tuple[Cover, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A worker that waits for a version: for the whole of it, or for the rows that it reads."""

    worker: str
    at_least: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition moves. Without versions the receiver is its backup and has been sent every one of them.

    It is the end-of-life mark of the sender for this partition: nothing of it comes from there again.
    """

    epoch: int
    partition: int
    clock: int
    versions: tuple[Version, ...]
    pending: tuple[PendingPush, ...]
    waiting: tuple[Waiting, ...]
    backup: str
    stamped: int


@dataclass(frozen=True, slots=True)
class Patch:
    """Values of the rows that changed between versions `base` and `clock`; base -1: all rows. For the backup."""

    epoch: int
    partition: int
    base: int
    clock: int
    tally: Tally
    values: Delta


@dataclass(frozen=True, slots=True)
class NeedVersion:
    """After a roll-back: send me this partition at the version everyone went back to."""

    epoch: int
    node: str
    partition: int
    clock: int


@dataclass(frozen=True, slots=True)
class Restore:
    """The version that was asked for."""

    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class TakeShard:
    """Work on this shard is yours, from this chunk of this clock on."""

    epoch: int
    shard: int
    clock: int
    chunk: int


@dataclass(frozen=True, slots=True)
class EndOfLife:
    """Nothing comes after this from me."""

    epoch: int
    node: str


@dataclass(frozen=True, slots=True)
class EndOfLifeSeen:
    """Everything you sent before your end-of-life mark has arrived."""

    epoch: int
    node: str


# -- from the controller to nodes -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """Who serves, who backs up, who works: by partition, by partition, by shard. An empty name: nobody."""

    version: int
    owners: tuple[str, ...]
    backups: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recover:
    """A new epoch: everyone goes back to version `clock` and goes on by this table. The start of a job is one, too.

    `sources` names who has that version of each partition: a node, `init` or `checkpoint`.
    """

    epoch: int
    clock: int
    table: Table
    sources: tuple[str, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Enter:
    """A node that is ready is taken in; from here on it can be given shards and partitions."""

    epoch: int
    table: Table
    limit: int
    stable: int


@dataclass(frozen=True, slots=True)
class Route:
    """Owners or backups have changed."""

    epoch: int
    table: Table


@dataclass(frozen=True, slots=True)
class Move:
    """Hand this partition over. `backup` keeps its copy from then on; an empty name: nobody."""

    epoch: int
    partition: int
    to: str
    backup: str


@dataclass(frozen=True, slots=True)
class GiveShard:
    """Give this shard to another worker; `now`: between two chunks, else between two clocks."""

    epoch: int
    shard: int
    to: str
    now: bool


@dataclass(frozen=True, slots=True)
class Stable:
    """Every partition has this version on reliable nodes: nobody will go back further."""

    epoch: int
    clock: int
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """Work on no later clock than this."""

    epoch: int
    clock: int


@dataclass(frozen=True, slots=True)
class Drain:
    """You hold nothing any more: see that nothing is under way from you or to you. `peers` are those who are there."""

    epoch: int
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """Go."""

    reason: str


@dataclass(frozen=True, slots=True)
class Collect:
    """Send this partition's version to me."""

    epoch: int
    partition: int
    clock: int


# -- from nodes to the controller -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """A node is there, or is asked who it is again: the version of its code, and the (partition, version) it holds."""

    node: str
    reliable: bool
    code: str
    epoch: int = 0
    stable: int = 0
    holds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """Code and data are loaded; the node can be taken in."""

    node: str


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Still there."""

    node: str


@dataclass(frozen=True, slots=True)
class Warned:
    """This node will be taken away in so many seconds."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Restored:
    """This node has taken up the epoch: its partitions are there."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Progress:
    """A partition has a new version here; and the bytes sent for it to workers and to its backup since the last one."""

    node: str
    epoch: int
    partition: int
    clock: int
    backup: bool
    pulled_bytes: int = 0
    backup_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that moved has arrived."""

    node: str
    epoch: int
    partition: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A shard that moved has arrived."""

    node: str
    epoch: int
    shard: int


@dataclass(frozen=True, slots=True)
class Routed:
    """The table is in use."""

    node: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Everyone has seen my end-of-life mark."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What a node did for a clock: chunks, seconds of work, bytes sent, and its part of the loss before the clock."""

    node: str
    epoch: int
    clock: int
    chunks: int
    seconds: float
    pushed_bytes: int
    loss_sum: float
    loss_count: int


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint of this partition is on disk."""

    node: str
    epoch: int
    partition: int
    clock: int


@dataclass(frozen=True, slots=True)
class Collected:
    """The version that was asked for."""

    node: str
    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class Broken:
    """The job cannot go on, and why."""

    node: str
    message: str
