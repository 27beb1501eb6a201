"""All messages of a job, by conversation: updates, partitions, orders, reports.

A node is one machine: it may serve partitions, back them up, and work. A message carries the epoch
in which it was sent: a node drops messages of earlier epochs and keeps those of later epochs until
it has entered them.

Version c of a partition is its state after clock c; version 0 is the initial model.

Every class of this module can be sent (`mailbox.codec`); none is imported from another one.
"""

from dataclasses import dataclass

from agileml import work
from agileml.params.deltas import Delta, Rows
from agileml.params.layout import PartitionState
from agileml.work import ClockCovers, Cover

# -- between workers and servers: contributions to a clock, and parameters -------------------------


@dataclass(frozen=True, slots=True)
class UpdateEntry:
    """Summed updates to one partition: of one chunk (`shard`, `chunk`), or of all covers of its
    push (-1).
    """

    shard: int
    chunk: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class PartitionUpdate:
    """The part of a push that belongs to one partition."""

    partition: int
    entries: tuple[UpdateEntry, ...]


@dataclass(frozen=True, slots=True)
class Push:
    """A worker's contribution to a clock.

    `want` requests the rows that the worker reads of each of these partitions, once it has that
    version (-1: no).
    """

    epoch: int
    worker: str
    clock: int
    covers: tuple[Cover, ...]
    parts: tuple[PartitionUpdate, ...]
    want: int


@dataclass(frozen=True, slots=True)
class Pull:
    """Request a whole partition once it has committed version `at_least`; with `exact`, that
    version and no later one.

    A server that was asked for an exact version has committed it.
    """

    epoch: int
    worker: str
    partition: int
    at_least: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """The rows of a partition that a worker reads, by segment (None: all rows of it); None for the
    whole partition.

    A server that has not received this message sends whole partitions.
    """

    epoch: int
    worker: str
    partition: int
    rows: list[Rows | None] | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of a version that a worker reads; it must treat all other rows as unknown.

    Contributions up to clock `stable` need not be kept any longer.
    """

    epoch: int
    partition: int
    version: int
    stable: int
    values: Delta
    exact: bool = False
    waited: float | None = None
    """How long the worker's push waited at the server until the version was complete; None if not
    timed."""


@dataclass(frozen=True, slots=True)
class TakeShard:
    """From worker to worker: take over a shard, with the chunks of this clock that are left to
    compute.
    """

    epoch: int
    shard: int
    clock: int
    chunks: work.Ranges


# -- between servers: moving, backing up and restoring partitions, and the end of a node -----------


@dataclass(frozen=True, slots=True)
class Tally:
    """Number of chunks that a state contains and the sum of their fingerprints, to detect lost and
    repeated chunks.
    """

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
    """A partition moves to the receiver. Without versions: the receiver is its backup and has been
    sent all of them.

    The sender sends nothing more about this partition, so this is also its end-of-life mark.
    `former`: the nodes that have had the partition in this epoch, the sender last; only they may
    forward what others sent for it.
    """

    epoch: int
    partition: int
    clock: int
    versions: tuple[Version, ...]
    pending: tuple[PendingPush, ...]
    waiting: tuple[Waiting, ...]
    backup: str
    stamped: int
    former: tuple[str, ...] = ()


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


# -- from the controller to nodes ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """Server and backup of each partition, and worker of each shard; an empty name: none."""

    version: int
    owners: tuple[str, ...]
    backups: tuple[str, ...]
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recover:
    """Start a new epoch: return to version `clock` and continue with this table. A job starts with
    one, too.

    `sources` says where that version of each partition is: on a node, `init` or `checkpoint`.
    `decided`: the chunks of later clocks about which the controller has decided.
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
    """Hand this partition over to `to`. `backup` keeps its copy from then on; an empty name:
    none."""

    epoch: int
    partition: int
    to: str
    backup: str


@dataclass(frozen=True, slots=True)
class GiveShard:
    """Give this shard to another worker: with `now` after the current chunk, else after the current
    clock.
    """

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
    """The last clock is done: compute the loss of this version, on this node's shards, also those
    assigned later.
    """

    epoch: int
    clock: int


@dataclass(frozen=True, slots=True)
class Drain:
    """The node holds nothing any more: make sure that no message is in flight between it and these
    peers.
    """

    epoch: int
    peers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Leave:
    """End the node; `lost`: the controller has given the node up, which may hang and not read
    this."""

    reason: str
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Collect:
    """Send this version of a partition to the controller."""

    epoch: int
    partition: int
    clock: int


# -- from nodes to the controller ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GradientSums:
    """Sums over the contributions to a clock, as a partition's server saw them.

    `weighted_squares`: the squared norm of each, divided by its items; `square`: the squared norm
    of their sum; `along`: the inner product of their sum with that of the clock before, or None
    where the server did not see that.
    """

    contributions: int
    weighted_squares: float
    square: float
    along: float | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """A node introduces itself, also to a restarted controller: its code, and each (partition,
    version) it holds.
    """

    node: str
    reliable: bool
    code: str
    epoch: int = 0
    stable: int = 0
    holds: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """Code and data are loaded; the node can join the epoch."""

    node: str


