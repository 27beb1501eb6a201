"""The provider of a runner on one of its machines: buys only behind the fence, and returns its own machine last."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from pricing_data.market import Market
from pricing_data.units import MINUTE
from spotctl.clouds.base import Machine, MachineRequest, MachineState
from spotctl.clouds.capabilities import RentingProvider
from spotctl.clouds.errors import NotSent, Unanswered
from spotctl.run.elsewhere.errors import Superseded
from spotctl.run.elsewhere.fenced_provider import FencedProvider

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
        return tuple(Machine(one, MARKET, None, MachineState.RUNNING, 0, {}) for one in (OWN, OTHER))

    def terminate(self, ids: object) -> None:
        self.calls.append(("terminate", ids))

    def link(self, machine: str) -> Cloud:
        self.calls.append(machine)
        return self

    def renew(self, until: int) -> None:
        self.calls.append(until)


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
class World:
    cloud: Cloud = field(default_factory=Cloud)
    stops: bool = False

    def __post_init__(self) -> None:
        self.guard = Guard(self.cloud.calls)
        provider = cast("RentingProvider", self.cloud)
        self.fenced = FencedProvider(
            provider, self.guard, lambda: self.cloud.calls.append("copy"), OWN, lambda: self.stops, LEASE
        )

    @property
    def states(self) -> dict[str, MachineState]:
        return {machine.id: machine.state for machine in self.fenced.list({})}


def test_an_order_is_in_the_copy_and_behind_the_fence_before_it_is_placed() -> None:
    world = World()
    world.fenced.create(REQUEST)
    assert world.cloud.calls == ["copy", "hold", "job-1"]


def test_nothing_is_bought_while_the_object_store_fails() -> None:
    world = World()
    world.guard.fails = True
    with pytest.raises(Unanswered, match="nothing is bought"):
        world.fenced.create(REQUEST)
    assert world.cloud.calls == ["copy"]


def test_nothing_is_bought_once_the_run_is_asked_to_stop_while_its_log_is_copied() -> None:
    world = World(stops=True)
    with pytest.raises(NotSent):
        world.fenced.create(REQUEST)
    assert world.cloud.calls == ["copy", "hold"]


def test_a_superseded_runner_changes_nothing() -> None:
    world = World()
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
    world = World(stops=True)
    world.fenced.terminate([OWN, OTHER])
    assert world.cloud.calls == [("terminate", [OTHER])]
    assert world.states == {OWN: MachineState.GONE, OTHER: MachineState.RUNNING}
    assert world.fenced.resources({}) == ()
    world.fenced.return_own()
    assert world.cloud.calls[-1] == ("terminate", [OWN])


def test_the_own_machine_is_paid_for_until_the_run_looks() -> None:
    """A run that has returned its machines stores its results first, on that machine."""
    world = World(stops=True)
    world.fenced.terminate([OWN])
    world.cloud.time += MINUTE
    own = next(machine for machine in world.fenced.list({}) if machine.id == OWN)
    assert own.ended == world.cloud.time


def test_without_work_the_own_machine_goes_on_and_keeps_its_lease() -> None:
    world = World()
    world.fenced.terminate([OWN])
    assert world.states == {OWN: MachineState.RUNNING, OTHER: MachineState.RUNNING}
    assert world.states[OWN] is MachineState.RUNNING
    assert world.cloud.calls == [OWN, world.cloud.time + LEASE]
