"""`Creation`: carries out one request for machines, however often it is repeated.

The operations of the project record what earlier attempts did. Machines that exist, or existed, are
returned as they are. Once a token has a machine, no other machine is created for this token,
because nothing distinguishes a machine that was refused from one that an earlier attempt never
requested.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from pricing_data.errors import UnknownResource
from pricing_data.market import NO_ZONE
from pricing_data.units import parse_time
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    ProviderError,
    QuotaReached,
    Scope,
    TokenTaken,
    Unanswered,
)
from spotctl.clouds.gcp import calls, orders
from spotctl.clouds.gcp.calls import INSERT_POLICY, GcpCalls, NameTaken
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.gcp.inventory import (
    OperationFailure,
    Past,
    failure_of,
    gone_machine,
    last_part,
    machine_of,
    pasts,
)
from spotctl.clouds.gcp.machine_types import split_type
from spotctl.clouds.gcp.orders import REQUEST_LABEL, GcpHardware, description_of
from spotctl.clouds.provider import Machine, MachineRequest, fingerprint, run_tags
from spotctl.home.errors import BadRequest, SpotctlError

_REFUSED = (NoCapacity, QuotaReached, NotFound, NotHere, NotPermitted, NotYet, BadRequest)
_NEVER_CLOSE = frozenset("e2 f1 g1 n1 t2a t2d".split())
"""Series that no compact policy takes:
https://cloud.google.com/compute/docs/instances/placement-policies-overview"""


