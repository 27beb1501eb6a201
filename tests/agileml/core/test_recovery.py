"""Rollback: to which version, and from which sources."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from agileml.core.members import Members, NodePhase
from agileml.core.recovery import (
    CHECKPOINT,
    INIT,
    Epochs,
    VersionLedger,
    common_version,
    rollback_point,
)
from agileml.protocol.messages import PartitionProgress, Table
from agileml.work import WorkPlan

PLAN = WorkPlan((4, 4), 0, 2)


def members(**phases: NodePhase) -> Members:
    nodes = Members()
    for name, phase in phases.items():
        nodes.join(name, name.startswith("r"), 0.0).phase = phase
    return nodes


def copies(
    stable: int = 3,
    checkpoint: int = -1,
    rolled_back: int = -1,
    sources: tuple[str, ...] = ("", ""),
) -> tuple[Table, VersionLedger, int, int, Epochs]:
    """Two partitions on `a` and `b`, copied to `r` up to version 3."""
    ledger = VersionLedger(2)
    for partition, owner in enumerate("ab"):
        ledger.add_progress(PartitionProgress(owner, 1, partition, 4, backup=False))
        ledger.add_progress(PartitionProgress("r", 1, partition, 3, backup=True))
    table = Table(1, ("a", "b"), ("r", "r"), ("a", "b"))
    return table, ledger, stable, checkpoint, Epochs(rolled_back=rolled_back, sources=sources)


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ({"r": NodePhase.ACTIVE, "a": NodePhase.ACTIVE, "b": NodePhase.DEAD}, (3, ("r", "r"))),
        ({"r": NodePhase.ACTIVE, "a": NodePhase.DEAD, "b": NodePhase.DEAD}, (3, ("r", "r"))),
        ({"r": NodePhase.DEAD, "a": NodePhase.ACTIVE, "b": NodePhase.LEAVING}, (3, ("a", "b"))),
        ({"r": NodePhase.DEAD, "a": NodePhase.ACTIVE, "b": NodePhase.DEAD}, (0, (INIT, INIT))),
        ({"r": NodePhase.DEAD, "a": NodePhase.ACTIVE, "b": NodePhase.GONE}, (0, (INIT, INIT))),
    ],
)
def test_the_holders_of_the_stable_version(
    phases: dict[str, NodePhase], expected: tuple[int, tuple[str, ...]]
) -> None:
    assert rollback_point(members(**phases), *copies()) == expected


def test_a_draining_node_is_not_a_source() -> None:
    known = copies()
    known[1].add_progress(PartitionProgress("r2", 1, 0, 3, backup=True))
    there = members(
        r2=NodePhase.DRAINING, r=NodePhase.DEAD, a=NodePhase.ACTIVE, b=NodePhase.LEAVING
    )
    assert rollback_point(there, *known) == (3, ("a", "b"))
    held = {partition: {5: "r2", 4: "a"} for partition in range(2)}
    assert common_version(held, there, 2, -1) == (4, ("a", "a"))


def test_the_checkpoint_is_preferred_to_the_initial_model() -> None:
    lost = members(r=NodePhase.DEAD, a=NodePhase.ACTIVE, b=NodePhase.DEAD)
    assert rollback_point(lost, *copies(checkpoint=2)) == (2, (CHECKPOINT, CHECKPOINT))
    # The stable version is preferred to the checkpoint.
    assert rollback_point(
        members(r=NodePhase.ACTIVE, a=NodePhase.DEAD, b=NodePhase.DEAD), *copies(checkpoint=2)
    ) == (
        3,
        ("r", "r"),
    )


def test_a_backup_that_has_not_reported_the_version_is_not_a_source() -> None:
    known = copies(stable=4)
    assert rollback_point(
        members(r=NodePhase.ACTIVE, a=NodePhase.ACTIVE, b=NodePhase.ACTIVE), *known
    ) == (
        4,
        ("a", "b"),
    )
    assert rollback_point(
        members(r=NodePhase.ACTIVE, a=NodePhase.DEAD, b=NodePhase.ACTIVE), *known
    ) == (
        0,
        (INIT, INIT),
    )


def test_a_former_backup_is_preferred_to_an_owner() -> None:
    known = copies()
    known[1].add_progress(PartitionProgress("r2", 1, 1, 3, backup=True))
    gone = members(r=NodePhase.DEAD, r2=NodePhase.ACTIVE, a=NodePhase.ACTIVE, b=NodePhase.ACTIVE)
    assert rollback_point(gone, *known) == (3, ("a", "r2"))


def test_the_sources_of_an_incomplete_recovery_are_still_valid() -> None:
    nodes = members(c=NodePhase.ACTIVE, r=NodePhase.ACTIVE, a=NodePhase.DEAD, b=NodePhase.DEAD)
    assert rollback_point(nodes, *copies(4, -1, 4, ("c", INIT))) == (4, ("c", INIT))
    assert rollback_point(nodes, *copies(4, -1, 3, ("c", INIT))) == (0, (INIT, INIT))


HELD = st.dictionaries(
    st.integers(0, 2), st.dictionaries(st.integers(0, 5), st.sampled_from("abr"))
)


@given(HELD, st.sets(st.sampled_from("abr")), st.integers(-1, 3))
def test_the_latest_common_version(
    held: dict[int, dict[int, str]], dead: set[str], checkpoint: int
) -> None:
    phases = {name: NodePhase.DEAD if name in dead else NodePhase.ACTIVE for name in "abr"}
    clock, sources = common_version(held, members(**phases), 3, checkpoint)
    reliable, any_node = (
        [
            at
            for at in range(6)
            if all(held.get(p, {}).get(at, "") in holders - dead for p in range(3))
        ]
        for holders in ({"r"}, {"a", "b", "r"})
    )
    if reliable or any_node:
        assert clock == max(reliable or any_node)
        assert sources == tuple(held[p][clock] for p in range(3))
    else:
        assert (clock, sources[0]) == ((checkpoint, CHECKPOINT) if checkpoint > 0 else (0, INIT))
