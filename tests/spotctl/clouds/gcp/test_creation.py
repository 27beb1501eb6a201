"""Requests that are repeated buy nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import MINUTE
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.gcp import calls
from spotctl.clouds.gcp.calls import GcpCalls
from spotctl.clouds.provider import EndReason, MachineState
from spotctl.home.installation import INTENT_TAG
from spotctl.home.wall_clock import wall_us
from tests.servers.gcp import refusal
from tests.servers.loopback import Fault
from tests.spotctl.clouds.gcp.world import BID, INSERTS, RUN, World, ended, order, world


def test_a_creation_that_takes_long_is_taken_up_again(
    made: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "WAIT_SECONDS", 0.0)
    with pytest.raises(Unanswered, match="has not ended"):
        made.provider().create(order())
    monkeypatch.undo()
    machines = made.provider().create(order())
    assert [one.id for one in machines] == [one.id for one in made.server.machines()]


def test_an_answer_that_was_lost_is_asked_for_again(made: World) -> None:
    made.server.http.faults += [Fault(INSERTS, lost=True)]
    machines = made.provider().create(order())
    assert len(made.server.machines()) == len(machines) == 2
    made.server.http.faults += [Fault("/operations/", refusal(503), times=1000)]
    with pytest.raises(Unanswered):
        made.provider().create(order("t2"))
    made.server.http.faults.clear()
    assert len(made.server.machines()) == 4
    again = made.provider().create(order("t2"))
    assert {one.id for one in again} <= {one.id for one in made.server.machines()}
    assert len(made.server.machines()) == 4


def test_a_token_whose_machines_are_gone_is_not_served_again(made: World) -> None:
    machines = made.provider().create(order())
    for one in machines:
        made.server.evict(one.id, None)
        ended(made, one)
    again = made.provider().create(order(lease_until=wall_us() + 60 * MINUTE))
    assert [(one.id, one.state, one.end_reason) for one in again] == [
        (one.id, MachineState.GONE, EndReason.EVICTED) for one in machines
    ]
    assert [one.bid for one in again] == [BID, BID]
    assert len(made.server.machines()) == 2


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_that_is_killed_at_any_call_buys_nothing_twice(
    tmp_path: Path, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process repeats the request: each machine exists once and is listed with its
    intent."""
    real, calls = GcpCalls.call, 0

    def until(number: int) -> Callable[..., Any]:
        # Whatever the method takes.
        def call(self: GcpCalls, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            nonlocal calls
            calls += 1
            if calls == number and not after:
                raise Killed
            answer = real(self, *arguments, **named)
            if calls == number:
                raise Killed
            return answer

        return call

    number, finished = 0, False
    while not finished:
        number, calls = number + 1, 0
        with world(tmp_path / str(number)) as made:
            with monkeypatch.context() as patch:
                patch.setattr(GcpCalls, "call", until(number))
                try:
                    made.provider().create(order())
                    finished = True
                except Killed:
                    pass
            machines = made.provider().create(order(lease_until=wall_us() + 11 * MINUTE))
            rented = {one.id for one in made.server.machines()}
            assert {one.id for one in machines} == rented
            assert 1 <= len(rented) <= 2
            listed = made.provider().list(RUN)
            assert [(one.id, one.tags[INTENT_TAG]) for one in listed] == [
                (one.id, "1") for one in machines
            ]
            made.provider().remove(
                [one for one in made.provider().resources(RUN) if one.kind != "machine"]
            )
    assert number > 8
