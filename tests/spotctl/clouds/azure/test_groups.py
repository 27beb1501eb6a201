"""What exists under an installation's tags, and its removal."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest

from spotctl.clouds.errors import ProviderError, Unanswered
from spotctl.clouds.provider import EndReason, MachineState, Resource
from tests.cloud.azure_state import Item
from tests.servers.loopback import Fault, Reply
from tests.spotctl.clouds.azure.world import World, order
from tests.waiting import eventually

OURS = {"spotctl-installation": "home"}


def kinds(found: tuple[Resource, ...]) -> list[str]:
    return sorted(one.kind for one in found)


def test_everything_of_a_run_is_found_by_its_tags(world: World) -> None:
    world.provider().create(order())
    found = world.provider().resources(OURS)
    parts = ["address", "disk", "machine", "network interface"]
    assert kinds(found) == sorted([*parts, *parts, "network", "network rules", "resource group"])
    assert all(
        one.id.startswith("azure:") and one.tags["spotctl-run"] == "night-1" for one in found
    )
    assert world.provider().resources({"spotctl-installation": "another"}) == ()


def test_removing_the_group_removes_all_and_nothing_of_another_installation(world: World) -> None:
    provider = world.provider()
    provider.create(order())
    theirs = provider.create(order(tags=dict(order().tags) | {"spotctl-installation": "another"}))
    world.server.add_group("spotctl-lookalike", "eastus", OURS)
    provider.remove(provider.resources(OURS))
    assert provider.resources(OURS) == ()
    assert {one.id for one in provider.list({})} == {one.id for one in theirs}
    assert all(one.state is MachineState.RUNNING for one in provider.list({}))
    assert "spotctl-lookalike" in [one.id for one in world.server.resources()]
    provider.remove(provider.resources({}))
    assert [one.id for one in world.server.resources()] == ["spotctl-lookalike"]


@pytest.mark.parametrize(
    "fault", [{"lost": True}, {"reply": Reply(503)}], ids=["answer lost", "not carried out"]
)
def test_a_removal_goes_on_whichever_call_gets_no_answer(
    world: World, fault: dict[str, Any]
) -> None:
    provider = world.provider()
    for number in count():
        provider.create(order(f"t{number}"))
        found, failing = provider.resources(OURS), Fault("", skip=number, **fault)
        world.server.server.faults[:] = [failing]
        provider.remove(found)
        world.server.server.faults.clear()
        assert world.server.resources() == ()
        if failing.times:
            break
    assert number > 3


def test_what_cannot_be_removed_does_not_spare_the_others(world: World) -> None:
    provider = world.provider()
    provider.create(order())
    found = [one for one in provider.resources(OURS) if one.kind != "resource group"]
    disk = next(one.id.rpartition("/")[2] for one in found if one.kind == "disk")
    refused = {"error": {"code": "ScopeLocked", "message": "delete the lock first"}}
    provider.terminate([one.id for one in found if one.kind == "machine"])
    eventually(lambda: not world.host.running())
    world.server.server.faults.append(
        Fault(f"/disks/{disk}", Reply(409, json.dumps(refused).encode()), times=99)
    )
    with pytest.raises(ProviderError, match="delete the lock first"):
        provider.remove(found)
    world.server.server.faults.clear()
    assert "network rules" not in kinds(provider.resources(OURS))


def test_each_thing_can_be_removed_by_itself(world: World) -> None:
    provider = world.provider()
    provider.create(order())
    found = [one for one in provider.resources(OURS) if one.kind != "resource group"]
    provider.remove(found)
    assert kinds(provider.resources(OURS)) == ["resource group"]
    provider.remove(found)


def test_an_order_that_was_interrupted_leaves_a_group_that_is_found(world: World) -> None:
    world.server.server.faults.append(Fault("/resourceGroups/", cut=5, skip=2))
    with pytest.raises(Unanswered):
        world.provider().create(order())
    assert world.server.machines() == ()
    assert kinds(world.provider().resources(OURS)) == ["resource group"]
    world.provider().remove(world.provider().resources(OURS))
    assert world.server.resources() == ()


def test_parts_that_azure_left_behind_are_found_and_removed(world: World) -> None:
    """Azure promises to delete parts with their machine; where it fails to, they cost money."""
    provider = world.provider()
    (machine, _) = provider.create(order())
    group = world.server.vm(machine.id).group
    group.put(Item(group, "Microsoft.Compute/disks", "left", {"location": "eastus"}))
    provider.terminate([one.id for one in provider.list({})])
    eventually(lambda: all(one.state is MachineState.GONE for one in provider.list({})))
    (disk,) = [one for one in provider.resources(OURS) if one.kind == "disk"]
    provider.remove([disk])
    assert "disk" not in kinds(provider.resources(OURS))


def test_a_group_whose_tags_have_changed_since_is_left_alone(world: World) -> None:
    provider = world.provider()
    (machine, _) = provider.create(order())
    found = provider.resources(OURS)
    world.server.vm(machine.id).group.tags = {"owner": "somebody"}
    provider.remove([one for one in found if one.kind == "resource group"])
    assert len(world.host.running()) == 2


def test_a_group_that_azure_deletes_for_minutes_counts_as_removed(world: World) -> None:
    world.server.deletion_seconds = 3600.0
    provider = world.provider()
    provider.create(order())
    provider._patience_seconds, provider._poll_seconds = 0.5, 0.01
    provider.remove(provider.resources(OURS))
    (group,) = [left for left in provider.resources(OURS) if left.kind == "resource group"]
    assert group.detail == "being deleted"


def test_a_removal_that_takes_too_long_says_what_is_left(world: World) -> None:
    provider = world.provider()
    provider.create(order())
    network = [found for found in provider.resources(OURS) if found.kind == "network"]
    provider._patience_seconds = provider._poll_seconds = 0.0
    with pytest.raises(
        ProviderError, match=r"Azure is still deleting azure:/subscriptions/.*virtualNetworks"
    ):
        provider.remove(network)


def test_a_group_that_is_being_deleted_can_be_used_again_later(world: World) -> None:
    provider = world.provider()
    (machine, _) = provider.create(order())
    world.server.vm(machine.id).group.state = "Deleting"
    with pytest.raises(ProviderError, match="is being deleted"):
        provider.create(order("t2"))


def test_ids_of_other_clouds_and_of_nothing_are_ignored(world: World) -> None:
    provider = world.provider()
    provider.create(order())
    others = [
        "never",
        "aws:us-east-1:i-1",
        "azure:eastus:company/database",
        "azure:eastus:spotctl-x/spotctl-y",
    ]
    provider.terminate(others)
    assert len(world.host.running()) == 2
    assert all(
        "company" not in one.path for one in world.server.server.requests if one.method == "DELETE"
    )


def test_a_failure_to_end_one_machine_does_not_spare_the_others(world: World) -> None:
    provider = world.provider()
    first, second = provider.create(order())
    world.server.server.faults.append(Fault(first.id.rpartition("/")[2], Reply(500)))
    with pytest.raises(Unanswered):
        provider.terminate([first.id, second.id])
    eventually(lambda: len(world.host.running()) == 1)


def test_lists_of_many_pages(world: World) -> None:
    world.server.page_limit = 1
    provider = world.provider()
    machines = provider.create(order(machines=3))
    provider.create(order("t2", machines=1, tags=dict(order().tags) | {"spotctl-run": "night-2"}))
    assert len(machines) == 3
    assert len(provider.list({})) == 4
    assert len([one for one in provider.resources(OURS) if one.kind == "disk"]) == 4
    world.server.evict(machines[0].id, None)
    assert [one.end_reason for one in world.provider().list({}) if one.end_reason] == [
        EndReason.EVICTED
    ]