UNKNOWN_STEP = -1.0
"""The usual step of a node that has not finished one, or that is loading data."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The node is alive; its last progress was `stalled` seconds ago, and a step usually takes
    `usual_step` seconds.

    `unreported`: chunks that it has done for a clock that it has not finished, and that would be
    lost with it. Sent by the node's heartbeat process, whatever the node itself is doing.
    """

    node: str
    stalled: float = 0.0
    usual_step: float = 0.0
    unreported: int = 0


@dataclass(frozen=True, slots=True)
class Warned:
    """Eviction warning: the node is taken away in `seconds`."""

    node: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Restored:
    """The node has its partitions at the version that the epoch starts from."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """A partition has a new version on this node; bytes were sent for it to workers and its backup
    since the last.

    `sums` are those of its contributions, in a job with backup workers.
    """

    node: str
    epoch: int
    partition: int
    clock: int
    backup: bool
    pulled_bytes: int = 0
    backup_bytes: int = 0
    sums: GradientSums | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A partition that moved has arrived at this node."""

    node: str
    epoch: int
    partition: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A shard that moved has arrived at this node."""

    node: str
    epoch: int
    shard: int


@dataclass(frozen=True, slots=True)
class Routed:
    """The node uses this version of the table."""

    node: str
    epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Every peer has answered the node's end-of-life mark."""

    node: str
    epoch: int


@dataclass(frozen=True, slots=True)
class WorkDone:
    """A node's work in a clock: chunks, seconds, bytes sent, and its part of the loss of the model
    before the clock.
    """

    node: str
    epoch: int
    clock: int
    chunks: int
    seconds: float
    pushed_bytes: int
    loss_sum: float
    loss_count: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The loss of the last version over a shard's part of the sample, as a sum, and the size of
    that part.
    """

    node: str
    epoch: int
    clock: int
    shard: int
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
    """The answer to `Collect`."""

    node: str
    epoch: int
    partition: int
    version: Version


@dataclass(frozen=True, slots=True)
class Broken:
    """The job cannot continue; `message` says why."""

    node: str
    message: str


@dataclass(frozen=True, slots=True)
class Unlinked:
    """From a node to the controller: its link to a peer broke, or it does not get one.

    With `misconduct`, the node has closed the link, because the peer broke the rules.
    """

    node: str
    peer: str
    reason: str
    misconduct: bool = False


@dataclass(frozen=True, slots=True)
class ServerTimed:
    """To the controller: a node's exchange with a server in a clock, there and back, without
    waiting for others.
    """

    node: str
    epoch: int
    server: str
    sent_bytes: int
    seconds: float


# -- that leave late work out of a clock, with backup workers, and that clip updates ---------------


@dataclass(frozen=True, slots=True)
class Contributed:
    """To the controller: these chunks of a clock that is not decided yet are on their way to the
    servers.
    """

    node: str
    epoch: int
    clock: int
    covers: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class Accept:
    """From the controller: these chunks make up the clock. Workers abandon the others, and servers
    drop them.
    """

    epoch: int
    clock: int
    covers: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class SquareOfPart:
    """To the controller: the squared norm of all updates of a clock to a partition, which waits for
    `SquareOfAll`.
    """

    node: str
    epoch: int
    partition: int
    clock: int
    square: float


@dataclass(frozen=True, slots=True)
class SquareOfAll:
    """From the controller: the squared norm of all updates of a clock, by which they are
    clipped."""

    epoch: int
    clock: int
    square: float


# -- between workers that lend each other work -----------------------------------------------------
# Links keep their order, so the number of an assignment does what the papers use timestamps for: a
# cancellation cannot overtake the assignment that it cancels.


@dataclass(frozen=True, slots=True)
class HelpGroup:
    """From the controller: the workers that the receiver may help, to which it reports its
    progress.
    """

    epoch: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A worker has done `progress` clocks, counting the part of the current one, when its timer
    showed `timer`.

    At the speed of its last chunk a clock takes it `pace` seconds of work; 0: another report
    follows at its end.
    """

    epoch: int
    worker: str
    progress: float
    timer: float
    pace: float


@dataclass(frozen=True, slots=True)
class DoThis:
    """Do these chunks for `worker`, unless it cancels this assignment before they are begun."""

    epoch: int
    worker: str
    number: int
    clock: int
    covers: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class BegunHelping:
    """The first chunk of an assignment is being computed: it can no longer be cancelled."""

    epoch: int
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class CancelHelp:
    """Do not begin this assignment. `HelpEnded` answers, so that both sides agree on what was
    done."""

    epoch: int
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class HelpEnded:
    """An assignment is over. The chunks in `left` were not done, and are the owner's again; mostly
    none or all.
    """

    epoch: int
    worker: str
    number: int
    left: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class Helped:
    """To the controller: what a node has done for others in a clock, for the iteration log."""

    node: str
    epoch: int
    clock: int
    items: int
    seconds: float
