"""A runner shows that it is alive, whatever else fails meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import cast

import pytest

from agileml.runtime.blob_store import UnreadableBlob
from pricing_data.market import Market
from spotctl.agent.data.stores import Content, StoreRefused
from spotctl.agent.errors import AgentError
from spotctl.log.outcomes import LogFailed
from spotctl.log.state import Allocation, Held, RunState
from spotctl.run.remote_runner import serving
from spotctl.run.remote_runner.fence import Claim, Fence, Superseded, is_anothers, settle
from spotctl.run.remote_runner.homes import LogCopier
from spotctl.run.remote_runner.place import Admission
from spotctl.run.remote_runner.serving import host_of, is_due
from tests.spotctl.run.remote_runner.test_fence import Cell, Clock


class Part:
    """A fence, a copier or an admission whose turn fails; `turns` counts."""

    def __init__(
        self, fails: Exception | None = None, then: Callable[[], None] = lambda: None
    ) -> None:
        self.turns, self._fails, self._then = 0, fails, then

    def renew(self) -> None:
        self.turns += 1
        self._then()
        if self._fails is not None:
            raise self._fails

    copy = turn = renew


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "COPY_SECONDS", 0.0)
    monkeypatch.setattr(serving, "BEAT_SECONDS", 0.0)


def attended(fence: Part, copier: Part, admission: Part, stop: threading.Event) -> None:
    serving.attend(
        cast("Fence", fence), cast("LogCopier", copier), cast("Admission", admission), stop
    )


@pytest.mark.parametrize(
    "failure",
    [
        LogFailed("the log is locked"),
        OSError("no answer"),
        UnreadableBlob("damaged"),
        AgentError("no token"),
    ],
)
def test_a_failure_beside_it_does_not_silence_a_runner(failure: Exception) -> None:
    stop = threading.Event()
    fence = Part(then=lambda: stop.set() if fence.turns >= 3 else None)
    copier, admission = Part(failure), Part(failure)
    attended(fence, copier, admission, stop)
    assert (fence.turns, copier.turns, admission.turns) == (3, 3, 3)


def test_a_runner_that_was_replaced_does_nothing_more() -> None:
    fence, copier = Part(Superseded("another took over")), Part()
    attended(fence, copier, Part(), threading.Event())
    assert (fence.turns, copier.turns) == (1, 0)


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
    for left in (
        {"ended": 5},
        {"returned_at": 5},
        {"warned_until": 9},
        {"running": False},
        {"leaves_at": 7},
    ):
        assert host_of(state(runner, replace(old, **left), new), "runner", "old") == "new"


def test_it_prefers_a_reliable_machine_and_never_that_of_the_runner() -> None:
    runner, spot, reliable = (
        held("runner", allocation=2),
        held("spot"),
        held("reliable", allocation=2, started=3),
    )
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
