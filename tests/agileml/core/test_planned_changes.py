"""When partitions are planned to move to faster servers."""

from __future__ import annotations

from agileml.core.placement import Footprint
from agileml.core.planned_changes import PlannedChanges
from agileml.policies.psld import MEASUREMENTS_BEFORE_MOVE
from agileml.protocol.messages import Move, Table

PARTITIONS = 40
SERVERS = ("r0", "r1", "r2", "r3")


def measured() -> PlannedChanges:
    """Four servers; the first one is slow."""
    planned = PlannedChanges.none((1,) * PARTITIONS, 4)
    owners = tuple(SERVERS[partition % 4] for partition in range(PARTITIONS))
    planned.assignment.table = Table(1, owners, ("",) * PARTITIONS, SERVERS)
    for _ in range(2 * MEASUREMENTS_BEFORE_MOVE):
        for name in SERVERS:
            seconds = 10.0 if name == "r0" else 1.0
            planned.policy = planned.policy.with_measurement(name, 10, seconds)
    return planned


def test_nothing_is_planned_while_partitions_move() -> None:
    """They are at neither place: measurements are of servers that do not have them yet."""
    planned, footprint = measured(), Footprint(SERVERS, ())
    planned.assignment.moving[0] = Move(1, 0, "r1", "")
    assert planned.balance_servers(footprint, 1, 0.0) is None
    planned.assignment.moving.clear()
    place = planned.balance_servers(footprint, 1, 0.0)
    assert place is not None
    assert place.owners.count("r0") == 1
