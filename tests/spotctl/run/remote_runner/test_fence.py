"""The fence: after a takeover, the runner before buys nothing, whatever it was doing and whatever
got lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import example, given, strategies as st

from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.agent.data.locations import SharedObject
from spotctl.agent.data.stores import Content, ObjectChanged, StoreRefused
from spotctl.clouds.errors import NotSent, Unanswered
from spotctl.clouds.provider import CloudProvider, Holdings, Machine, MachineRequest, MachineState
from spotctl.run.remote_runner.fence import (
    STALE_SECONDS,
    WINDOW_SECONDS,
    Claim,
    Fence,
    FencedProvider,
    Superseded,
    Watch,
)


@dataclass
class Cell(SharedObject):
    """An object in memory. `lose` answers get lost after the write, `refuse` requests before it."""

    content: Content | None = None
    lose: int = 0
    refuse: int = 0
    writes: int = 0

    def read(self) -> Content | None:
        return self.content

    def write(self, data: bytes, version: str | None) -> str:
        if self.refuse:
            self.refuse -= 1
            raise StoreRefused("no answer")
        if version != (None if self.content is None else self.content.version):
            raise ObjectChanged("changed")
        self.writes += 1
        self.content = Content(data, str(self.writes))
        if self.lose:
            self.lose -= 1
            raise StoreRefused("no answer")
        return self.content.version

    @property
    def claim(self) -> Claim:
        assert self.content is not None
        return Claim.from_bytes(self.content.data)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    cell: Cell = field(default_factory=Cell)
    clock: Clock = field(default_factory=Clock)

    def fence(self, holder: str) -> Fence:
        return Fence(self.cell, holder, self.clock)


def test_a_renewal_opens_a_window() -> None:
    world = World()
    fence = world.fence("a")
    fence.hold()
    assert world.cell.writes == 1
    world.clock.now += WINDOW_SECONDS
    fence.hold()
    assert world.cell.writes == 2
    assert world.cell.claim == replace(world.cell.claim, epoch=1, holder="a", beat=1)


def test_who_was_superseded_buys_nothing_after_its_window() -> None:
    world = World()
    before = world.fence("a")
    after = world.fence("b")
    world.clock.now += WINDOW_SECONDS
    with pytest.raises(Superseded):
        before.hold()
    with pytest.raises(Superseded):
        before.check()
    after.hold()
    assert (world.cell.claim.epoch, world.cell.claim.holder) == (2, "b")


def test_of_two_that_take_over_at_once_one_is_refused() -> None:
    world = World()
    world.fence("a")
    seen = world.cell.content
    world.fence("b")

    class Late(Cell):
        def read(self) -> Content | None:
            return seen

        def write(self, data: bytes, version: str | None) -> str:
            return world.cell.write(data, version)

    with pytest.raises(ObjectChanged):
        Fence(Late(), "c", world.clock)
    assert world.cell.claim.holder == "b"


@pytest.mark.parametrize("lost", [True, False])
def test_a_renewal_without_an_answer_is_repeated(lost: bool) -> None:
    world = World()
    fence = world.fence("a")
    world.cell.lose, world.cell.refuse = int(lost), int(not lost)
    with pytest.raises(StoreRefused):
        fence.renew()
    fence.renew()
    fence.hold()
    assert world.cell.claim.holder == "a"


def test_a_store_that_answers_too_late_opens_no_window() -> None:
    world = World()
    fence = world.fence("a")
    world.clock.now += WINDOW_SECONDS
    write = world.cell.write

    def slow(data: bytes, version: str | None) -> str:
        world.clock.now += WINDOW_SECONDS
        return write(data, version)

    world.cell.write = slow  # type: ignore[method-assign]
    with pytest.raises(StoreRefused, match="too long"):
        fence.hold()


def test_a_silent_runner_is_given_up_and_one_that_ended_is_not() -> None:
    claim, watch = Claim(1, "a", "k"), Watch()
    assert not watch.is_stale(claim, 0.0)
    assert not watch.is_stale(claim, STALE_SECONDS)
    assert watch.is_stale(claim, STALE_SECONDS + 1)
    assert not watch.is_stale(replace(claim, beat=1), STALE_SECONDS + 2)
    done = replace(claim, ended=True)
    assert not watch.is_stale(done, STALE_SECONDS + 3)
    assert not watch.is_stale(done, 10 * STALE_SECONDS)


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["take", "buy", "lose", "refuse", "wait"])),
    min_size=5,
    max_size=40,
)


@given(STEPS)
@example(
    [
        (0, "take"),
        (4, "wait"),
        (4, "wait"),
        (0, "buy"),
        (1, "take"),
        (4, "wait"),
        (4, "wait"),
        (0, "buy"),
    ]
)
def test_no_two_processes_may_buy_after_the_last_window(steps: list[tuple[int, str]]) -> None:
    """A process buys only in its own epoch or, for at most one window, after the next one has
    begun.
    """
    world = World()
    fences: dict[int, Fence] = {}
    began: dict[int, float] = {}
    for number, step in steps:
        fence = fences.get(number)
        if step == "wait":
            world.clock.now += WINDOW_SECONDS / 2 + number
        elif step in ("lose", "refuse"):
            setattr(world.cell, step, 1)
        elif step == "take":
            try:
                fences[number] = world.fence(str(number))
            except StoreRefused:
                fences.pop(number, None)
            began.setdefault(world.cell.claim.epoch if world.cell.content else 0, world.clock.now)
        elif fence is not None:
            try:
                fence.hold()
            except (StoreRefused, Superseded):
                continue
            assert world.clock.now < began.get(fence.epoch + 1, world.clock.now) + WINDOW_SECONDS


MARKET = Market("aws", "r", "z", "t")
LEASE = 15 * MINUTE
REQUEST = MachineRequest("job-1", MARKET, 1, None, 0)
OWN, OTHER = "aws:r:own", "aws:r:other"


@dataclass
class Cloud:
    """What the runner's provider is asked, in order."""

    calls: list[object] = field(default_factory=list)
    time: int = 3_600_000_000
    name: str = "aws"

    def now(self) -> int:
        return self.time

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        self.calls.append(request.token)
        return ()

    def list(self, tags: object) -> tuple[Machine, ...]:  # noqa: ARG002
        return tuple(
            Machine(one, MARKET, None, MachineState.RUNNING, 0, {}) for one in (OWN, OTHER)
        )

    def terminate(self, ids: object) -> None:
        self.calls.append(("terminate", ids))

    def link(self, machine: str) -> Cloud:
        self.calls.append(machine)
        return self

    def renew(self, until: int) -> None:
        self.calls.append(until)

    def holdings(self, market: Market, *, spot: bool, disk_gib: int | None) -> Holdings:
        assert (market, spot, disk_gib) == (MARKET, True, 30)
        return Holdings(disk=7, address=5)


