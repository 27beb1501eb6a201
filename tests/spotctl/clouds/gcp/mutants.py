"""Deliberate bugs of the provider of Google Cloud."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import SECOND
from spotctl.agent.container.payload import Payload
from spotctl.clouds.errors import NoCapacity, TokenTaken
from spotctl.clouds.gcp import creation, inventory, orders, provider
from spotctl.clouds.gcp.calls import GcpCalls
from spotctl.clouds.gcp.session import GcpSession
from spotctl.clouds.provider import EndReason, Machine, MachineState
from tests.spotctl.clouds.contract import ProviderContract, Setting
from tests.spotctl.clouds.gcp.world import BID, N2, RUN, UNKNOWN, World, order, world
from tests.spotctl.clouds.provider_mutation import ProviderMutant


@contextmanager
def setting(folder: Path) -> Iterator[Setting]:
    """What the contract runs on, without machines that run."""
    with world(folder) as made:
        pause: Callable[[float], None] = lambda seconds: time.sleep(min(seconds, 1.0))  # noqa: E731
        payload = Payload("work", ("/bin/sh", "-c", "exit 3"))
        yield Setting(
            made.provider(), N2, BID, UNKNOWN, payload, pause, slack=SECOND, patience_seconds=30
        )


def contract(test: Callable[[Any, Setting], None]) -> Callable[[Path], None]:
    def trial(folder: Path) -> None:
        with setting(folder) as one:
            test(ProviderContract(), one)

    return trial


def in_world(test: Callable[[World], None]) -> Callable[[Path], None]:
    def trial(folder: Path) -> None:
        with world(folder) as made:
            test(made)

    return trial


def gone(made: World, machine: Machine) -> Machine:
    """A machine once it is gone, for which a few seconds are enough."""
    give_up = time.monotonic() + 20
    while True:
        found = next(one for one in made.provider().list(RUN) if one.id == machine.id)
        if found.state is MachineState.GONE:
            return found
        assert time.monotonic() < give_up, "it is never gone"
        time.sleep(0.02)


def evicted_and_nothing_left(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1))
    made.server.evict(machine.id, None)
    assert gone(made, machine).end_reason is EndReason.EVICTED
    assert {left.kind for left in made.server.resources()} == {"firewall rule"}


def deleted_by_itself(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1))
    token = made.server.project.living(machine.id).metadata.token
    zone, name = machine.id.split(":")[1:]
    made.deleted_by_hand(f"projects/tide-pool-7/zones/{zone}/instances/{name}", token)
    assert gone(made, machine).end_reason is EndReason.LEASE_ENDED


def ended_by_google(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1))
    made.server.project.expire(machine.id)
    gone(made, machine)


def refused(made: World) -> None:
    made.server.project.refuse("us-central1-b", "ZONE_RESOURCE_POOL_EXHAUSTED")
    with pytest.raises(NoCapacity):
        made.provider().create(order(machines=1))


def returned_and_nothing_left(made: World) -> None:
    one = made.provider()
    (machine,) = one.create(order(machines=1))
    one.terminate([machine.id])
    gone(made, machine)
    one.remove(one.resources({}))
    assert made.server.resources() == ()


def admitted(made: World) -> None:
    made.provider().create(order(machines=1))
    for rule in made.server.rules():
        assert "0.0.0.0/0" not in rule.source_ranges
        assert rule.target_tags


def strangers_are_left_alone(made: World) -> None:
    made.provider().create(order(machines=1))
    made.provider().terminate(["gcp:us-central1-b:database"])
    assert not made.called("DELETE", "database")


def evicted_and_then_terminated(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1))
    made.server.evict(machine.id, None)
    before = gone(made, machine)
    made.provider().terminate([machine.id])
    assert gone(made, machine) == before


def the_token_of_machines_that_are_gone(made: World) -> None:
    (machine,) = made.provider().create(order(machines=1))
    made.server.evict(machine.id, None)
    gone(made, machine)
    with pytest.raises(TokenTaken):
        made.provider().create(order(machines=2))


def labelled(made: World) -> None:
    tags = {**order().tags, "team": "R&D"}
    (machine,) = made.provider().create(order(machines=1, tags=tags))
    assert machine.tags == made.provider().list({"team": "R&D"})[0].tags == tags


def served_again_with_another_lease(made: World) -> None:
    first = made.provider().create(order())
    asked = order()
    again = made.provider().create(replace(asked, lease_until=asked.lease_until + 3600 * SECOND))
    assert [one.id for one in again] == [one.id for one in first]
    assert len(made.server.machines()) == len(first)


_scheduling, _disk, _firewalls, _of = (
    orders._scheduling,
    orders._disk,
    orders.firewalls,
    orders.OrderName.of,
)
_scoped = GcpSession.scoped


def _scheduled(**changes: object) -> Callable[..., dict[str, object]]:
    return lambda *arguments: {**_scheduling(*arguments), **changes}


# The SDK's messages.
def _first_page_only(self: GcpSession, *arguments: Any) -> Iterator[Any]:  # noqa: ANN401
    yield from list(_scoped(self, *arguments))[:3]


mutant = partial(ProviderMutant, "gcp")

OF_GCP = (
    mutant(
        "names do not follow from the token",
        orders.OrderName,
        "of",
        lambda request: _of(replace(request, token=secrets.token_hex())),
        contract(ProviderContract.test_a_token_is_served_once),
    ),
    mutant(
        "names are the same for every request of a token",
        orders.OrderName,
        "of",
        lambda request: replace(_of(request), print="0000"),
        in_world(the_token_of_machines_that_are_gone),
    ),
    mutant(
        "the end of a lease belongs to the request",
        orders,
        "fingerprint",
        lambda request: f"{request.lease_until:016x}",
        in_world(served_again_with_another_lease),
    ),
    mutant(
        "no tags",
        orders,
        "labels_of",
        lambda _: {},
        contract(ProviderContract.test_machines_are_listed_by_their_tags),
    ),
    mutant(
        "tags are not made into labels", orders, "_escaped", lambda one: one, in_world(labelled)
    ),
    mutant(
        "what was deleted is forgotten",
        creation,
        "pasts",
        lambda _: {},
        contract(ProviderContract.test_a_token_is_not_served_again_when_its_machines_are_gone),
    ),
    mutant(
        "an evicted machine is only stopped",
        orders,
        "_scheduling",
        _scheduled(instance_termination_action="STOP"),
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "spot machines are bought on demand",
        orders,
        "_scheduling",
        _scheduled(provisioning_model="STANDARD"),
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "Google would let a machine run for ever",
        orders,
        "_scheduling",
        _scheduled(max_run_duration={}),
        in_world(ended_by_google),
    ),
    mutant(
        "the disk outlives its machine",
        orders,
        "_disk",
        lambda *arguments: {**_disk(*arguments), "auto_delete": False},
        in_world(returned_and_nothing_left),
    ),
    mutant("a refusal is swallowed", creation, "failure_of", lambda _: None, in_world(refused)),
    mutant(
        "what is gone already cannot be terminated",
        GcpCalls,
        "unless_missing",
        GcpCalls.call,
        in_world(evicted_and_then_terminated),
    ),
    mutant(
        "only the first page is read",
        GcpSession,
        "scoped",
        _first_page_only,
        contract(ProviderContract.test_machines_are_listed_by_their_tags),
    ),
    mutant(
        "evictions are not told from failures",
        inventory,
        "_ENDINGS",
        {}.copy(),
        in_world(evicted_and_nothing_left),
    ),
    mutant(
        "every deletion is the launcher's",
        inventory,
        "_reason_of_deletion",
        lambda *_: EndReason.RETURNED,
        in_world(deleted_by_itself),
    ),
    mutant(
        "ssh is open to the world",
        orders,
        "firewalls",
        lambda scope, network, _, tags: _firewalls(scope, network, ("0.0.0.0/0",), tags),
        in_world(admitted),
    ),
    mutant(
        "firewall rules are left behind",
        provider,
        "shared_resource",
        lambda *_: None,
        in_world(returned_and_nothing_left),
    ),
    mutant(
        "machines of others are deleted",
        orders,
        "place_of",
        lambda machine: tuple(machine.split(":")[1:]),
        in_world(strangers_are_left_alone),
    ),
)
"""Each is detected by a test of the contract, or by the server that is asked what is left."""
