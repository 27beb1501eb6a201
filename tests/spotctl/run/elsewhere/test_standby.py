"""When a standby takes over, and on which machine it waits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from pricing_data.market import Market
from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.blobs.conditional import Content
from spotctl.log.state import Allocation, Held, RunState
from spotctl.run.elsewhere.fence import Claim, Fence, is_anothers, settle
from spotctl.run.elsewhere.standby import host_of, is_due
from tests.spotctl.run.elsewhere.test_fence import Cell, Clock

MARKET = Market("aws", "r", "z", "t")


def state(*machines: Held) -> RunState:
    spot = Allocation(1, MARKET, 1, 2, 1.0, False, 0)
    reliable = replace(spot, number=2, bid=None, reliable=True)
    return RunState(allocations={1: spot, 2: reliable}, machines={one.id: one for one in machines})


def held(name: str, **values: object) -> Held:
    return replace(Held(name, 1, 0, 100, running=True), **values)  # type: ignore[arg-type]


def test_the_standby_stays_where_it_is_while_that_lasts() -> None:
    runner, old, new = held("runner", allocation=2), held("old", started=1), held("new", started=2)
    assert host_of(state(runner, old, new), "runner", None) == "old"
    assert host_of(state(runner, old, new), "runner", "new") == "new"
    for left in ({"ended": 5}, {"returned_at": 5}, {"warned_until": 9}, {"running": False}, {"leaves_at": 7}):
        assert host_of(state(runner, replace(old, **left), new), "runner", "old") == "new"


def test_it_prefers_a_reliable_machine_and_never_that_of_the_runner() -> None:
    runner, spot, reliable = held("runner", allocation=2), held("spot"), held("reliable", allocation=2, started=3)
    assert host_of(state(runner, spot, reliable), "runner", None) == "reliable"
    assert host_of(state(runner), "runner", None) is None


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Script:
    """What happens while the standby sleeps, each time; then nothing any more."""

    def __init__(self, clock: Clock, *steps: Callable[[], None]) -> None:
        self._clock, self._steps = clock, list(steps)
        self.slept = 0

    def __call__(self, seconds: float) -> None:
        self._clock.now += seconds
        self.slept += 1
        if self._steps:
            self._steps.pop(0)()


def test_it_takes_over_from_a_silent_runner_only(clock: Clock) -> None:
    cell = Cell()
    fence = Fence(cell, "runner", clock)
    script = Script(clock, *[fence.renew] * 20)
    assert is_due(cell, script, clock)
    assert script.slept > 20


@pytest.mark.parametrize("change", [{"ended": True}, {"failure": "a bug"}])
def test_it_does_not_take_over_what_has_ended(clock: Clock, change: dict[str, object]) -> None:
    cell = Cell()
    fence = Fence(cell, "runner", clock)
    fence.renew(**change)  # type: ignore[arg-type]
    assert not is_due(cell, Script(clock), clock)


def test_an_object_store_that_does_not_answer_proves_nothing(clock: Clock) -> None:
    cell = Cell()
    fence = Fence(cell, "runner", clock)
    read = cell.read
    silent = iter([*[True] * 30, False])

    def fails() -> Content | None:
        if next(silent, False):
            raise StoreRefused("no answer")
        return read()

    cell.read = fails  # type: ignore[method-assign]
    script = Script(clock, *[lambda: None] * 29, partial(fence.renew, ended=True))
    assert not is_due(cell, script, clock)
    assert script.slept == 30


def test_who_took_over_keeps_its_claim_while_it_waits(clock: Clock) -> None:
    cell = Cell()
    Fence(cell, "a", clock)
    fence = Fence(cell, "b", clock)
    settle(fence, lambda seconds: setattr(clock, "now", clock.now + seconds))
    assert (cell.claim.holder, cell.claim.beat) == ("b", 6)
    assert clock.now == 190.0


def test_a_runner_that_starts_again_leaves_the_run_to_another() -> None:
    cell = Cell()
    assert not is_anothers(cell, "a")
    Fence(cell, "", Clock())
    assert not is_anothers(cell, "a")
    Fence(cell, "a", Clock())
    assert (is_anothers(cell, "a"), is_anothers(cell, "b")) == (False, True)
    assert isinstance(cell.claim, Claim)
