"""The parameter server of a node: ParamServ, ActivePS or BackupPS, partition by partition.

The owner of a partition is its ParamServ if it is a reliable node and its ActivePS if it is a transient node. An
ActivePS sends the changes of each clock to the BackupPS, which keeps a copy on a reliable node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agileml.core.recovery import CHECKPOINT, INIT
from agileml.errors import InvalidTransition
from agileml.params.deltas import Delta, assigned, nbytes
from agileml.params.layout import PartitionState
from agileml.params.reads import picked
from agileml.protocol.actions import CONTROLLER, Fetch, Save, Send
from agileml.protocol.messages import (
    Accept,
    Collect,
    Collected,
    Handover,
    Move,
    NeedVersion,
    PartitionProgress,
    PartitionUpdate,
    Patch,
    Pull,
    Push,
    Reads,
    Recover,
    Restore,
    Snapshot,
    Stable,
    Table,
    Taken,
    UpdateEntry,
    Version,
    Waiting,
)
from agileml.roles.partitions import BackupPartition, ServedPartition, keep_from
from agileml.roles.server_state import ServerState


@dataclass(slots=True)
class Server(ServerState):
    """All partitions of one node. Messages go in, actions come out through `out`."""

    # -- contributions and reads -----------------------------------------------------------------------------------

    def push(self, message: Push) -> None:
        """Adds a contribution; parts whose partition has moved away are forwarded."""
        elsewhere: dict[str, list[PartitionUpdate]] = {}
        if self.timer is not None and message.want >= 0:
            self._pushed[message.worker] = self.timer()
        for part in message.parts:
            served = self.served.get(part.partition)
            if self._awaits(part.partition):
                self.early.append(replace(message, parts=(part,)))
                continue
            if served is None:
                elsewhere.setdefault(self._new_owner(part.partition), []).append(part)
                continue
            served.contribute(message.clock, message.covers, self._received(part))
            if message.want >= 0:
                served.wait(Waiting(message.worker, message.want, whole=False))
            self._advance(served)
        for owner, parts in elsewhere.items():
            self.out.append(Send(owner, replace(message, parts=tuple(parts))))

    def pull(self, message: Pull) -> None:
        """Answers a request as soon as the version is committed."""
        served = self.served.get(message.partition)
        if self._awaits(message.partition):
            self.early.append(message)
            return
        if served is None:
            self.out.append(Send(self._new_owner(message.partition), message))
        elif message.exact:
            state = self.rule.model(served.partition, served.versions[message.at_least].state)
            snapshot = Snapshot(
                self.epoch, served.partition, message.at_least, self.stable, picked(state, None), exact=True
            )
            self.out.append(Send(message.worker, snapshot))
        else:
            served.wait(Waiting(message.worker, message.at_least, whole=True))
            self._answer(served)

    def accept(self, message: Accept) -> None:
        """From now on it is known what makes up a clock, which may be complete with that."""
        self.work.decide([(message.clock, message.covers)])
        for served in self.served.values():
            self._advance(served)

    def set_reads(self, message: Reads) -> None:
        """From now on the worker is sent only the rows it reads, unless it requests the whole partition."""
        served = self.served.get(message.partition)
        if self._awaits(message.partition):
            self.early.append(message)
        elif served is None:
            self.out.append(Send(self._new_owner(message.partition), message))
        else:
            served.reads[message.worker] = message.rows

    def forget(self, worker: str) -> None:
        """Forgets what a leaving worker reads."""
        for served in self.served.values():
            served.reads.pop(worker, None)
        self._pushed.pop(worker, None)

    def _advance(self, served: ServedPartition) -> None:
        while (changed := served.commit(self.rule)) is not None:
            sent = self._patch(served, changed) if served.backup else 0
            pulled = self._pulled.pop(served.partition, 0)
            progress = PartitionProgress(
                self.node, self.epoch, served.partition, served.clock, False, pulled, sent, served.sums
            )
            self.out.append(Send(CONTROLLER, progress))
            if not served.backup:
                keep_from(served.versions, self.stable)
        self._answer(served)

    def _answer(self, served: ServedPartition) -> None:
        ready = served.answerable()
        if not ready:
            return
        state, pulled = self._visible(served), self._pulled.get(served.partition, 0)
        whole = picked(state, None)
        for worker, wanted in ready:
            values = picked(state, wanted) if wanted else whole
            pulled += nbytes(values)
            pushed = self._pushed.get(worker)
            waited = self.timer() - pushed if self.timer is not None and pushed is not None else None
            snapshot = Snapshot(self.epoch, served.partition, served.clock, self.stable, values, waited=waited)
            self.out.append(Send(worker, snapshot))
        self._pulled[served.partition] = pulled

    def _visible(self, served: ServedPartition) -> PartitionState:
        """The values that a reader sees: the committed ones, and with slack also the contributions to later clocks."""
        state = served.latest.state
        if self.fresh:
            for clock in sorted(served.pending):
                total = served.pending[clock].summed()
                state = self.rule.advance(served.partition, state, total, clock)[0]
        model = self.rule.model(served.partition, state)
        return model if self.wire is None else self.wire.state(served.partition, model, served.clock)

    def _received(self, part: PartitionUpdate) -> tuple[UpdateEntry, ...]:
        if self.wire is None:
            return part.entries
        return tuple(replace(entry, delta=self.wire.received(part.partition, entry.delta)) for entry in part.entries)

    # -- the backup stream -------------------------------------------------------------------------------------------

    def _patch(self, served: ServedPartition, changed: Delta) -> int:
        latest = served.latest
        served.stamped = latest.clock
        patch = Patch(self.epoch, served.partition, latest.clock - 1, latest.clock, latest.tally, changed)
        self.out.append(Send(served.backup, patch))
        return nbytes(patch.values)

    def _seed(self, served: ServedPartition) -> None:
        """Sends a new backup every version to which a rollback may lead."""
        for clock, version in sorted(served.versions.items()):
            patch = Patch(self.epoch, served.partition, -1, clock, version.tally, picked(version.state, None))
            self.out.append(Send(served.backup, patch))
        served.stamped = served.clock

    def patch(self, message: Patch) -> None:
        """Adds the changes of a clock to a backup."""
        copy = self.copies.setdefault(message.partition, BackupPartition(message.partition, {}))
        if message.base == -1:
            self.dismissed.discard(message.partition)
        for clock in copy.take(message, assigned):
            self._report(message.partition, clock, backup=True)
        if message.partition in self.arriving:
            self.take_over(self.arriving.pop(message.partition))
            self._replay_early()

    def set_stable(self, message: Stable) -> None:
        """Forgets the versions before this one, and saves a checkpoint of it if the message says so."""
        self.stable = max(self.stable, message.clock)
        self.work.forget_until(self.stable)
        self.former.clear()
        for holder in self._holders():
            if message.checkpoint and self._saves(holder) and message.clock in holder.versions:
                self.out.append(Save(self.epoch, holder.partition, holder.versions[message.clock]))
            if holder.versions:
                keep_from(holder.versions, self.stable)
        self._forget_dismissed()

    def _forget_dismissed(self) -> None:
        """A former backup keeps its versions until a later one is stable, as a rollback may need them."""
        for partition in [p for p in self.dismissed if max(self.copies[p].versions, default=-1) < self.stable]:
            self.dismissed.discard(partition)
            del self.copies[partition]

    def _saves(self, holder: ServedPartition | BackupPartition) -> bool:
        """The node with the copy on reliable storage writes the checkpoint: the backup, or the owner without one."""
        return isinstance(holder, BackupPartition) or (
            holder.partition in self.served and not self.served[holder.partition].backup
        )

    # -- moving ------------------------------------------------------------------------------------------------------

    def move(self, message: Move) -> None:
        """Hands a partition over; later messages for it are forwarded."""
        served = self.served.pop(message.partition)
        to_backup = message.to == served.backup and served.stamped >= 0
        handover = Handover(
            self.epoch,
            served.partition,
            served.clock,
            () if to_backup else tuple(served.versions[at] for at in sorted(served.versions)),
            tuple(push for clock, pending in sorted(served.pending.items()) for push in pending.handed_over(clock)),
            served.waiters(),
            message.backup,
            served.clock if message.backup == self.node else served.stamped,
        )
        self.forward[served.partition] = message.to
        self.out.append(Send(message.to, handover))
        if message.backup == self.node:
            self.copies[served.partition] = BackupPartition(served.partition, dict(served.versions))
            self._report(served.partition, served.clock, backup=True)
        else:
            self.shadows[served.partition] = served

    def take_over(self, message: Handover) -> None:
        """Serves a partition from now on, once the patches it builds on are here."""
        copy = self.copies.get(message.partition)
        versions = {version.clock: version for version in message.versions}
        if not versions and copy is not None:
            versions = copy.versions
        if message.clock not in versions:
            # The last patches may come from an earlier owner, over another link.
            self.arriving[message.partition] = message
            return
        self.copies.pop(message.partition, None)
        self.dismissed.discard(message.partition)
        served = ServedPartition(
            message.partition,
            self.ordered,
            self.rule.declared.aggregation,
            self.work,
            versions,
            message.clock,
            message.backup,
            message.stamped,
        )
        for waiter in message.waiting:
            served.wait(waiter)
        for pending in message.pending:
            served.contribute(pending.clock, pending.covers, pending.entries)
        self.served[message.partition] = served
        self.forward.pop(message.partition, None)
        self.shadows.pop(message.partition, None)
        self.out.append(Send(CONTROLLER, Taken(self.node, self.epoch, message.partition)))
        self._advance(served)

    def reroute(self, table: Table) -> None:
        """Applies new routes: forgets what is no longer needed here and brings new backups up to date."""
        for partition in [p for p in self.shadows if table.owners[p] != self.node]:
            del self.shadows[partition]
        self._appoint(table)
        for partition in self.forward:
            if table.owners[partition] != self.node:
                self.forward[partition] = table.owners[partition]
        for served in self.served.values():
            backup = table.backups[served.partition]
            if table.owners[served.partition] == self.node and backup != served.backup:
                served.backup, served.stamped = backup, -1
                if backup:
                    self._seed(served)

    def _appoint(self, table: Table) -> None:
        for partition, backup in enumerate(table.backups):
            if backup == self.node:
                self.appointed.add(partition)
                self.dismissed.discard(partition)
            elif partition in self.appointed:
                # Patches may arrive before the routes that make this node a backup: only a former backup is dismissed.
                self.appointed.discard(partition)
                if partition in self.copies:
                    self.dismissed.add(partition)

    # -- rollback ----------------------------------------------------------------------------------------------------

    def recover(self, message: Recover) -> None:
        """Starts an epoch: installs its version of the partitions that the table assigns to this node."""
        self.epoch, self.stable = message.epoch, message.clock
        self.work.reset(message.clock, message.decided)
        held: dict[int, ServedPartition | BackupPartition] = {**self.copies, **self.shadows, **self.served}
        self.served, self.copies, self.shadows, self.forward, self.awaited = {}, {}, {}, {}, set()
        self.dismissed.clear()
        former = {p: version for p, version in self.former.items() if version.clock == message.clock}
        kept = {p: holder.versions[message.clock] for p, holder in held.items() if message.clock in holder.versions}
        self.former = former | kept
        self.early.clear()
        self.arriving.clear()
        self._pulled.clear()
        table = message.table
        self.appointed = {partition for partition, backup in enumerate(table.backups) if backup == self.node}
        for partition, (owner, backup) in enumerate(zip(table.owners, table.backups, strict=True)):
            if self.node not in (owner, backup):
                continue
            version = self.former.get(partition)
            if version is None and message.sources[partition] == INIT:
                version = self.initial(partition)
            if version is None:
                self._request(partition, message)
            else:
                self._install(partition, version, table)

    def _request(self, partition: int, message: Recover) -> None:
        self.awaited.add(partition)
        source = message.sources[partition]
        if source == CHECKPOINT:
            self.out.append(Fetch(self.epoch, partition, message.clock))
        elif source == self.node:
            raise InvalidTransition(f"{self.node} should have version {message.clock} of partition {partition}")
        else:
            self.out.append(Send(source, NeedVersion(self.epoch, self.node, partition, message.clock)))

    def provide(self, message: NeedVersion) -> None:
        """Sends the version from which the epoch started; it is kept until a later one is stable."""
        version = self.former.get(message.partition)
        if version is None or version.clock != message.clock:
            raise InvalidTransition(f"{self.node} has no version {message.clock} of partition {message.partition}")
        self.out.append(Send(message.node, Restore(self.epoch, message.partition, version)))

    def restore(self, partition: int, version: Version, table: Table) -> None:
        """Installs a version that was requested."""
        if partition not in self.awaited:
            return
        self.awaited.discard(partition)
        self._install(partition, version, table)
        self._replay_early()

    def _replay_early(self) -> None:
        early, self.early = self.early, []
        for message in early:
            match message:
                case Push():
                    self.push(message)
                case Pull():
                    self.pull(message)
                case Reads():
                    self.set_reads(message)

    def _install(self, partition: int, version: Version, table: Table) -> None:
        clock = version.clock
        if table.owners[partition] != self.node:
            early = self.copies[partition].early if partition in self.copies else {}
            self.copies[partition] = BackupPartition(partition, {clock: version}, early)
            for held in (clock, *self.copies[partition].apply_early(assigned)):
                self._report(partition, held, backup=True)
            return
        served = ServedPartition(
            partition, self.ordered, self.rule.declared.aggregation, self.work, {clock: version}, clock
        )
        # Every backup of the new table has this version or requests it, so that patches can start from it.
        served.backup, served.stamped = table.backups[partition], clock
        self.served[partition] = served
        self._report(partition, clock, backup=False)

    # -- reports to the controller -----------------------------------------------------------------------------------

    def collect(self, message: Collect) -> None:
        """Sends a version to the controller."""
        served = self.served.get(message.partition)
        if served is None:
            self.out.append(Send(self._new_owner(message.partition), message))
            return
        collected = Collected(self.node, self.epoch, message.partition, served.versions[message.clock])
        self.out.append(Send(CONTROLLER, collected))
