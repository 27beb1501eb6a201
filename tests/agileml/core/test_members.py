"""The phases of a node: all allowed transitions and no others."""

from __future__ import annotations

import itertools

import pytest

from agileml.core.members import MAX_OUT, Members, NodePhase
from agileml.errors import InvalidTransition

LIVES = [
    [NodePhase.READY, NodePhase.ACTIVE, NodePhase.LEAVING, NodePhase.DRAINING, NodePhase.GONE],
    [NodePhase.READY, NodePhase.ACTIVE, NodePhase.LEAVING, NodePhase.GONE],
    [NodePhase.READY, NodePhase.ACTIVE, NodePhase.GONE],
    [NodePhase.READY, NodePhase.GONE],
    [NodePhase.GONE],
]


def allowed() -> set[tuple[NodePhase, NodePhase]]:
    """A node may die in any phase before it is out; otherwise it follows one of the sequences
    above.
    """
    steps = {step for life in LIVES for step in itertools.pairwise([NodePhase.LOADING, *life])}
    return steps | {
        (phase, NodePhase.DEAD)
        for phase in NodePhase
        if phase not in (NodePhase.GONE, NodePhase.DEAD)
    }


@pytest.mark.parametrize(("before", "after"), list(itertools.product(NodePhase, NodePhase)))
def test_transitions(before: NodePhase, after: NodePhase) -> None:
    members = Members()
    members.join("a", reliable=False, now=0.0).phase = before
    if (before, after) in allowed():
        members.set_phase("a", after)
        assert members["a"].phase is after
    else:
        with pytest.raises(
            InvalidTransition, match=f"a cannot go from {before.value} to {after.value}"
        ):
            members.set_phase("a", after)


def test_a_name_is_used_once() -> None:
    members = Members()
    members.join("a", reliable=False, now=0.0)
    with pytest.raises(InvalidTransition, match="a joined before"):
        members.join("a", reliable=True, now=1.0)


def test_active_nodes_are_listed_by_age() -> None:
    members = Members()
    for name, phase in [
        ("b", NodePhase.ACTIVE),
        ("a", NodePhase.ACTIVE),
        ("c", NodePhase.LEAVING),
        ("d", NodePhase.READY),
    ]:
        members.join(name, reliable=False, now=0.0).phase = phase
    members.join("r", reliable=True, now=0.0).phase = NodePhase.ACTIVE
    assert members.active(reliable=False) == ["b", "a"]
    assert members.active(reliable=True) == ["r"]
    assert [name for name in "abcdrx" if members.alive(name)] == ["a", "b", "c", "r"]


def test_only_the_latest_nodes_that_are_out_are_remembered() -> None:
    members = Members()
    members.join("stays", reliable=True, now=0.0).phase = NodePhase.ACTIVE
    for number in range(3 * MAX_OUT):
        assert members.join(f"t{number}", reliable=False, now=0.0).rank == number + 1
        members.set_phase(f"t{number}", NodePhase.DEAD if number % 2 else NodePhase.GONE)
    assert [member.name for member in members] == [
        "stays",
        *(f"t{number}" for number in range(2 * MAX_OUT, 3 * MAX_OUT)),
    ]
    members.set_phase("stays", NodePhase.DEAD)
    members.join("last", reliable=False, now=0.0)
    members.set_phase("last", NodePhase.DEAD)
    assert [member.name for member in members][-2:] == ["stays", "last"]
