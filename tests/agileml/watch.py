"""Observes every delivery in a simulated job and checks the invariants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from agileml.core.recovery import Mode
from agileml.engines.sim.fleet import Simulation
from agileml.params.layout import Params, PartitionState
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import (
    Drain,
    EndOfLife,
    EndOfLifeSeen,
    Leave,
    Patch,
    Route,
    Snapshot,
    Version,
)
from agileml.roles.node import Node
from agileml.roles.partitions import ServedPartition
from agileml.roles.server_parts import BackupPartition
from tests.agileml.targets import phase_of


@dataclass
class Trigger:
    """An action right after a delivery, of any message or of one kind in one phase, after `after`
    deliveries at least.

    `act` returns whether it was possible; if not, the trigger stays.
    """

    act: Callable[[Simulation, str], bool]
    after: int
    stage: int | None = None
    kind: str | None = None

    def fits(self, stage: int, kind: str, delivered: int) -> bool:
        """Whether the trigger applies to a delivery."""
        return delivered >= self.after and self.stage in (None, stage) and self.kind in (None, kind)


@dataclass
class Watch:
    """Checks the invariants after each delivery and fires triggers.

    `model` returns the reference run's model after a clock, if the job's must be bit-equal to it. A
    version that is computed again after a rollback may have to be the same.
    """

    model: Callable[[int], Params] | None = None
    same_in_all_epochs: bool = False
    triggers: list[Trigger] = field(default_factory=list)
    kinds: set[tuple[int, str]] = field(default_factory=set)
    digest: str = ""
    _stable: dict[int, int] = field(default_factory=dict)
    _last: tuple[int, int] = (0, 0)
    _reliable: set[str] = field(default_factory=set)
    _backups: dict[tuple[int, str, int], tuple[BackupPartition, int]] = field(default_factory=dict)
    _expected: dict[tuple[int, int, int], PartitionState] = field(default_factory=dict)
    _right: dict[int, Version] = field(default_factory=dict)
    _unmarked: dict[tuple[int, str], set[str]] = field(default_factory=dict)
    _seen: int = 0

    def __call__(self, simulation: Simulation) -> None:
        """Processes an event of the simulation, if it was a delivery."""
        if simulation.messages.delivered == self._seen or simulation.messages.last is None:
            return
        self._seen = simulation.messages.delivered
        sender, receiver, message = simulation.messages.last
        kind, stage = type(message).__name__, phase_of(simulation.controller)
        said = f"{self.digest} {simulation.time.now!r} {sender} {receiver} {kind}"
        self.digest = sha256(said.encode()).hexdigest()
        self._check(simulation, receiver)
        match message:
            case Drain():
                # Peers that a repeated message no longer names have left.
                awaited = self._unmarked.setdefault((message.epoch, receiver), set(message.peers))
                awaited.intersection_update(message.peers)
            case EndOfLifeSeen():
                self._unmarked.get((message.epoch, receiver), set()).discard(message.node)
            case Leave():
                self._check_left(simulation, receiver)
        if not self._arrived(simulation, receiver, kind):
            return
        self.kinds.add((stage, kind))
        for trigger in list(self.triggers):
            if trigger.fits(stage, kind, self._seen) and trigger.act(simulation, kind):
                self.triggers.remove(trigger)

    @staticmethod
    def _arrived(simulation: Simulation, receiver: str, kind: str) -> bool:
        """Whether the receiver existed; one that was told to leave no longer does."""
        if receiver == CONTROLLER:
            return not simulation.away
        return receiver in simulation.nodes or kind == "Leave"

    def _check(self, simulation: Simulation, receiver: str) -> None:
        controller, node = simulation.controller, simulation.nodes.get(receiver)
        self._reliable.update(name for name in simulation.nodes if name.startswith("r"))
        if controller.epochs.mode is Mode.RUNNING:
            self._check_stable(simulation)
            table = controller.table
            for name in {*table.owners, *table.workers, *table.backups} - {""}:
                assert controller.members.alive(name), f"{name} is in the table, but not in the job"
        if node is not None:
            self._check_alone(simulation, node)
            self._check_versions(simulation, node)

    # -- what is stable ----------------------------------------------------------------------------

    def _check_stable(self, simulation: Simulation) -> None:
        """The stable version never decreases in an epoch, nor as long as no reliable node leaves;
        it is held safely.
        """
        controller, epoch = simulation.controller, simulation.controller.epoch
        members = ((name, controller.members.get(name)) for name in self._reliable)
        given_up = {
            name
            for name, member in members
            if member is not None and not controller.members.alive(name)
        }
        if self._reliable <= simulation.nodes.keys() - simulation.warned - given_up:
            epoch = 0
        before, stable = self._stable.get(epoch, 0), controller.clocks.stable
        assert stable >= before, "the stable version decreased"
        self._stable[epoch] = stable
        table, now = controller.table, (controller.epoch, stable)
        advanced = self._last[0] == now[0] and self._last[1] < now[1]
        self._last = now
        if not simulation.away and simulation.nodes.keys() >= {*table.owners, *table.backups} - {
            ""
        }:
            for partition, (owner, backup) in enumerate(
                zip(table.owners, table.backups, strict=True)
            ):
                if not _holds(simulation.nodes[backup or owner], partition, stable):
                    self._check_kept(simulation, partition, reliable=advanced and bool(backup))

    @staticmethod
    def _check_kept(simulation: Simulation, partition: int, *, reliable: bool) -> None:
        """Some node has the stable version of a partition: while its backup changes, a former
        backup or the owner.
        """
        stable = simulation.controller.clocks.stable
        holders = [
            name for name, node in simulation.nodes.items() if _holds(node, partition, stable)
        ]
        assert holders, f"no node has partition {partition} at the stable version {stable}"
        assert not reliable or any(name.startswith("r") for name in holders), (
            "no reliable node has the stable version"
        )

    def _check_versions(self, simulation: Simulation, node: Node) -> None:
        """A version is the same on all nodes that hold it; a backup keeps its latest."""
        for partition, version in _versions(node):
            if self._right.get(id(version)) is not version:
                for one, other in zip(
                    version.state, self._state(simulation, node, partition, version), strict=False
                ):
                    same = one.tobytes() == other.tobytes()
                    assert same, (
                        f"partition {partition} at version {version.clock} on {node.name} is not "
                        "what it should be"
                    )
                self._right[id(version)] = version
        for partition, copy in node.server.backups.copies.items():
            key, newest = (node.epoch, node.name, partition), max(copy.versions, default=-1)
            earlier, reached = self._backups.get(key, (copy, -1))
            assert earlier is not copy or newest >= reached, "a backup's clock went back"
            self._backups[key] = (copy, newest)

    def _state(
        self, simulation: Simulation, node: Node, partition: int, version: Version
    ) -> PartitionState:
        """The expected state: that of the reference run, or else of the first node that had it."""
        key = (0 if self.same_in_all_epochs else node.epoch, partition, version.clock)
        if key not in self._expected:
            seen = version.state
            self._expected[key] = (
                simulation.layout.state_of(partition, self.model(version.clock))
                if self.model
                else seen
            )
        return self._expected[key]

    @staticmethod
    def end(simulation: Simulation) -> None:
        """At the end no backup waits for a patch that is not sent, as no later version could become
        safe.
        """
        controller, in_flight = (
            simulation.controller,
            [message for _, _, message in simulation.messages.in_flight()],
        )
        if controller.planned.assignment.moving or any(
            isinstance(message, Route) for message in in_flight
        ):
            return
        coming = {message.partition for message in in_flight if isinstance(message, Patch)}
        for partition, backup in enumerate(controller.table.backups):
            node = simulation.nodes.get(backup)
            if node is not None and node.epoch == controller.epoch and partition not in coming:
                copy = node.server.backups.copies.get(partition)
                assert copy is None or not copy.early, (
                    f"{backup}: {copy} waits for a patch that is not sent"
                )

    # -- who has what ------------------------------------------------------------------------------

    @staticmethod
    def _check_alone(simulation: Simulation, node: Node) -> None:
        shards = node.worker.shards.keys()
        for other in simulation.nodes.values():
            if other is node or other.epoch != node.epoch:
                continue
            assert not node.server.served.keys() & other.server.served.keys(), (
                "a partition has two owners"
            )
            if node.worker.context.epoch == other.worker.context.epoch:
                assert not shards & other.worker.shards.keys(), "a shard has two workers"

    def _check_left(self, simulation: Simulation, name: str) -> None:
        """A leaving node has answers of all peers, and no message to or from it matters any
        more."""
        if simulation.away or simulation.controller.epochs.mode is not Mode.RUNNING:
            return
        unmarked = (
            self._unmarked.get((simulation.controller.epoch, name), set()) & simulation.nodes.keys()
        )
        assert not unmarked, (
            f"{name} left without the answers of {sorted(unmarked)} to its end-of-life mark"
        )
        for sender, receiver, message in simulation.messages.in_flight():
            if name in (sender, receiver) and CONTROLLER not in (sender, receiver):
                ended = isinstance(message, EndOfLife | EndOfLifeSeen | Snapshot)
                of_use = not ended and getattr(message, "epoch", -1) == simulation.controller.epoch
                assert not of_use, (
                    f"{name} left, but {type(message).__name__} is under way from {sender} to "
                    f"{receiver}"
                )


def _versions(node: Node) -> Iterator[tuple[int, Version]]:
    server = node.server
    everything: tuple[Mapping[int, ServedPartition | BackupPartition], ...] = (
        server.served,
        server.backups.copies,
        server.transit.shadows,
    )
    for held in everything:
        for partition, holder in held.items():
            for version in holder.versions.values():
                yield partition, version
    yield from server.restoring.former.items()


def _holds(node: Node, partition: int, clock: int) -> bool:
    server = node.server
    for holder in (
        server.backups.copies.get(partition),
        server.served.get(partition),
        server.transit.shadows.get(partition),
    ):
        if holder is not None and clock in holder.versions:
            return True
    former = server.restoring.former.get(partition)
    return former is not None and former.clock == clock
