"""Messages between servers: moving, backing up and restoring partitions, and the end of a node."""

from dataclasses import dataclass

from agileml.params.deltas import Delta
from agileml.params.layout import PartitionState
from agileml.protocol.updates import UpdateEntry
from agileml.work.covers import Cover


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of chunks that a state contains and the sum of their fingerprints, to detect lost and repeated chunks."""

    chunks: int
    fingerprint: int


@dataclass(frozen=True, slots=True)
class Version:
    """A partition's committed state after a clock."""

    clock: int
    tally: Tally
    state: PartitionState


@dataclass(frozen=True, slots=True)
class PendingPush:
    """Contributions to an incomplete clock, handed over with their partition."""

    worker: str
    clock: int
    covers: tuple[Cover, ...]
    entries: tuple[UpdateEntry, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A worker that waits for a version: the whole partition, or only the rows that it reads."""

    worker: str
    at_least: int
    whole: bool


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition moves to the receiver. Without versions: the receiver is its backup and has been sent all of them.

    The sender sends nothing more about this partition, so this is also its end-of-life mark.
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
    """To the backup: rows that changed between versions `base` and `clock`; base -1: all rows."""

    epoch: int
    partition: int
    base: int
    clock: int
    tally: Tally
    values: Delta


@dataclass(frozen=True, slots=True)
class NeedVersion:
    """After a rollback: request this partition at the version that the epoch starts from."""

    epoch: int
    node: str
    partition: int
    clock: int


@dataclass(frozen=True, slots=True)
class Restore:
    """The answer to `NeedVersion`."""

    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class EndOfLife:
    """This node sends nothing after this message."""

    epoch: int
    node: str


@dataclass(frozen=True, slots=True)
class EndOfLifeSeen:
    """Everything that the receiver sent before its end-of-life mark has arrived here."""

    epoch: int
    node: str
