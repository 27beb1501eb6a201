"""The phases of a node: all allowed transitions and no others."""

from __future__ import annotations

import itertools

import pytest

from agileml.core.members import MOST_OUT, Members, Phase
from agileml.errors import InvalidTransition

LIVES = [
    [Phase.READY, Phase.ACTIVE, Phase.LEAVING, Phase.DRAINING, Phase.GONE],
    [Phase.READY, Phase.ACTIVE, Phase.LEAVING, Phase.GONE],
    [Phase.READY, Phase.ACTIVE, Phase.GONE],
    [Phase.READY, Phase.GONE],
    [Phase.GONE],
]


def allowed() -> set[tuple[Phase, Phase]]:
    """A node may die in any phase before it is out; otherwise it follows one of the sequences above."""
    steps = {step for life in LIVES for step in itertools.pairwise([Phase.LOADING, *life])}
    return steps | {(phase, Phase.DEAD) for phase in Phase if phase not in (Phase.GONE, Phase.DEAD)}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Phase, Phase)))
def test_transitions(before: Phase, after: Phase) -> None:
    members = Members()
    members.join("a", reliable=False, now=0.0).phase = before
    if (before, after) in allowed():
        members.set_phase("a", after)
        assert members["a"].phase is after
    else:
        with pytest.raises(InvalidTransition, match=f"a cannot go from {before.value} to {after.value}"):
            members.set_phase("a", after)


def test_a_name_is_used_once() -> None:
    members = Members()
    members.join("a", reliable=False, now=0.0)
    with pytest.raises(InvalidTransition, match="a joined before"):
        members.join("a", reliable=True, now=1.0)


def test_active_nodes_are_listed_by_age() -> None:
    members = Members()
    for name, phase in [("b", Phase.ACTIVE), ("a", Phase.ACTIVE), ("c", Phase.LEAVING), ("d", Phase.READY)]:
        members.join(name, reliable=False, now=0.0).phase = phase
    members.join("r", reliable=True, now=0.0).phase = Phase.ACTIVE
    assert members.active(reliable=False) == ["b", "a"]
    assert members.active(reliable=True) == ["r"]
    assert [name for name in "abcdrx" if members.alive(name)] == ["a", "b", "c", "r"]


def test_only_the_latest_nodes_that_are_out_are_remembered() -> None:
    members = Members()
    members.join("stays", reliable=True, now=0.0).phase = Phase.ACTIVE
    for number in range(3 * MOST_OUT):
        assert members.join(f"t{number}", reliable=False, now=0.0).rank == number + 1
        members.set_phase(f"t{number}", Phase.DEAD if number % 2 else Phase.GONE)
    assert [member.name for member in members] == [
        "stays",
        *(f"t{number}" for number in range(2 * MOST_OUT, 3 * MOST_OUT)),
    ]
    members.set_phase("stays", Phase.DEAD)
    members.join("last", reliable=False, now=0.0)
    members.set_phase("last", Phase.DEAD)
    assert [member.name for member in members][-2:] == ["stays", "last"]
