"""Links that break between nodes that are both alive."""

from __future__ import annotations

import pytest

from agileml.core.members import Members, NodePhase
from agileml.protocol.messages import Unlinked
from agileml.runtime.mailbox import BrokenLinks


@pytest.fixture
def members() -> Members:
    members = Members()
    for name in ("r0", "t1", "t2", "t3"):
        members.join(name, name.startswith("r"), 0.0)
        members.set_phase(name, NodePhase.READY)
        members.set_phase(name, NodePhase.ACTIVE)
    return members


def victim(members: Members, *pairs: str, now: float = 2.0) -> str | None:
    links = BrokenLinks(1.0)
    for pair in pairs:
        node, peer = pair.split()
        links.report(Unlinked(node, peer, "it went away"), 1, 0.0)
    found = links.victim(members, 1, now)
    return found[0] if found else None


@pytest.mark.parametrize(
    ("pairs", "given_up"),
    [
        ((), None),
        (("t1 t2",), "t2"),
        (("t2 t1", "t1 t2"), "t2"),
        (("t1 r0",), "t1"),
        (("t1 t2", "t1 t3"), "t1"),
        (("t1 r0", "t2 r0", "t3 r0"), "r0"),
    ],
)
def test_the_node_with_most_broken_links_is_given_up(
    members: Members, pairs: tuple[str, ...], given_up: str | None
) -> None:
    assert victim(members, *pairs) == given_up


def test_a_node_whose_end_becomes_known_in_time_is_no_reason(members: Members) -> None:
    assert victim(members, "t1 t2", now=0.9) is None
    members.set_phase("t2", NodePhase.DEAD)
    assert victim(members, "t1 t2") is None


def test_an_accuser_is_believed_once(members: Members) -> None:
    """Which of two nodes lies cannot be told: one that accuses a second node is the next itself."""
    links = BrokenLinks(1.0)
    links.report(Unlinked("t1", "r0", "it sent nonsense", misconduct=True), 1, 0.0)
    assert links.victim(members, 1, 2.0) == ("r0", "no link between t1 and r0: it sent nonsense")
    links.report(Unlinked("t1", "t2", "it sent nonsense", misconduct=True), 2, 3.0)
    assert links.victim(members, 2, 5.0) == ("t1", "no link between t1 and t2: it sent nonsense")


def test_a_node_that_two_others_accuse_is_given_up(members: Members) -> None:
    links = BrokenLinks(1.0)
    for node in ("t2", "t3"):
        links.report(Unlinked(node, "t1", "it sent nonsense", misconduct=True), 1, 0.0)
    links.report(Unlinked("t1", "t2", "it sent nonsense", misconduct=True), 1, 0.0)
    assert links.victim(members, 1, 2.0) == ("t1", "no link between t2 and t1: it sent nonsense")


def test_a_new_epoch_sends_everything_again(members: Members) -> None:
    links = BrokenLinks(1.0)
    links.report(Unlinked("t1", "t2", "it went away"), 1, 0.0)
    assert links.victim(members, 2, 5.0) is None
    links.report(Unlinked("t1", "t2", "refused"), 2, 5.0)
    links.report(Unlinked("t1", "t2", "refused again"), 2, 6.0)
    assert links.victim(members, 2, 6.5) == ("t2", "no link between t1 and t2: refused")
