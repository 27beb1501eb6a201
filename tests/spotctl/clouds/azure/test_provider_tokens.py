"""A token is served once, whatever happens between the request and its answer."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from spotctl.clouds.azure.orders import deployment_name, machine_name
from spotctl.clouds.errors import NoCapacity, TokenTaken, Unanswered
from spotctl.clouds.provider import MachineState
from tests.servers.loopback import Fault, Reply
from tests.spotctl.clouds.azure.world import MARKET, World, order, running_world

SIZE = (MARKET.region, MARKET.instance_type)


def created(world: World) -> list[str]:
    """The machines that Azure ever started."""
    return [one.id.rpartition("/")[2] for one in world.server.machines()]


@pytest.mark.parametrize(
    "fault", [{"cut": 10}, {"reply": Reply(503)}], ids=["answer lost", "not carried out"]
)
def test_any_call_may_fail_and_the_request_be_repeated_by_another_process(
    fault: dict[str, Any],
) -> None:
    """Each call in turn is carried out but its answer is cut off, or it is not carried out."""
    for number in count():
        with running_world() as world:
            failing = Fault("", skip=number, **fault)
            world.server.server.faults.append(failing)
            request = order()
            try:
                machines = world.provider().create(request)
            except Unanswered:
                machines = world.provider().create(request)
            assert created(world) == [machine_name("t1", 0), machine_name("t1", 1)]
            assert [one.id.rpartition("/")[2] for one in machines] == created(world)
        if failing.times:
            break
    assert number > 10


def test_machines_that_are_gone_are_not_bought_again_by_another_process(world: World) -> None:
    first = world.provider().create(order())
    for one in first:
        world.server.evict(one.id, None)
    again = world.provider().create(order())
    assert [(one.id, one.state) for one in again] == [(one.id, MachineState.GONE) for one in first]
    assert len(created(world)) == 2


@pytest.mark.parametrize("by", ["eviction", "deletion"])
def test_a_machine_that_went_before_its_lost_answer_arrived_is_not_bought_again(
    world: World, by: str
) -> None:
    """Azure carries the order out, its answer is lost, and the machine is gone when the request is
    repeated.
    """
    world.server.server.faults.append(Fault("/deployments/", skip=1, cut=10))
    asked = order(machines=1)
    with pytest.raises(Unanswered):
        world.provider().create(asked)
    (name,) = created(world)
    if by == "eviction":
        world.server.evict(name, None)
    else:
        deleted = world.server.vm(name)
        world.server.fleet.end_bill(deleted, "deleted")
        world.server.fleet.vanish(deleted)
    for provider in (world.provider(), world.provider()):
        (again,) = provider.create(asked)
        assert (again.id.rpartition("/")[2], again.state) == (name, MachineState.GONE)
    assert created(world) == [name]
    deployed = [
        one
        for one in world.server.server.requests
        if one.method == "PUT" and "/deployments/" in one.path
    ]
    assert len(deployed) == 1


def test_the_same_token_in_another_run_is_refused(world: World) -> None:
    world.provider().create(order())
    tags = dict(order().tags) | {"spotctl-run": "night-2"}
    with pytest.raises(TokenTaken, match="t1"):
        world.provider().create(order(tags=tags))
    other = world.provider().create(order(tags=tags | {"spotctl-installation": "another"}))
    assert len(other) == 2


def test_a_group_of_that_name_that_is_not_ours_is_left_alone(world: World) -> None:
    group = world.provider().create(order())[0].id.split(":")[2].partition("/")[0]
    world.server.close()
    with running_world() as other:
        other.server.add_group(group, "eastus", {"owner": "somebody"})
        with pytest.raises(Exception, match="was not made for this run"):
            other.provider().create(order())
        assert [dict(one.tags) for one in other.server.resources()] == [{"owner": "somebody"}]


def test_some_machines_of_an_order_are_refused(world: World) -> None:
    world.server.fleet.capacity[SIZE] = 1
    machines = world.provider().create(order(machines=3))
    assert len(machines) == 1
    assert world.provider().create(order(machines=3)) == machines
    provider = world.provider()
    assert [one.id for one in provider.list({})] == [one.id for one in machines]
    assert [one.id for one in provider.resources({}) if one.kind == "machine"] == [
        one.id for one in machines
    ]


def test_a_machine_that_failed_and_runs_all_the_same_is_listed(world: World) -> None:
    """Its system did not report in time: Azure bills it, and the launcher that would delete it is
    gone.
    """
    machines = world.provider().create(order(machines=2))
    failed = world.server.vm(machine_name("t1", 0))
    failed.state = "Failed"
    (deployment,) = failed.group.deployments.values()
    problem = {
        "code": "OSProvisioningTimedOut",
        "message": "OS Provisioning did not finish in the allotted time.",
    }
    deployment.steps = [
        (id_, problem if id_ == failed.id else error) for id_, error in deployment.steps
    ]
    provider = world.provider()
    assert {one.id for one in provider.list({})} == {one.id for one in machines}
    provider.terminate([machines[0].id])
    assert all(
        one.ended is not None for one in world.server.machines() if one.id.endswith(failed.name)
    )


def test_all_machines_of_an_order_are_refused(world: World) -> None:
    world.server.fleet.capacity[SIZE] = 0
    for _ in range(2):
        with pytest.raises(NoCapacity, match="AllocationFailed"):
            world.provider().create(order())
        world.server.fleet.capacity.clear()
    assert (created(world), world.provider().list({})) == ([], ())
    assert [one.kind for one in world.provider().resources({}) if one.kind == "machine"] == []
    assert len(world.provider().create(order("t2"))) == 2


def test_an_order_that_takes_longer_than_the_caller_waits(world: World) -> None:
    world.server.polls = 1000
    provider = world.provider()
    provider._patience_seconds = provider._poll_seconds = 0.0
    machines = provider.create(order())
    assert len(machines) == 2
    assert [one.id for one in world.provider().create(order())] == [one.id for one in machines]
    with pytest.raises(TokenTaken):
        world.provider().create(replace(order(), count=1))
    assert len(created(world)) == 2


def test_new_machines_that_are_listed_late_are_not_taken_for_gone(world: World) -> None:
    world.server.fleet.late = 3
    provider = world.provider()
    machines = provider.create(order())
    for _ in range(4):
        assert {(one.id, one.state) for one in provider.list({})} == {
            (one.id, MachineState.RUNNING) for one in machines
        }


def test_deployments_of_others_in_the_group_are_ignored(world: World) -> None:
    provider = world.provider()
    (machine, _) = provider.create(order())
    group = world.server.vm(machine.id).group
    group.deployments["other"] = replace(
        group.deployments[deployment_name("t1")], name="other", tags={}
    )
    assert len(provider.list({})) == 2
