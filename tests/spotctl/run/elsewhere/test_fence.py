"""The fence: after a takeover, the runner before buys nothing, whatever it was doing and whatever got lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, strategies as st

from spotctl.agent.blobs.bucket import ObjectChanged, StoreRefused
from spotctl.agent.blobs.conditional import Content
from spotctl.run.elsewhere.errors import Superseded
from spotctl.run.elsewhere.fence import STALE_SECONDS, WINDOW_SECONDS, Claim, Fence, Watch


@dataclass
class Cell:
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
    st.tuples(st.integers(0, 2), st.sampled_from(["take", "buy", "lose", "refuse", "wait"])), min_size=5, max_size=40
)


@given(STEPS)
def test_no_two_processes_may_buy_after_the_last_window(steps: list[tuple[int, str]]) -> None:
    """A process buys only in its own epoch or, for at most one window, after the next one has begun."""
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
