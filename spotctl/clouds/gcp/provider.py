"""`GcpProvider`: spot machines of Compute Engine.

Google knows no bids: a request with a bid gets spot machines at Google's price, and the bid is only
recorded. Each machine is created by a call of its own, under a name derived from the request:
Google refuses a second machine with that name while the first exists, and for two weeks the
operations show that there was a first.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pricing_data.market import LINUX, Market
from spotctl.clouds.doctor import Requirement
from spotctl.clouds.errors import Answers, NotFound, NotPermitted, PartlyListed, each
from spotctl.clouds.gcp import calls, orders
from spotctl.clouds.gcp.calls import GcpCalls
from spotctl.clouds.gcp.cloud import GcpMachineSettings, GcpSettings
from spotctl.clouds.gcp.creation import Creation
from spotctl.clouds.gcp.doctor import GoogleNeeds, project_quotas, region_quotas
from spotctl.clouds.gcp.inventory import (
    Past,
    failure_of,
    gone_machine,
    last_part,
    machine_of,
    pasts,
    shared_resource,
)
from spotctl.clouds.gcp.machine_types import split_type
from spotctl.clouds.gcp.orders import selection
from spotctl.clouds.gcp.session import GcpSession
from spotctl.clouds.provider import (
    EndReason,
    Holdings,
    Machine,
    MachineRequest,
    MachineState,
    Resource,
)
from spotctl.clouds.remote.agents import RemoteAgents, RentingProvider
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import holdings_of
from spotctl.home.errors import SpotctlError
from spotctl.home.quotas import Quota

if TYPE_CHECKING:
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings


SSH_PORT = 22
_DELETIONS = {
    "disk": (calls.DELETE_DISK, "disk", "zone"),
    "firewall rule": (calls.DELETE_FIREWALL, "firewall", None),
    orders.POLICY_KIND: (calls.DELETE_POLICY, "resource_policy", "region"),
    "address": (calls.DELETE_ADDRESS, "address", "region"),
}
"""The call that deletes each kind of resource, its name in the request, and whether it is in a zone
or a region."""


class GcpProvider(RentingProvider):
    """See the module's text and `CloudProvider`. `session` is open as long as the provider is
    used."""

    name = orders.CLOUD
    usual_market = "CLOUDSDK_COMPUTE_REGION", "us-central1", "e2-micro"

    def __init__(
        self,
        session: GcpSession,
        settings: GcpMachineSettings,
        agents: RemoteAgents,
        prices: PriceBook,
    ) -> None:
        self._calls = GcpCalls(session)
        super().__init__(agents, prices)
        self._settings = settings
        # From the last list, so that a link to a machine needs no call: its address and whether it
        # has ended.
        self._seen: dict[str, RemoteMachine | None] = {}

    # One answer has all.
    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:  # noqa: ARG002
        answer = self._calls.call(calls.GET_REGION, f"quotas of {region}", region=region)
        stated = region_quotas(answer)
        with suppress(NotPermitted):  # roles from before spotctl read the project's quota
            project = self._calls.call(calls.GET_PROJECT, "quotas of the project")
            return (*stated, *project_quotas(project))
        return stated

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        if request.market.cloud != orders.CLOUD or request.market.os != LINUX:
            raise NotFound(f"{request.market}: not a market of Linux machines on Google Cloud")
        start_up = partial(self._agents.start_up, request, orders.CLOUD)
        creation = Creation(self._calls, self._settings, request, start_up, self.now)
        machines, instances = creation.carry_out()
        for instance in instances:
            self._see(instance)
        return machines

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        """See `CloudProvider`. The bids of machines that Google has deleted are no longer known.

        Machines in a zone that does not answer are left out: their operations do not say whether
        they have ended.
        """
        listed_everywhere = self._calls.listed_everywhere
        chosen = selection(tags)
        living, failure = listed_everywhere(calls.LIST_INSTANCES, "list of machines", chosen)
        of_machines = f'targetLink eq ".*/instances/{orders.names_of_machines(tags)}"'
        operations, unknown = listed_everywhere(
            calls.LIST_OPERATIONS, "list of operations", of_machines
        )

        by_place, failure = pasts(operations), failure or unknown
        listed = {}
        for instance in living:
            place = last_part(instance.zone), instance.name
            self._see(instance)
            listed[place] = machine_of(instance, by_place.get(place), self._settings.labels)

        parts = () if failure is None else failure.parts
        missing = []
        for place, past in by_place.items():
            is_silent = orders.machine_id(*place).startswith(parts)
            if place not in listed and past.failure is None and not is_silent:
                missing.append(past)

        machines = [machine for machine in listed.values() if machine is not None]
        machines += self._missing(missing, tags, machines)
        machines.sort(key=attrgetter("started", "id"))
        if failure is not None:
            raise PartlyListed(failure, machines, parts)

        return tuple(machines)

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Tries all, even if one fails; then raises the first failure."""
        places = {
            machine: place for machine in ids if (place := orders.place_of(machine)) is not None
        }
        each(partial(self._terminate, machine, *place) for machine, place in places.items())

    @property
    def endpoint(self) -> str:
        return self._calls.session.compute_host

    def checks(self, request: MachineRequest) -> Sequence[Requirement]:
        # Nothing boots, so no script is needed: `str` makes an empty one.
        creation = Creation(self._calls, self._settings, request, str, self.now)
        return GoogleNeeds(creation, self._settings, request).rows

    def check_order(self, request: MachineRequest) -> str:
        """See `CloudProvider`. Compute Engine has no dry run, so only the type and the image are
        looked up.
        """
        start_up = partial(self._agents.start_up, request, orders.CLOUD)
        return Creation(self._calls, self._settings, request, start_up, self.now).check()

    def simulate_eviction(self, machine: str) -> None:
        place = orders.place_of(machine)
        if place is None:
            raise NotFound(f"{machine}: not a machine of Google Cloud", (machine,))
        zone, name = place
        self._calls.call(
            calls.SIMULATE_EVICTION, f"eviction of {machine}", zone=zone, instance=name
        )

    def _terminate(self, machine: str, zone: str, name: str) -> None:
        what, failure = f"termination of {machine}", None
        for request_id in orders.end_ids(name, EndReason.RETURNED):
            operation = self._calls.unless_missing(
                calls.DELETE_INSTANCE, what, zone=zone, instance=name, request_id=request_id
            )
            failure = None if operation is None else failure_of(operation)
            if failure is None:
                return

        assert failure is not None
        raise calls.of_operation(what, *failure)

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        changing = []
        for rule in self._rules():
            name = rule.id.rpartition(":")[2]
            if tags.items() <= rule.tags.items() and name.endswith(orders.SSH_RULE):
                changing.append(name)

        for name in changing:
            what = f"firewall rule {name}"
            changed = {"name": name, "source_ranges": list(ssh_from)}
            # The same change may be wanted again after another one, so each call has an id of its
            # own.
            operation = self._calls.call(
                calls.PATCH_FIREWALL,
                what,
                firewall=name,
                firewall_resource=changed,
                request_id=str(uuid.uuid4()),
            )
            self._calls.finish(operation.name, what)

        return tuple(f"firewall rule {name}" for name in changing)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        chosen, mandatory = selection(tags), self._settings.labels
        own = f'name eq "{orders.PREFIX}.*"'
        listed_everywhere = self._calls.listed_everywhere
        machines, no_machines = listed_everywhere(calls.LIST_INSTANCES, "list of machines", chosen)
        disks, no_disks = listed_everywhere(calls.LIST_DISKS, "list of disks", chosen)
        addresses, no_addresses = listed_everywhere(
            calls.LIST_ADDRESSES, "list of addresses", chosen
        )
        policies, no_policies = listed_everywhere(
            calls.LIST_POLICIES, "list of placement policies", own
        )

        labelled = [("machine", machine, machine.status.lower()) for machine in machines]
        # A disk in use goes with its machine.
        labelled += [("disk", disk, f"{disk.size_gb} GiB") for disk in disks if not disk.users]
        labelled += [("address", address, address.address) for address in addresses]
        resources = []
        for kind, item, detail in labelled:
            place = last_part((item.region if kind == "address" else item.zone) or "")
            if kind == "address" and not place:
                place = "global"
            id_ = orders.machine_id(place, item.name)
            resources.append(Resource(kind, id_, orders.tags_of(item.labels, mandatory), detail))

        shared = list(self._rules())
        for policy in policies:
            held = shared_resource(orders.POLICY_KIND, policy)
            if held is not None:
                shared.append(held)
        resources += [held for held in shared if tags.items() <= held.tags.items()]

        failure = no_machines or no_disks or no_addresses or no_policies
        if failure is not None:
            raise PartlyListed(failure, resources, failure.parts)
        return tuple(resources)

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`. Tries all, even if one fails; then raises the first failure."""
        each(partial(self._remove, resource) for resource in resources)

    def _remove(self, resource: Resource) -> None:
        if resource.kind == "machine":
            self.terminate([resource.id])
            return
        if resource.kind not in _DELETIONS:
            return

        _, place, name = resource.id.split(":")
        method, named, where = _DELETIONS[resource.kind]
        what, request = f"removal of {resource.kind} {name}", {named: name}
        if where is not None:
            request[where] = place
        if method is calls.DELETE_ADDRESS:
            request["request_id"] = orders.end_ids(name, EndReason.RETURNED)[0]

        # A resource that does not exist counts as deleted; an address is not waited for.
        with suppress(NotFound):
            operation = self._calls.call(method, what, **request)
            if method is not calls.DELETE_ADDRESS:
                self._calls.finish(operation.name, what, None if where is None else place)

    def holdings(
        self, market: Market, *, spot: bool, disk_gib: int | None, image: str | None = None
    ) -> Holdings:
        settings, least = self._settings, 0
        # An image that Google does not describe cannot be ordered either.
        with suppress(SpotctlError):
            least = self._calls.least_gib(image or settings.image)
        disk = orders.disk_type(split_type(market.instance_type)[0])
        gib = orders.disk_gib(market.instance_type, settings, disk_gib, least)
        return holdings_of(
            market, self._prices.lists(), disk, gib, spot=spot, public_ip=settings.public_ip
        )

    def _missing(
        self, missing: Sequence[Past], tags: Mapping[str, str], listed: Sequence[Machine]
    ) -> Sequence[Machine]:
        """Machines that are not listed: most are gone, and some were created a moment ago."""
        of_runs = {orders.scope_of(machine.tags): machine.tags for machine in listed}
        scopes = {orders.scope_of(tags): tags, **of_runs}
        known = [(past, order[0].scope) for past in missing if (order := orders.parsed(past.name))]
        if any(scope not in scopes for _, scope in known):
            scopes |= {orders.scope_of(rule.tags): rule.tags for rule in self._rules()}

        machines: list[Machine] = []
        for past, scope in known:
            if scope not in scopes:
                continue
            machine: Machine | None = None
            end = past.end_if_missing(self.now())
            if end is not None:
                self._lose(orders.machine_id(past.zone, past.name))
                machine = gone_machine(past, end, scopes[scope])
            elif (instance := self._instance(past.zone, past.name)) is not None:
                self._see(instance)
                machine = machine_of(instance, past, self._settings.labels)
            if machine is not None and tags.items() <= machine.tags.items():
                machines.append(machine)

        return machines

    def _rules(self) -> tuple[Resource, ...]:
        chosen = f'name eq "{orders.PREFIX}.*"'
        firewalls = self._calls.listed(calls.LIST_FIREWALLS, "list of firewall rules", chosen)
        rules = [shared_resource("firewall rule", firewall) for firewall in firewalls]
        return tuple(rule for rule in rules if rule is not None)

    def _instance(self, zone: str, name: str) -> Any | None:  # noqa: ANN401  # the SDK's messages
        return self._calls.unless_missing(
            calls.GET_INSTANCE, f"machine {name}", zone=zone, instance=name
        )

    def _see(self, instance: Any) -> None:  # noqa: ANN401  # the SDK's messages
        """Remembers how to reach a machine, or that the machine has ended."""
        zone, name = last_part(instance.zone), instance.name
        known, machine = orders.parsed(name), orders.machine_id(zone, name)
        seen = machine_of(instance, None, {})
        if known is None or seen is None or seen.state is MachineState.GONE:
            self._lose(machine)
            return

        (interface,) = instance.network_interfaces
        outside = [config.nat_i_p for config in interface.access_configs if config.nat_i_p]
        is_public = outside and not self._settings.private_ssh
        address = outside[0] if is_public else interface.network_i_p
        self._seen[machine] = RemoteMachine(
            machine,
            known[1],
            address,
            SSH_PORT,
            partial(self._console, zone, name),
            partial(self._is_gone, zone, name),
        )

    def _lose(self, machine: str) -> None:
        """Forgets a machine that has ended."""
        if self._seen.get(machine, machine) is not None:
            self._seen[machine] = None
            self._agents.forget((machine,))

    def remote(self, machine: str) -> RemoteMachine:
        if machine not in self._seen and (place := orders.place_of(machine)) is not None:
            instance = self._instance(*place)
            if instance is not None:
                self._see(instance)
        if (remote := self._seen.get(machine)) is None:
            raise NotFound(f"{machine}: gone, or never existed", (machine,))
        return remote

    def _console(self, zone: str, name: str) -> str:
        what = f"console of machine {name}"
        return str(
            self._calls.call(calls.READ_CONSOLE, what, zone=zone, instance=name, port=1).contents
        )

    def _is_gone(self, zone: str, name: str) -> bool:
        instance = self._instance(zone, name)
        if instance is None:
            return True
        seen = machine_of(instance, None, {})
        return seen is None or seen.state is MachineState.GONE


def provider(
    settings: Settings,
    regions: tuple[str, ...],  # noqa: ARG001 - machines are listed in all regions at once
    agents: RemoteAgents,
    prices: PriceBook,
    answers: Answers,
) -> GcpProvider:
    """See `ProviderPart`."""
    access = GcpSettings(
        project=settings.text("gcp_project"),
        compute_endpoint=settings.text("gcp_compute_endpoint"),
        iam_endpoint=settings.text("gcp_iam_endpoint"),
    )

    # Google holds a question for the end of an operation for up to two minutes, and the run's loop
    # has other work.
    brief = replace(access, call_timeout_seconds=60.0, retry_deadline_seconds=20.0)
    return GcpProvider(
        GcpSession(brief, answers), settings.table("gcp", GcpMachineSettings), agents, prices
    )
