"""Counts the calls for a machine and lists what is left of it, next to the requests that were once
written by hand.
"""

from __future__ import annotations

from collections.abc import Callable

from spotctl.clouds.provider import MachineState
from tests.spotctl.clouds.azure.world import World, order

CALLS_BEFORE = {
    "an order": 16,
    "a look": 3,
    "a look after the eviction": 6,
    "the order repeated": 7,
    "another order": 11,
    "a return": 1,
    "an order of four machines": 14,
}
"""The calls of these steps with the requests that spotctl wrote itself until f284581f, counted with
this server."""
LEFT_BEFORE = {"networkSecurityGroups", "virtualNetworks", "resourceGroups"}
"""The kinds of what that commit left of a machine that was evicted."""
MORE = {"an order of four machines": 6}
"""Addresses are read for each new machine, where one list each served all: the SDK that lists them
takes 30 MiB."""


def test_a_machine_costs_as_many_calls_as_with_requests_by_hand_and_leaves_as_little(
    world: World,
) -> None:
    calls: dict[str, int] = {}

    def counted(step: str, action: Callable[[], object]) -> None:
        before = len(world.server.server.requests)
        action()
        calls[step] = len(world.server.server.requests) - before

    provider, asked = world.provider(), order(machines=1)
    counted("an order", lambda: provider.create(asked))
    counted("a look", lambda: provider.list({}))
    (first,) = provider.list({})
    world.server.evict(first.id, None)
    counted("a look after the eviction", lambda: provider.list({}))
    assert {one.kind.rpartition("/")[2] for one in world.server.resources()} == LEFT_BEFORE
    counted("the order repeated", lambda: world.provider().create(asked))
    counted("another order", lambda: provider.create(order("t2", machines=1)))
    assert [one.state for one in provider.list({}) if one.id == first.id] == [MachineState.GONE]
    (returned,) = [one.id for one in provider.list({}) if one.id != first.id]
    counted("a return", lambda: provider.terminate([returned]))
    counted("an order of four machines", lambda: provider.create(order("t3", machines=4)))
    assert calls == {step: before + MORE.get(step, 0) for step, before in CALLS_BEFORE.items()}
