"""The job loop by hand: what it starts again, and what it does not."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from agileml.engines.base import Gone, Joined
from agileml.engines.chaos import QUIET
from agileml.engines.job_loop import JobLoop
from agileml.errors import Unrecoverable
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.node_process import NOT_ADMITTED
from agileml.runtime.results import Result
from tests.agileml.trials import FailingFleet, RedoingLink


@dataclass
class ResumedLink(RedoingLink):
    lost: list[str] = field(default_factory=list)

    def lose(self, name: str) -> None:
        self.lost.append(name)


def loop_of(fleet: FailingFleet) -> JobLoop:
    loop = JobLoop(fleet, RedoingLink(), QUIET, lambda _: None)
    fleet.start_node("first", reliable=True)
    loop.turn(0.0)
    return loop


def test_nodes_that_leave_before_the_model_has_arrived_are_not_replaced() -> None:
    fleet = FailingFleet()
    loop = loop_of(fleet)
    fleet.happened.append(Gone("first", 0))
    for _ in range(3):
        assert loop.turn(0.0) is None
    assert fleet.started == ["first"]


def test_they_are_replaced_if_the_controller_is_lost_with_the_model() -> None:
    fleet = FailingFleet()
    loop = loop_of(fleet)
    fleet.happened += [Gone("first", 0), Gone(CONTROLLER, -9)]
    loop.turn(0.0)
    assert fleet.started == ["first", "r0"]


def test_nodes_of_an_earlier_process_are_lost_and_keep_their_names() -> None:
    fleet, link = FailingFleet(), ResumedLink(result=Result(3, (), 0, 0))
    JobLoop(fleet, link, QUIET, lambda _: None).run(1, 2, ("r0", "t9", "t10"))
    assert link.lost == ["r0", "t9", "t10"]
    assert fleet.started == ["r11", "t12", "t13"]


@dataclass
class EndingLink(RedoingLink):
    """The last stable version was lost with the nodes: what is left is the initial model."""

    def stop(self) -> None:
        self.result = Result(0, (), 0, 2)


def test_a_job_that_is_given_up_does_not_end_with_the_initial_model() -> None:
    fleet = FailingFleet()
    loop = JobLoop(fleet, EndingLink(), QUIET, lambda _: None)
    fleet.happened += [
        Joined("first", reliable=True),
        Gone("first", 9),
        Joined("r0", reliable=True),
        Gone("r0", 9),
    ]
    with pytest.raises(
        Unrecoverable, match="r0 is the last of 2 processes that ended: its replacement failed"
    ):
        loop.run(1, 0)


def test_without_machines_a_job_has_failed() -> None:
    fleet = FailingFleet()
    loop = loop_of(fleet)
    fleet.happened.append(Gone("first", NOT_ADMITTED))
    with pytest.raises(Unrecoverable, match="no machine is left"):
        loop.turn(0.0)


def test_without_reliable_machines_a_job_has_failed() -> None:
    """The only one was refused, and another one would be refused as well."""
    fleet = FailingFleet()
    loop = loop_of(fleet)
    fleet.start_node("second", reliable=False)
    fleet.happened.append(Gone("first", NOT_ADMITTED))
    with pytest.raises(Unrecoverable, match="no reliable machine is left"):
        loop.turn(0.0)


def test_the_last_machine_of_a_job_without_reliable_ones_is_replaced() -> None:
    fleet, link = FailingFleet(), RedoingLink()
    loop = JobLoop(fleet, link, QUIET, lambda _: None)
    loop.begin(0, 2)
    loop.turn(0.0)
    fleet.happened += [Gone("t0"), Gone("t1")]
    loop.turn(0.0)
    assert fleet.started == ["t0", "t1", "t2"]