class Creation:
    """Creates the machines of one request. `start_up` makes the script with which the machines
    boot.
    """

    def __init__(
        self,
        calls: GcpCalls,
        settings: GcpMachineSettings,
        request: MachineRequest,
        start_up: Callable[[], str],
        now: Callable[[], int],
    ) -> None:
        self.calls, self._settings, self._request = calls, settings, request
        self._start_up, self._now = start_up, now
        self._order = orders.OrderName.of(request)

    def carry_out(self) -> tuple[tuple[Machine, ...], list[Any]]:
        """The machines, and Google's descriptions of those that exist. See
        `CloudProvider.create`."""
        type_ = self._request.market.instance_type
        if self._request.close and type_.partition("-")[0] in _NEVER_CLOSE:
            cure = "name other types"
            problem = (
                f"{self._request.market}: Google Cloud gives no {type_} a compact placement "
                f"policy (resources: {{placement: close}}); {cure}"
            )
            raise NotFound(problem)

        # The creations of earlier attempts with this token, by zone and name.
        chosen = f'targetLink eq ".*/instances/{self._order.any_print}"'
        operations, failure = self.calls.listed_everywhere(
            calls.LIST_OPERATIONS, "list of operations", chosen
        )
        region = f"{orders.CLOUD}:{self._request.market.region}"
        if failure is not None and any(part.startswith(region) for part in failure.parts):
            # An attempt in a zone that does not answer may have succeeded.
            raise Unanswered(str(failure)) from failure

        attempts = pasts(operations)
        for _, name in attempts:
            known = orders.parsed(name)
            if known is not None and known[0] != self._order:
                problem = (
                    f"token {self._request.token} belongs to another request, whose machine is "
                    f"{name}"
                )
                raise TokenTaken(problem)

        tried = {place: self._settle(past) for place, past in attempts.items()}
        created = [past for past in tried.values() if past.failure is None] or self._create(tried)
        created.sort(key=lambda past: int(past.name.rpartition("-")[2]))
        machines, instances = list[Machine](), []
        for past in created:
            machine, instance = self._machine(past)
            machines.append(machine)
            if instance is not None:
                instances.append(instance)

        return tuple(machines), instances

    def check(self) -> str:
        """Looks up the type and the image of a machine of the request, and returns the image's
        name. Nothing is created.
        """
        zone, hardware = next(self._zones())
        body = self._body(zone, self._order.machine(0), hardware)
        return str(self.calls.image(body["disks"][0]["initialize_params"]["source_image"]).name)

    def _settle(self, past: Past) -> Past:
        """Waits until a creation has succeeded or failed."""
        if not past.pending:
            return past
        operation = self.calls.wait_for(
            past.operation, f"creation of machine {past.name}", past.zone
        )
        return replace(past, pending=False, failure=failure_of(operation))

    def _create(self, tried: dict[tuple[str, str], Past]) -> list[Past]:
        """Creates machines in the first zone that has some. Raises the refusal if no zone has
        any."""
        refused: SpotctlError | None = None
        for zone, hardware in self._zones():
            if refused is None:
                self._admit(zone)
            if self._request.close:
                ensure_policy(self.calls, self._request, self._order.scope, zone)
            failures = {
                name: past.failure
                for (where, name), past in tried.items()
                if where == zone and past.failure
            }
            created, problem = self._create_in(zone, hardware, failures)
            if created:
                return created
            refused = problem
            # A refusal that holds for more than its zone is not worth another order in the region.
            if (
                not isinstance(problem, NoCapacity)
                and getattr(problem, "scope", None) is not Scope.ZONE
            ):
                break

        assert refused is not None, "some zone has the type, or none was yielded"
        raise refused

    def _zones(self) -> Iterator[tuple[str, GcpHardware]]:
        """The market's zones that have its machine type. NotFound: there are none.

        All requests of a run start with the same zone, unless its machines did not boot there.
        """
        market, is_found = self._request.market, False
        zones = [market.zone]
        if market.zone == NO_ZONE:
            zones = []
            with suppress(NotFound, BadRequest):
                region = self.calls.call(
                    calls.GET_REGION, f"region {market.region}", region=market.region
                )
                zones = sorted(last_part(zone) for zone in region.zones)

        start = int.from_bytes(self._order.scope.encode()) % max(len(zones), 1)
        name, attached = split_type(market.instance_type)
        places = map(orders.place_of, self._request.silent)
        dead = {place[0] for place in places if place is not None}

        for zone in sorted(zones[start:] + zones[:start], key=dead.__contains__):
            what = f"machine type {name} in {zone}"
            try:
                type_ = self.calls.call(calls.GET_MACHINE_TYPE, what, zone=zone, machine_type=name)
            except (NotFound, BadRequest):
                continue
            is_found = True
            is_arm, has_own_gpus = type_.architecture == "ARM64", bool(type_.accelerators)
            yield zone, GcpHardware(name, is_arm, has_own_gpus, attached)

        if not is_found:
            cure = "choose another type or region"
            raise NotFound(f"{market}: Google Cloud has no such machines there; {cure}")

    def _create_in(
        self, zone: str, hardware: GcpHardware, failures: dict[str, OperationFailure]
    ) -> tuple[list[Past], SpotctlError | None]:
        """The machines created in a zone, and the refusal of the others, if any."""
        problem: SpotctlError | None = None
        begun, failed_before = list[Past](), list[OperationFailure]()
        for index in range(self._request.count):
            name = self._order.machine(index)
            if (failure := failures.get(name)) is not None:
                failed_before.append(failure)
                continue
            try:
                begun.append(self._begin(zone, name, hardware))
            except _REFUSED as error:
                problem = error
                break

        settled = [self._settle(past) for past in begun]
        failed = [past.failure for past in settled if past.failure is not None]
        if problem is None and not failed:
            failed = failed_before[-1:]
        if failed:
            what = f"{self._request.market} in {zone}"
            problem = calls.of_operation(what, *failed[0])

        return [past for past in settled if past.failure is None], problem

    def _begin(self, zone: str, name: str, hardware: GcpHardware) -> Past:
        """Requests a machine."""
        body = self._body(zone, name, hardware)
        request_id = orders.create_id(name, zone, body)
        what = f"creation of a machine of {self._request.market} in {zone}"

        try:
            operation = self.calls.call(
                calls.INSERT_INSTANCE,
                what,
                zone=zone,
                instance_resource=body,
                request_id=request_id,
            )
        except NameTaken:
            # An earlier attempt created the machine, and its operation was not listed yet.
            return Past(zone, name, self._now(), "", pending=False)
        except NotFound as error:
            if isinstance(error.__cause__, UnknownResource):
                raise BadRequest(str(error)) from error
            raise

        return Past(zone, name, parse_time(operation.insert_time), operation.name, pending=True)

    def _body(self, zone: str, name: str, hardware: GcpHardware) -> dict[str, Any]:
        request, settings = self._request, self._settings
        least = self.calls.least_gib(request.image or settings.image)
        return orders.instance(
            request, settings, hardware, (zone, name), self._script, self._now(), least
        )

    @cached_property
    def _script(self) -> str:
        return self._start_up()

    def _admit(self, zone: str) -> None:
        """Makes the firewall rules of the run, unless the settings rely on the network's rules."""
        if self._settings.network_tags:
            return
        if not self._settings.ssh_from and (
            self._settings.network != "default" or self._settings.subnetwork
        ):
            problem = (
                f"{self._request.market}: no address may reach the machines over ssh: set "
                "ssh_from in [gcp] to your address range, or network_tags if the network has "
                "rules that admit you"
            )
            raise BadRequest(problem)

        tags, network = run_tags(self._request.tags), self._network(zone)
        rules = orders.firewalls(self._order.scope, network, self._settings.ssh_from, tags)
        chosen = f'name eq "{orders.network_tag(self._order.scope)}-.*"'
        listed = self.calls.listed(calls.LIST_FIREWALLS, "list of firewall rules", chosen)
        existing = {firewall.name for firewall in listed}

        for rule in rules:
            if rule["name"] in existing:
                continue
            what = f"firewall rule {rule['name']}"
            request_id = orders.create_id(str(rule["name"]), "global", rule)
            with suppress(NameTaken):
                operation = self.calls.call(
                    calls.INSERT_FIREWALL, what, firewall_resource=rule, request_id=request_id
                )
                self.calls.finish(operation.name, what)

    def _network(self, zone: str) -> str:
        """The network of the machines, to which the rules belong."""
        path = orders.subnetwork_of(self._request, self._settings, zone)
        if path is None:
            return self._request.network or self._settings.network

        region, name = path.split("/")[-3], path.split("/")[-1]
        what = f"subnetwork {name}"
        subnetwork = self.calls.unless_missing(
            calls.GET_SUBNETWORK, what, region=region, subnetwork=name
        )

        if subnetwork is None:
            cure = "check the [gcp] settings"
            raise BadRequest(f"gcp: there is no subnetwork {name} in {region}; {cure}")
        return str(subnetwork.network)

    def _machine(self, past: Past) -> tuple[Machine, Any | None]:
        what = f"machine {past.name}"
        instance = self.calls.unless_missing(
            calls.GET_INSTANCE, what, zone=past.zone, instance=past.name
        )

        if instance is not None:
            if instance.labels.get(REQUEST_LABEL) != fingerprint(self._request):
                problem = (
                    f"token {self._request.token} belongs to another request, whose machine is "
                    f"{what}"
                )
                raise TokenTaken(problem)
            machine = machine_of(instance, past, self._settings.labels)
            assert machine is not None, past.name
        else:
            end = past.end_if_missing(self._now())
            if end is None:
                raise ProviderError(f"{self._request.market}: {what} has disappeared; try again")
            machine = gone_machine(past, end, self._request.tags)

        request = self._request
        asked = replace(machine, market=request.market, bid=request.bid, tags=dict(request.tags))
        return asked, instance


def ensure_policy(calls: GcpCalls, request: MachineRequest, scope: str, zone: str) -> None:
    """Makes the policy of a run in a zone, unless the run has made it before."""
    name, region = orders.placement_policy(scope, zone), orders.region_of(zone)
    # Policies have no labels.
    tags = description_of(run_tags(request.tags))
    body = {
        "name": name,
        "description": tags,
        "group_placement_policy": {"collocation": "COLLOCATED"},
    }

    what = f"{orders.POLICY_KIND} {name}"
    # An id that Google knows would be answered with the policy that was removed since; the name is
    # never taken twice.
    with suppress(NameTaken):
        operation = calls.call(
            INSERT_POLICY,
            what,
            region=region,
            resource_policy_resource=body,
            request_id=str(uuid.uuid4()),
        )
        calls.finish(operation.name, what, region)
