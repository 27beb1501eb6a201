"""When and why machines ended, as far as Azure tells it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from spotctl.clouds.boot import BootSign
from spotctl.clouds.provider import EndReason, Machine, MachineState
from tests.servers.azure import SUBSCRIPTION
from tests.spotctl.clouds.azure.world import World, order
from tests.waiting import eventually


def bought(world: World, **changes: Any) -> Machine:  # noqa: ANN401 - of any field
    return world.provider().create(order(machines=1, **changes))[0]


def delete_by_hand(world: World, machine: Machine) -> None:
    """What its owner does in the portal."""
    group, _, name = machine.id.split(":")[2].partition("/")
    path = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"
    httpx.delete(world.server.url + path, params={"api-version": "2024-07-01"}).raise_for_status()


def delete_itself(world: World, _: Machine) -> None:
    (name,) = world.host.running()
    world.host.delete_itself(name)


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (lambda world, machine: world.server.evict(machine.id, None), EndReason.EVICTED),
        (lambda world, machine: world.provider().terminate([machine.id]), EndReason.RETURNED),
        (delete_by_hand, EndReason.RETURNED),
        (delete_itself, EndReason.LEASE_ENDED),
    ],
)
def test_another_process_learns_the_end_from_the_log(
    world: World, ending: Callable[[World, Machine], None], reason: EndReason
) -> None:
    machine = bought(world)
    before = time.time_ns() // 1000
    ending(world, machine)
    provider = world.provider()
    eventually(lambda: provider.list({})[0].state is MachineState.GONE)
    (gone,) = provider.list({})
    assert gone.end_reason is reason
    assert gone.ended is not None
    assert before <= gone.ended <= time.time_ns() // 1000
    assert abs(gone.started - machine.started) < 1_000_000
    assert provider.list({}) == (gone,)
    (bill,) = world.server.machines()
    assert bill.ended is not None
    assert abs(gone.ended - bill.ended) < 1_000_000


def test_an_eviction_that_the_log_does_not_tell_yet(world: World) -> None:
    world.server.fleet.log_delay_seconds = 1000.0
    machine = bought(world)
    here, elsewhere = world.provider(), world.provider()
    assert here.list({})[0].state is MachineState.RUNNING
    world.server.evict(machine.id, None)
    (gone,) = here.list({})
    assert (gone.state, gone.end_reason) == (MachineState.GONE, EndReason.EVICTED)
    (unknown,) = elsewhere.list({})
    assert (unknown.state, unknown.ended, unknown.end_reason) == (MachineState.GONE, None, None)
    assert here.list({}) == (gone,)


def test_an_on_demand_machine_that_vanishes_was_not_evicted(world: World) -> None:
    world.server.fleet.log_delay_seconds = 1000.0
    machine = bought(world, bid=None)
    provider = world.provider()
    provider.list({})
    delete_by_hand(world, machine)
    eventually(lambda: provider.list({})[0].state is MachineState.GONE)
    assert provider.list({})[0].end_reason is None


def test_a_returned_machine_is_known_as_returned_before_the_log_tells(world: World) -> None:
    world.server.fleet.log_delay_seconds = 1000.0
    machine = bought(world)
    provider = world.provider()
    provider.list({})
    provider.terminate([machine.id])
    eventually(lambda: provider.list({})[0].state is MachineState.GONE)
    assert provider.list({})[0].end_reason is EndReason.RETURNED


def test_a_return_that_azure_accepted_and_that_failed_is_seen_and_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = world.provider()
    (machine,) = provider.create(order(machines=1))
    world.server.failing_deletions = 1
    provider.terminate([machine.id])
    assert [one.state for one in provider.list({})] == [MachineState.LEAVING], "lists may be late"
    monkeypatch.setattr("spotctl.clouds.azure.inventory._DELETION_LISTED_AFTER", 0)
    assert [one.state for one in provider.list({})] == [MachineState.RUNNING]
    provider.terminate([machine.id])
    eventually(lambda: [one.state for one in provider.list({})] == [MachineState.GONE])


def test_without_the_right_to_read_the_log_only_the_reason_is_unknown(world: World) -> None:
    world.server.access.denied.add("Microsoft.Insights/eventtypes/values/read")
    machine = bought(world)
    world.server.evict(machine.id, None)
    (gone,) = world.provider().list({})
    assert (gone.state, gone.ended, gone.end_reason) == (MachineState.GONE, None, None)


def test_the_log_is_not_asked_at_every_turn(world: World) -> None:
    world.server.fleet.log_delay_seconds = 1000.0
    machine = bought(world)
    world.server.evict(machine.id, None)
    provider = world.provider()
    for _ in range(5):
        provider.list({})
    asked = [one for one in world.server.server.requests if "eventtypes" in one.path]
    assert len(asked) == 1


@pytest.mark.parametrize("machines", [1, 20])
def test_a_look_at_a_run_costs_three_calls_however_many_machines_it_has(
    world: World, machines: int
) -> None:
    provider = world.provider()
    provider.create(order(machines=machines))
    provider.list({})
    before = len(world.server.server.requests)
    assert len(provider.list({"spotctl-run": "night-1"})) == machines
    asked = [one.path.rpartition("/")[2].lower() for one in world.server.server.requests[before:]]
    assert asked == ["resourcegroups", "virtualmachines", "deployments"]


def test_the_agent_of_the_image_is_a_sign_of_a_boot_whose_console_is_late(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotctl.clouds.remote.agents.CHECKED_EVERY_SECONDS", 0.0)
    machine = bought(world)
    here = world.provider()
    states = "ProvisioningState/succeeded PowerState/running"
    assert here.boot_sign(machine.id) == BootSign("running", f"{states} Not Ready")
    (name,) = world.host.running()
    world.host.write_console(name, "-----BEGIN SSH HOST KEY KEYS-----\n")
    assert here.boot_sign(machine.id) == BootSign("running", f"{states} Ready")
    world.server.access.denied.add("Microsoft.Compute/virtualMachines/read")
    assert here.boot_sign(machine.id) == BootSign("running", f"{states} Ready"), (
        "nothing more is seen, and nothing ends"
    )
