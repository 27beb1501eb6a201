"""Messages from the controller to nodes."""

from dataclasses import dataclass

from agileml.work.counted import ClockCovers


@dataclass(frozen=True, slots=True)
class Table:
    """Server and backup of each partition, and worker of each shard; an empty name: none."""

    version: int
    owners: tuple[str, ...]
    backups: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recover:
    """Start a new epoch: return to version `clock` and continue with this table. A job starts with one, too.

    `sources` says where that version of each partition is: on a node, `init` or `checkpoint`. `decided`: the chunks of
    later clocks about which the controller has decided.
    """

    epoch: int
    clock: int
    table: Table
    sources: tuple[str, ...]
    limit: int
    decided: tuple[ClockCovers, ...] = ()


@dataclass(frozen=True, slots=True)
class Enter:
    """The node joins the epoch; from now on it can receive shards and partitions."""

    epoch: int
    table: Table
    limit: int
    stable: int
    decided: tuple[ClockCovers, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """Owners or backups have changed."""

    epoch: int
    table: Table


@dataclass(frozen=True, slots=True)
class Move:
    """Hand this partition over to `to`. `backup` keeps its copy from then on; an empty name: none."""

    epoch: int
    partition: int
    to: str
    backup: str


@dataclass(frozen=True, slots=True)
class GiveShard:
    """Give this shard to another worker: with `now` after the current chunk, else after the current clock."""

    epoch: int
    shard: int
    to: str
    now: bool


@dataclass(frozen=True, slots=True)
class Stable:
    """Every partition has this version on reliable nodes: no rollback goes behind it."""

    epoch: int
    clock: int
    checkpoint: bool


@dataclass(frozen=True, slots=True)
class Limit:
    """Work on no clock after this one."""

    epoch: int
    clock: int


@dataclass(frozen=True, slots=True)
class Evaluate:
    """The last clock is done: compute the loss of this version, on this node's shards, also those assigned later."""

    epoch: int
    clock: int


@dataclass(frozen=True, slots=True)
class Drain:
    """The node holds nothing any more: make sure that no message is in flight between it and these peers."""

    epoch: int
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """End the node; `lost`: the controller has given the node up, which may hang and not read this."""

    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Collect:
    """Send this version of a partition to the controller."""

    epoch: int
    partition: int
    clock: int
