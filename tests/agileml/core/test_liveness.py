"""Silent nodes and hung nodes."""

from __future__ import annotations

import pytest

from agileml.core.events import ControllerSettings, NodeRules, Tick
from agileml.core.members import (
    FIRST_BEAT_SECONDS,
    RETURN_SECONDS,
    Members,
    NodePhase,
    hung,
    silent,
)
from agileml.core.roll_call import LostNodes, RollCall
from agileml.protocol.messages import UNKNOWN_STEP, Heartbeat

RULES = NodeRules(hang_timeout=30.0, startup_timeout=300.0)


def members() -> Members:
    """`early` has not sent a heartbeat yet, `beats` has, `gone` has left."""
    known = Members()
    for name in ("early", "beats", "gone"):
        known.join(name, True, 0.0)
    known["beats"].grace = known["gone"].grace = 0.0
    known.set_phase("gone", NodePhase.GONE)
    return known


@pytest.mark.parametrize(
    ("now", "names"),
    [
        (1.0, []),
        (1.1, ["beats"]),
        (FIRST_BEAT_SECONDS, ["beats"]),
        (FIRST_BEAT_SECONDS + 0.1, ["early", "beats"]),
    ],
)
def test_a_node_may_take_longer_to_send_its_first_heartbeat(now: float, names: list[str]) -> None:
    assert silent(members(), now, 1.0) == names


def test_a_long_timeout_also_holds_for_the_first_heartbeat() -> None:
    assert silent(members(), 19.0, 20.0) == []


def test_after_a_restart_of_the_controller_known_nodes_have_less_time_than_those_that_start() -> (
    None
):
    before = members()
    before.set_phase("beats", NodePhase.READY)
    after = Members()
    after.restore(before.record(), 0.0)
    assert silent(after, RETURN_SECONDS, 1.0) == []
    assert silent(after, RETURN_SECONDS + 0.1, 1.0) == ["beats"]


def lost(now: float, late: float) -> list[str]:
    """The nodes that are given up at a tick of a controller that had heard of all a second after
    the start.
    """
    roll = RollCall(ControllerSettings(1, 0, 5, nodes=RULES), members())
    for member in roll.members:
        member.last_heard = 1.0
    answers = list(roll.handle(Tick(late), now, 1))
    return [name for answer in answers if isinstance(answer, LostNodes) for name in answer.phases]


def test_silence_while_the_controller_did_not_run_does_not_count() -> None:
    assert lost(8.0, late=0.0) == lost(8.0, late=5.9) == ["beats"]
    assert lost(8.0, late=6.0) == lost(8.0, late=60.0) == []


@pytest.mark.parametrize(
    ("stalled", "usual", "expected"),
    [
        (30.0, 0.1, False),
        (30.1, 0.1, True),
        (99.9, 20.0, False),
        (100.1, 20.0, True),
        (300.0, UNKNOWN_STEP, False),
        (300.1, UNKNOWN_STEP, True),
    ],
)
def test_a_step_may_take_five_times_as_long_as_usual(
    stalled: float, usual: float, expected: bool
) -> None:
    assert bool(hung(Heartbeat("t", stalled, usual), RULES)) is expected
