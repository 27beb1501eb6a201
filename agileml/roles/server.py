"""The parameter server of a node: ParamServ, ActivePS or BackupPS, partition by partition.

The owner of a partition is its ParamServ if it is a reliable node and its ActivePS if it is a
transient node. An ActivePS sends the changes of each clock to the BackupPS, which keeps a copy on a
reliable node.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from agileml.core.recovery import CHECKPOINT, INIT
from agileml.errors import InvalidTransition
from agileml.params.deltas import nbytes
from agileml.params.reads import picked
from agileml.protocol.actions import CONTROLLER, Action, Fetch, Save, Send
from agileml.protocol.messages import (
    Accept,
    Collect,
    Collected,
    Enter,
    Handover,
    Move,
    NeedVersion,
    PartitionProgress,
    PartitionUpdate,
    Patch,
    PendingPush,
    Pull,
    Push,
    Reads,
    Recover,
    Restore,
    Snapshot,
    SquareOfAll,
    SquareOfPart,
    Stable,
    Table,
    Taken,
    Version,
)
from agileml.roles.partitions import (
    NOTHING,
    Commit,
    PartitionOutcome,
    ServedPartition,
    ServingRules,
    keep_from,
)
from agileml.roles.server_parts import (
    BackupPartition,
    Backups,
    Holder,
    InTransit,
    PartitionMessage,
    Place,
    Restoring,
    WorkerTraffic,
)


class Server:
    """All partitions of one node. Messages go in, actions come out through `out`."""

    def __init__(
        self,
        node: str,
        rules: ServingRules,
        initial: Callable[[int], Version],
        out: list[Action],
        timer: Callable[[], float] | None = None,
    ) -> None:
        self.node = node
        self.rules = rules
        self.out = out
        self.epoch = 0
        self.stable = 0
        self.served: dict[int, ServedPartition] = {}
        self.backups = Backups()
        self.transit = InTransit()
        self.restoring = Restoring(initial)
        self.traffic = WorkerTraffic(timer)

    def holds(self) -> tuple[tuple[int, int], ...]:
        """Every version on this node, as (partition, clock)."""
        held = {(partition, version.clock) for partition, version in self.restoring.former.items()}
        held.update(
            (holder.partition, clock) for holder in self._holders() for clock in holder.versions
        )
        return tuple(sorted(held))

    def _holders(self) -> list[Holder]:
        return [
            *self.served.values(),
            *self.backups.copies.values(),
            *self.transit.shadows.values(),
        ]

    # -- contributions and reads -------------------------------------------------------------------

    def push(self, message: Push) -> None:
        """Adds a contribution; parts whose partition has moved away are forwarded."""
        elsewhere: dict[str, list[PartitionUpdate]] = {}
        if message.want >= 0 and self.traffic.timer is not None:
            self.traffic.pushed[message.worker] = self.traffic.timer()
        for part in message.parts:
            served = self.served.get(part.partition)
            if served is not None:
                outcome = served.push(message, part)
                if outcome is not NOTHING:
                    self._act(served, outcome)
            elif NOT_SERVED[self._place(part.partition)][Push] is Server._keep:
                self.transit.early.append(replace(message, parts=(part,)))
            else:
                elsewhere.setdefault(self._new_owner(part.partition), []).append(part)

        for owner, parts in elsewhere.items():
            self.out.append(Send(owner, replace(message, parts=tuple(parts))))

    def pull(self, message: Pull) -> None:
        """Answers a request as soon as the version is committed."""
        served = self.served.get(message.partition)
        if served is None:
            self._pass_on(message)
        elif message.exact:
            values = served.exact(message.at_least)
            snapshot = Snapshot(
                self.epoch, served.partition, message.at_least, self.stable, values, exact=True
            )
            self.out.append(Send(message.worker, snapshot))
        else:
            self._act(served, served.pull(message.worker, message.at_least))

    def set_reads(self, message: Reads) -> None:
        """From now on the worker is sent only the rows it reads, unless it requests the whole
        partition.
        """
        served = self.served.get(message.partition)
        if served is None:
            self._pass_on(message)
        else:
            served.readers.rows[message.worker] = message.rows

    def collect(self, message: Collect) -> None:
        """Sends a version to the controller."""
        served = self.served.get(message.partition)
        if served is None:
            self._pass_on(message)
            return
        collected = Collected(
            self.node, self.epoch, message.partition, served.versions[message.clock]
        )
        self.out.append(Send(CONTROLLER, collected))

    def accept(self, message: Accept) -> None:
        """From now on it is known what makes up a clock, which may be complete with that."""
        self.rules.work.decide([(message.clock, message.covers)])
        for served in self.served.values():
            self._act(served, served.advance())

    def take_square(self, message: SquareOfAll) -> None:
        """From now on it is known by how much the updates of a clock are clipped."""
        self.rules.squares[message.clock] = message.square
        for served in self.served.values():
            self._act(served, served.advance())

    def forget(self, worker: str) -> None:
        """Forgets what a leaving worker reads."""
        for served in self.served.values():
            served.readers.rows.pop(worker, None)
        self.traffic.pushed.pop(worker, None)

    # -- messages for partitions that are not served here ------------------------------------------

    def _place(self, partition: int) -> Place:
        if partition in self.restoring.awaited or partition in self.transit.arriving:
            return Place.COMING
        if partition in self.transit.forward:
            return Place.MOVED
        return Place.UNKNOWN

    def _pass_on(self, message: Pull | Reads | Collect) -> None:
        NOT_SERVED[self._place(message.partition)][type(message)](self, message)

    def _keep(self, message: PartitionMessage) -> None:
        self.transit.early.append(message)

    def _forward(self, message: Pull | Reads | Collect) -> None:
        self.out.append(Send(self._new_owner(message.partition), message))

    def _new_owner(self, partition: int) -> str:
        owner = self.transit.forward.get(partition)
        if owner is None:
            raise InvalidTransition(
                f"{self.node} received a message for partition {partition}, which it never had in "
                "this epoch"
            )
        return owner

    # -- what follows from a message to a partition ------------------------------------------------

    def _act(self, served: ServedPartition, outcome: PartitionOutcome) -> None:
        """Sends what follows: changes to the backup, reports to the controller, and values to
        workers.
        """
        for commit in outcome.commits:
            sent = self._patch(served, commit) if served.backup else 0
            pulled = self.traffic.pulled.pop(served.partition, 0)
            report = (served.partition, commit.version.clock, False, pulled, sent, commit.sums)
            progress = PartitionProgress(self.node, self.epoch, *report)
            self.out.append(Send(CONTROLLER, progress))

        for clock, square in outcome.squares:
            square_of_part = SquareOfPart(self.node, self.epoch, served.partition, clock, square)
            self.out.append(Send(CONTROLLER, square_of_part))

        if outcome.commits and not served.backup:
            keep_from(served.versions, self.stable)
        if outcome.replies:
            total = 0
            timer = self.traffic.timer
            pushed = self.traffic.pushed
            last = None
            size = 0
            for worker, values in outcome.replies:
                if values is not last:
                    last = values
                    size = nbytes(values)
                total += size
                waited = (
                    timer() - pushed[worker] if timer is not None and worker in pushed else None
                )
                snapshot = Snapshot(
                    self.epoch, served.partition, served.clock, self.stable, values, waited=waited
                )
                self.out.append(Send(worker, snapshot))
            self.traffic.pulled[served.partition] = (
                self.traffic.pulled.get(served.partition, 0) + total
            )

    def _patch(self, served: ServedPartition, commit: Commit) -> int:
        """Sends the changes of a clock to the backup; returns their size."""
        version = commit.version
        served.stamped = version.clock
        patch = Patch(
            self.epoch,
            served.partition,
            version.clock - 1,
            version.clock,
            version.tally,
            commit.changed,
        )

        self.out.append(Send(served.backup, patch))
        return nbytes(patch.values)

    # -- copies ------------------------------------------------------------------------------------

    def patch(self, message: Patch) -> None:
        """Adds the changes of a clock to a backup."""
        self._report(message.partition, self.backups.add(message), backup=True)
        handover = self.transit.arriving.pop(message.partition, None)
        if handover is not None:
            self.take_over(handover)
            self._replay_early()

    def set_stable(self, message: Stable) -> None:
        """Forgets the versions before this one, and saves a checkpoint of it if the message says
        so.
        """
        self.stable = max(self.stable, message.clock)
        self.rules.work.forget_until(self.stable)
        for clock in [clock for clock in self.rules.squares if clock <= self.stable]:
            del self.rules.squares[clock]
        self.restoring.former.clear()

        for holder in self._holders():
            # The copy on reliable storage is written: that of the backup, or of the owner if there
            # is none.
            served = self.served.get(holder.partition)
            is_reliable = isinstance(holder, BackupPartition) or (
                served is not None and not served.backup
            )
            if message.checkpoint and is_reliable and message.clock in holder.versions:
                save = Save(self.epoch, holder.partition, holder.versions[message.clock])
                self.out.append(save)
            if holder.versions:
                keep_from(holder.versions, self.stable)

        # A former backup keeps its versions until a later one is stable, as a rollback may need
        # them.
        backups = self.backups
        for partition in list(backups.dismissed):
            if max(backups.copies[partition].versions, default=-1) < self.stable:
                backups.dismissed.discard(partition)
                del backups.copies[partition]

    # -- moving ------------------------------------------------------------------------------------

    def move(self, message: Move) -> None:
        """Hands a partition over; later messages for it are forwarded."""
        served = self.served.pop(message.partition)
        to_backup = message.to == served.backup and served.stamped >= 0
        versions = () if to_backup else tuple(served.versions[at] for at in sorted(served.versions))
        pending: list[PendingPush] = []
        for clock, contributions in sorted(served.pending.items()):
            pending += contributions.handed_over(clock)
        waiting = tuple(each for group in served.readers.waiting.values() for each in group)
        stamped = served.clock if message.backup == self.node else served.stamped
        former = (*self.transit.former.get(message.partition, ()), self.node)
        handover = Handover(
            self.epoch,
            served.partition,
            served.clock,
            versions,
            tuple(pending),
            waiting,
            message.backup,
            stamped,
            former,
        )

        self.transit.forward[served.partition] = message.to
        self.out.append(Send(message.to, handover))
        if message.backup == self.node:
            self.backups.copies[served.partition] = BackupPartition(
                served.partition, dict(served.versions)
            )
            self._report(served.partition, [served.clock], backup=True)
        else:
            self.transit.shadows[served.partition] = served

    def take_over(self, message: Handover) -> None:
        """Serves a partition from now on, once the patches it builds on are here."""
        self.transit.former[message.partition] = message.former
        copy = self.backups.copies.get(message.partition)
        versions = {version.clock: version for version in message.versions}
        if not versions and copy is not None:
            versions = copy.versions

        if message.clock not in versions:
            # The last patches may come from an earlier owner, over another link.
            self.transit.arriving[message.partition] = message
            return

        # The partition is served here from now on.
        self.backups.copies.pop(message.partition, None)
        self.backups.dismissed.discard(message.partition)
        self.transit.forward.pop(message.partition, None)
        self.transit.shadows.pop(message.partition, None)
        served = ServedPartition(
            message.partition, self.rules, versions, message.clock, message.backup, message.stamped
        )
        self.served[message.partition] = served
        taken = Taken(self.node, self.epoch, message.partition)
        self.out.append(Send(CONTROLLER, taken))

        # With the workers that waited for it, and the contributions to it.
        for waiter in message.waiting:
            served.readers.wait(waiter)
        for pending in message.pending:
            served.contribute(pending.clock, pending.covers, pending.entries)
        self._act(served, served.advance())

    def reroute(self, table: Table) -> None:
        """Applies new routes: forgets what is no longer needed here and brings new backups up to
        date.
        """
        self.transit.reroute(table, self.node)

        backups = self.backups
        for partition, backup in enumerate(table.backups):
            if backup == self.node:
                backups.appointed.add(partition)
                backups.dismissed.discard(partition)
            elif partition in backups.appointed:
                # Patches may arrive before the routes that make this node a backup: only a former
                # backup is dismissed.
                backups.appointed.discard(partition)
                if partition in backups.copies:
                    backups.dismissed.add(partition)

        for served in self.served.values():
            backup = table.backups[served.partition]
            if table.owners[served.partition] == self.node and backup != served.backup:
                served.backup = backup
                served.stamped = -1
                if backup:
                    # It needs every version to which a rollback may lead.
                    for clock, version in sorted(served.versions.items()):
                        whole = picked(version.state, None)
                        patch = Patch(self.epoch, served.partition, -1, clock, version.tally, whole)
                        self.out.append(Send(backup, patch))
                    served.stamped = served.clock

    # -- rollback ----------------------------------------------------------------------------------

    def enter(self, message: Enter) -> None:
        """Joins an epoch that has begun."""
        self.epoch = message.epoch
        self.stable = message.stable
        self.rules.squares.clear()
        self.rules.work.reset(message.stable, message.decided)

    def recover(self, message: Recover) -> None:
        """Starts an epoch: installs its version of the partitions that the table assigns to this
        node.
        """
        self.epoch = message.epoch
        self.stable = message.clock
        self.rules.squares.clear()
        self.rules.work.reset(message.clock, message.decided)
        held: dict[int, Holder] = {**self.backups.copies, **self.transit.shadows, **self.served}
        table = message.table
        self.restoring.begin(message.clock, held)
        self.served = {}
        self.backups.begin(table, self.node)
        self.transit.begin()
        self.traffic.pulled.clear()

        for partition, (owner, backup) in enumerate(zip(table.owners, table.backups, strict=True)):
            if self.node not in (owner, backup):
                continue
            version = self.restoring.version(partition, message, INIT)
            if version is None:
                self.restoring.awaited.add(partition)
                source = message.sources[partition]
                if source == CHECKPOINT:
                    self.out.append(Fetch(self.epoch, partition, message.clock))
                elif source == self.node:
                    raise InvalidTransition(
                        f"{self.node} should have version {message.clock} of partition {partition}"
                    )
                else:
                    need_version = NeedVersion(self.epoch, self.node, partition, message.clock)
                    self.out.append(Send(source, need_version))
            else:
                self._install(partition, version, table)

    def provide(self, message: NeedVersion) -> None:
        """Sends the version from which the epoch started; it is kept until a later one is
        stable."""
        version = self.restoring.former.get(message.partition)
        if version is None or version.clock != message.clock:
            raise InvalidTransition(
                f"{self.node} has no version {message.clock} of partition {message.partition}"
            )
        restore = Restore(self.epoch, message.partition, version)
        self.out.append(Send(message.node, restore))

    def restore(self, partition: int, version: Version, table: Table) -> None:
        """Installs a version that was requested."""
        if partition not in self.restoring.awaited:
            return
        self.restoring.awaited.discard(partition)
        self._install(partition, version, table)
        self._replay_early()

    def _replay_early(self) -> None:
        early = self.transit.early
        self.transit.early = []
        for message in early:
            match message:
                case Push():
                    self.push(message)
                case Pull():
                    self.pull(message)
                case Reads():
                    self.set_reads(message)

    def _install(self, partition: int, version: Version, table: Table) -> None:
        if table.owners[partition] != self.node:
            self._report(partition, self.backups.install(partition, version), backup=True)
            return

        # Every backup of the new table has this version or requests it, so that patches can start
        # from it.
        clock = version.clock
        backup = table.backups[partition]
        self.served[partition] = ServedPartition(
            partition, self.rules, {clock: version}, clock, backup, clock
        )
        self._report(partition, [clock], backup=False)

    def _report(self, partition: int, clocks: Iterable[int], *, backup: bool) -> None:
        for clock in clocks:
            progress = PartitionProgress(self.node, self.epoch, partition, clock, backup)
            self.out.append(Send(CONTROLLER, progress))


NOT_SERVED: dict[Place, dict[type, Callable[[Server, Any], None]]] = {
    Place.COMING: {**dict.fromkeys((Push, Pull, Reads), Server._keep), Collect: Server._forward},
    Place.MOVED: dict.fromkeys((Push, Pull, Reads, Collect), Server._forward),
    # Refused, as there is no new owner.
    Place.UNKNOWN: dict.fromkeys((Push, Pull, Reads, Collect), Server._forward),
}
"""How a server handles a message about a partition that it does not serve."""
