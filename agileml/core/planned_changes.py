"""Planned changes: nodes that join, partitions and shards that move while training continues."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.core.controller_state import ControllerState, Mode
from agileml.core.members import IN_EPOCH, NodePhase
from agileml.core.placement import Footprint, may_serve, target_table
from agileml.policies.flexrr import help_groups
from agileml.protocol.messages import Adopted, Drain, Enter, HelpGroup, Route, Table, Taken


@dataclass(slots=True)
class PlannedChanges(ControllerState):
    """The part of the controller that moves partitions and shards one by one."""

    def _replan(self) -> None:
        """Lets ready nodes join the epoch, and requests the moves that lead to the target table."""
        if self.mode is not Mode.RUNNING:
            return
        for node in self.members.names(NodePhase.READY):
            self.members.set_phase(node, NodePhase.ACTIVE)
            self.members[node].routed = self.table.version
            decided = self._decisions.after(self.stable)
            self._send(node, Enter(self.epoch, self.table, self.limit, self.stable, decided))
            self._changed = True
        footprint = self._current_footprint()
        if footprint.reliable or footprint.transient:
            self._out.extend(self.assignment.move_towards(self._target(footprint), self.members, self.epoch))
        routes = self.assignment.take_new_routes()
        if routes is not None:
            self._broadcast(Route(self.epoch, routes), IN_EPOCH)
        if (reassignment := self.settings.stragglers.reassignment) is not None:
            self._form_groups(reassignment.helpers)
        for node in self.members.names(NodePhase.LEAVING):
            if self.assignment.is_free(node, self.members):
                self.members.set_phase(node, NodePhase.DRAINING)
                self._drain(node)

    def _form_groups(self, helpers: int) -> None:
        """Says which workers may help which, where that has changed."""
        working = set(self.table.workers)
        workers = [name for name in self.members.names(NodePhase.ACTIVE) if name in working]
        for name, others in help_groups(workers, helpers).items():
            if self._groups.get(name) != others:
                self._groups[name] = others
                self._send(name, HelpGroup(self.epoch, others))

    def _target(self, footprint: Footprint) -> Table:
        placed, more = self._placed, self._more_servers
        return target_table(
            footprint, self.stage, self.table, self.assignment.previous, self.partition_bytes, placed, more
        )

    def _balance_servers(self, now: float) -> None:
        """Moves partitions away from slow servers, once those that move have arrived."""
        if self.mode is not Mode.RUNNING or self.assignment.moving:
            return
        servers = may_serve(self._current_footprint(), self.stage, self.partitions, self._more_servers)
        self._balance, place = self._balance.propose(self.table.owners, self.partition_bytes, servers)
        if place is not None:
            self._placed, self._moving_since = place.owners, now
            self._more_servers += place.short
            self._note(f"partitions move to other servers: {place.reason}")
            self._replan()

    def _confirm_move(self, event: Taken | Adopted, now: float) -> None:
        match event:
            case Taken():
                left = self.table.owners[event.partition]
                move = self.assignment.partition_arrived(event.partition, event.node)
                self._ledger.add_move(event.partition, left, move, self.stable)
                if self._moving_since is not None:
                    self._ledger.count_move(self.partition_bytes[event.partition], now - self._moving_since)
                    self._moving_since = now if self.assignment.moving else None
            case Adopted():
                self.assignment.shard_arrived(event.shard, event.node)
                if not self.assignment.worth_planning():
                    return
        # Not recorded: a restarted controller asks the nodes what they hold.
        self._replan()

    def _drain(self, node: str) -> None:
        peers = tuple(name for name in self.members.names(*IN_EPOCH) if name != node)
        self._send(node, Drain(self.epoch, peers))