@dataclass
class Guard:
    """A claim, and whether it is lost."""

    calls: list[object]
    lost: bool = False
    fails: bool = False

    def check(self) -> None:
        if self.lost:
            raise Superseded("lost")

    def hold(self) -> None:
        self.check()
        if self.fails:
            raise OSError("no answer")
        self.calls.append("hold")


@dataclass
class ProviderWorld:
    cloud: Cloud = field(default_factory=Cloud)
    stops: bool = False

    def __post_init__(self) -> None:
        self.guard = Guard(self.cloud.calls)
        self.fenced = FencedProvider(
            cast("CloudProvider", self.cloud),
            cast("Fence", self.guard),
            lambda: self.cloud.calls.append("copy"),
            OWN,
            lambda: self.stops,
            LEASE,
        )

    @property
    def states(self) -> dict[str, MachineState]:
        return {machine.id: machine.state for machine in self.fenced.list({})}


def test_an_order_is_in_the_copy_and_behind_the_fence_before_it_is_placed() -> None:
    world = ProviderWorld()
    world.fenced.create(REQUEST)
    assert world.cloud.calls == ["copy", "hold", "job-1"]


def test_a_runner_on_a_machine_pays_for_the_disks_and_addresses_of_its_machines() -> None:
    assert ProviderWorld().fenced.holdings(MARKET, spot=True, disk_gib=30) == Holdings(
        disk=7, address=5
    )


def test_nothing_is_bought_while_the_object_store_fails() -> None:
    world = ProviderWorld()
    world.guard.fails = True
    with pytest.raises(Unanswered, match="nothing is bought"):
        world.fenced.create(REQUEST)
    assert world.cloud.calls == ["copy"]


def test_nothing_is_bought_once_the_run_is_asked_to_stop_while_its_log_is_copied() -> None:
    world = ProviderWorld(stops=True)
    with pytest.raises(NotSent):
        world.fenced.create(REQUEST)
    assert world.cloud.calls == ["copy", "hold"]


def test_a_superseded_runner_changes_nothing() -> None:
    world = ProviderWorld()
    world.guard.lost = True
    for call in (
        lambda: world.fenced.create(REQUEST),
        lambda: world.fenced.terminate([OTHER]),
        lambda: world.fenced.list({}),
        lambda: world.fenced.remove([]),
    ):
        with pytest.raises(Superseded):
            call()
    assert world.cloud.calls == ["copy"]


def test_the_own_machine_is_returned_last() -> None:
    world = ProviderWorld(stops=True)
    world.fenced.terminate([OWN, OTHER])
    assert world.cloud.calls == [("terminate", [OTHER])]
    assert world.states == {OWN: MachineState.GONE, OTHER: MachineState.RUNNING}
    assert world.fenced.resources({}) == ()
    world.fenced.return_own()
    assert world.cloud.calls[-1] == ("terminate", [OWN])


def test_the_own_machine_is_paid_for_until_the_run_looks() -> None:
    """A run that has returned its machines stores its results first, on that machine."""
    world = ProviderWorld(stops=True)
    world.fenced.terminate([OWN])
    world.cloud.time += MINUTE
    own = next(machine for machine in world.fenced.list({}) if machine.id == OWN)
    assert own.ended == world.cloud.time


def test_without_work_the_own_machine_goes_on_and_keeps_its_lease() -> None:
    world = ProviderWorld()
    world.fenced.terminate([OWN])
    assert world.states == {OWN: MachineState.RUNNING, OTHER: MachineState.RUNNING}
    assert world.states[OWN] is MachineState.RUNNING
    assert world.cloud.calls == [OWN, world.cloud.time + LEASE]
