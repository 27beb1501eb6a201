"""Deliberate bugs of the provider of Azure."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import SECOND
from spotctl.agent.container.payload import Payload
from spotctl.clouds.azure import buyer, groups, inventory, orders
from spotctl.clouds.azure.buyer import AzureBuyer
from spotctl.clouds.azure.calls import AzureCalls, Operation
from spotctl.clouds.azure.groups import Removal
from spotctl.clouds.azure.inventory import Inventory, OrderOutcome, ends
from spotctl.clouds.azure.orders import GROUP_MARK, GROUP_TAG, MachineId, machine_name
from spotctl.clouds.errors import NoCapacity, ProviderError
from spotctl.clouds.provider import EndReason, Machine, MachineState, Resource
from tests.spotctl.clouds.azure.world import BID, MARKET, UNKNOWN, World, order, running_world
from tests.spotctl.clouds.contract import ProviderContract, Setting
from tests.spotctl.clouds.provider_mutation import ProviderMutant

SIZE = (MARKET.region, MARKET.instance_type)


def contract(test: Callable[[Any, Setting], None]) -> Callable[[Path], None]:
    def trial(_: Path) -> None:
        with running_world() as world:
            pause: Callable[[float], None] = lambda seconds: time.sleep(min(seconds, 1.0))  # noqa: E731
            payload, provider_ = Payload("work", ("/bin/sh", "-c", "exit 3")), world.provider()
            setting = Setting(
                provider_, MARKET, BID, UNKNOWN, payload, pause, slack=SECOND, patience_seconds=20
            )
            test(ProviderContract(), setting)

    return trial


def in_world(test: Callable[[World], None]) -> Callable[[Path], None]:
    def trial(_: Path) -> None:
        with running_world() as world:
            test(world)

    return trial


def gone(world: World, machine: Machine) -> Machine:
    """A machine once it is gone, for which a few seconds are enough."""
    give_up = time.monotonic() + 20
    while True:
        found = next(one for one in world.provider().list({}) if one.id == machine.id)
        if found.state is MachineState.GONE:
            return found
        assert time.monotonic() < give_up, "it is never gone"
        time.sleep(0.02)


def bought(world: World, **changes: Any) -> Machine:  # noqa: ANN401 - of any field
    return world.provider().create(order(machines=1, **changes))[0]


def evicted_and_nothing_left(world: World) -> None:
    machine = bought(world)
    world.server.evict(machine.id, None)
    (evicted,) = world.provider().list({})
    assert (evicted.state, evicted.end_reason) == (MachineState.GONE, EndReason.EVICTED)
    left = {one.kind.rpartition("/")[2] for one in world.server.resources()}
    assert left == {"resourceGroups", "virtualNetworks", "networkSecurityGroups"}


def deleted_by_itself(world: World) -> None:
    machine = bought(world)
    (name,) = world.host.running()
    world.host.delete_itself(name)
    assert gone(world, machine).end_reason is EndReason.LEASE_ENDED


def too_expensive(world: World) -> None:
    world.server.fleet.prices[SIZE] = 2 * BID
    with pytest.raises(NoCapacity):
        bought(world)


def refused(world: World) -> None:
    world.server.fleet.capacity[SIZE] = 0
    with pytest.raises(NoCapacity):
        bought(world)


def partly_refused(world: World) -> None:
    world.server.fleet.capacity[SIZE] = 1
    assert len(world.provider().create(order())) == 1
    kinds = [one.kind.rpartition("/")[2] for one in world.server.resources()]
    assert kinds.count("virtualMachines") == 1


def admitted(world: World) -> None:
    bought(world)
    (rules,) = world.server.vm(machine_name("t1", 0)).group.of_kind(
        "Microsoft.Network/networkSecurityGroups"
    )
    for rule in rules.body["properties"]["securityRules"]:
        assert rule["properties"]["sourceAddressPrefixes"] == ["203.0.113.7/32"]


def tagged(world: World) -> None:
    tags = {**order().tags, "team": "[R&D]"}
    assert (
        dict(bought(world, tags=tags).tags)
        == dict(world.provider().list({"team": "[R&D]"})[0].tags)
        == tags
    )


def strangers_are_left_alone(world: World) -> None:
    bought(world)
    world.provider().terminate(["azure:eastus:company/database"])
    assert not [one for one in world.server.server.requests if one.method == "DELETE"]


def groups_of_others_are_left_alone(world: World) -> None:
    machine = bought(world)
    here = world.provider()
    found = here.resources({})
    world.server.vm(machine.id).group.tags = {"owner": "somebody"}
    here.remove([one for one in found if one.kind == "resource group"])
    assert len(world.host.running()) == 1


def foreign_groups_are_not_used(world: World) -> None:
    world.server.add_group(orders.group_name(order().tags), "eastus", {"owner": "somebody"})
    with pytest.raises(Exception, match="was not made for this run"):
        bought(world)


def listed_late(world: World) -> None:
    world.server.fleet.late = 2
    here = world.provider()
    here.create(order())
    assert {one.state for one in here.list({})} == {MachineState.RUNNING}


def console_is_shown(world: World) -> None:
    machine = bought(world)
    world.host.write_console(world.host.running()[0], "host key ssh-ed25519 AAAA")
    world.provider().link(machine.id)
    assert "AAAA" in world.agents.linked[0].console()


def gone_before_the_answer(world: World) -> None:
    first = bought(world)
    world.server.evict(first.id, None)
    again = bought(world)
    assert (again.id, again.state) == (first.id, MachineState.GONE)
    assert len(world.server.machines()) == 1


def served_again_with_another_lease(world: World) -> None:
    asked = order()
    first = world.provider().create(asked)
    again = world.provider().create(replace(asked, lease_until=asked.lease_until + 3600 * SECOND))
    assert [one.id for one in again] == [one.id for one in first]


def failures_are_raised(world: World) -> None:
    machine = bought(world)
    world.server.access.denied.add("Microsoft.Compute/virtualMachines/delete")
    with pytest.raises(ProviderError):
        world.provider().terminate([machine.id])


_purchase, _disk, _connection, _machine, _network = (
    orders._purchase,
    orders._disk,
    orders._connection,
    orders._machine,
    orders._network,
)
_find = AzureCalls.find


def _changed(usual: Callable[..., Any], change: Callable[[Any], object]) -> Callable[..., Any]:
    """The usual function, whose result is changed afterwards."""

    def fault(*arguments: Any) -> Any:  # noqa: ANN401 - as the usual function
        made = usual(*arguments)
        change(made)
        return made

    return fault


# A body.
def _never_deployed(self: AzureCalls, operation: Operation, *named: object, **options: Any) -> Any:  # noqa: ANN401
    return (
        None if operation is Operation.GET_DEPLOYMENT else _find(self, operation, *named, **options)
    )


def _all_granted(
    _: Inventory,
    group: str,  # noqa: ARG001
    deployment: Any,  # noqa: ARG001, ANN401
    machines: frozenset[str],
) -> OrderOutcome:
    return OrderOutcome(ended=True, granted=machines)


def _unread_log(events: Any, _: frozenset[str]) -> Any:  # noqa: ANN401 - events of the log
    return ends(events, frozenset())


def _any_id(text: str) -> MachineId | None:
    matched = re.fullmatch(r"azure:([^:]+):([^/]+)/(.+)", text)
    return None if matched is None else MachineId(*matched.groups())


@contextmanager
def _suppressing(subject: str = "") -> Iterator[None]:  # noqa: ARG001 - as the usual one
    with suppress(Exception):
        yield


def _unchecked(self: Removal, resource: Resource) -> bool:
    self._calls.send(Operation.DELETE_GROUP, resource.id.rpartition("/")[2])
    return True


def _open(resources: list[Any]) -> None:
    resources[0]["properties"]["securityRules"][0]["properties"]["sourceAddressPrefixes"] = [
        "0.0.0.0/0"
    ]


def mutant(
    name: str,
    where: object,
    attribute: str,
    fault: Callable[..., Any],
    trial: Callable[[Path], None],
) -> ProviderMutant:
    return ProviderMutant("azure", name, where, attribute, fault, trial)


OF_AZURE = (
    mutant(
        "deployments are not named after the token",
        buyer,
        "deployment_name",
        lambda _: f"spotctl-{secrets.token_hex(8)}",
        contract(ProviderContract.test_a_token_is_served_once),
    ),
    mutant(
        "a token is sent again without asking whether it was served",
        AzureCalls,
        "find",
        _never_deployed,
        in_world(gone_before_the_answer),
    ),
    mutant(
        "a token is served to any request",
        orders,
        "fingerprint_of",
        lambda _: "0",
        contract(ProviderContract.test_a_token_belongs_to_one_request),
    ),
    mutant(
        "the end of a lease belongs to the request",
        orders,
        "fingerprint_of",
        lambda request: str(request.lease_until),
        in_world(served_again_with_another_lease),
    ),
    mutant(
        "groups are not tagged",
        groups,
        "checked",
        lambda _: {GROUP_TAG: GROUP_MARK},
        contract(ProviderContract.test_machines_are_listed_by_their_tags),
    ),
    mutant(
        "a tag in brackets is evaluated", orders, "_literal", lambda value: value, in_world(tagged)
    ),
    mutant(
        "an evicted machine is only stopped",
        orders,
        "_purchase",
        _changed(_purchase, lambda made: made.update(eviction_policy="Deallocate")),
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "spot machines are bought on demand",
        orders,
        "_purchase",
        lambda _: {"priority": "Regular"},
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "spot machines are bought at any price",
        orders,
        "_purchase",
        _changed(_purchase, lambda made: made.update(billing_profile={"maxPrice": -1})),
        in_world(too_expensive),
    ),
    mutant(
        "the disk outlives its machine",
        orders,
        "_disk",
        _changed(_disk, lambda made: made.pop("deleteOption")),
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "interface and address outlive their machine",
        orders,
        "_connection",
        _changed(
            _connection,
            lambda made: made["networkInterfaceConfigurations"][0]["properties"].pop(
                "deleteOption"
            ),
        ),
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "a machine cannot delete itself",
        orders,
        "_machine",
        _changed(_machine, lambda made: made.pop("identity")),
        in_world(deleted_by_itself),
    ),
    mutant(
        "the console is not kept",
        orders,
        "_machine",
        _changed(_machine, lambda made: made["properties"].pop("diagnosticsProfile")),
        in_world(console_is_shown),
    ),
    mutant(
        "ssh is open to the world",
        orders,
        "_network",
        _changed(_network, _open),
        in_world(admitted),
    ),
    mutant(
        "a refusal after the order was accepted is not seen",
        Inventory,
        "_partial",
        _all_granted,
        in_world(refused),
    ),
    mutant(
        "what is left of refused machines stays",
        AzureBuyer,
        "_clear_refused",
        lambda *_: None,
        in_world(partly_refused),
    ),
    mutant(
        "a machine that is listed late counts as gone",
        Inventory,
        "_confirmed",
        lambda _, missing, alive: iter(missing),  # noqa: ARG005 - as the usual one
        in_world(listed_late),
    ),
    mutant(
        "the end of a lease counts as a return",
        inventory,
        "ends",
        _unread_log,
        in_world(deleted_by_itself),
    ),
    mutant(
        "refusals are swallowed", groups, "translated", _suppressing, in_world(failures_are_raised)
    ),
    mutant(
        "machines of others are ended",
        MachineId,
        "parse",
        _any_id,
        in_world(strangers_are_left_alone),
    ),
    mutant(
        "a group that others have taken over is removed",
        Removal,
        "_delete_group",
        _unchecked,
        in_world(groups_of_others_are_left_alone),
    ),
    mutant(
        "groups of others are used",
        groups,
        "_is_ours",
        lambda *_: True,
        in_world(foreign_groups_are_not_used),
    ),
)
