"""`AzureBuyer`: makes what the machines of a request need, and buys the machines with one
deployment.

Below it stands what it asks before: which sizes and images can be had, and how many machines a
group of capacity reservations has free. Azure does not refuse more machines than are reserved: it
grants them on demand, within the quota, if it has any
(learn.microsoft.com/azure/virtual-machines/capacity-reservation-overallocate). So spotctl looks
before it buys. Two orders at the same moment may still get one machine too many.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pricing_data.catalog import AMD, ARM, completed
from pricing_data.errors import UnknownResource
from pricing_data.market import NO_ZONE, Market
from spotctl.clouds.azure.calls import (
    AzureCalls,
    Body,
    Operation,
    TrialOperation,
    of_deployment,
    translated,
)
from spotctl.clouds.azure.cloud import AzureMachineSettings
from spotctl.clouds.azure.groups import RunGroups, delete_machine
from spotctl.clouds.azure.inventory import Inventory
from spotctl.clouds.azure.machine_types import obstacle
from spotctl.clouds.azure.orders import (
    AzureOrder,
    DeploymentPlan,
    MachineId,
    deployment,
    deployment_name,
    group_name,
    network_id,
    zone_of,
)
from spotctl.clouds.azure.prices.records import machine_of
from spotctl.clouds.azure.session import VALIDATION_SECONDS
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotPermitted,
    QuotaReached,
    TokenTaken,
    Unanswered,
)
from spotctl.clouds.provider import Machine, MachineRequest
from spotctl.clouds.remote.home import host_key
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG

if TYPE_CHECKING:
    from spotctl.clouds.remote.agents import RemoteAgents


_CLOUD = "azure"


class AzureBuyer:
    """Buys for one subscription. `inventory` lists its machines; `groups` makes groups of runs.
    Caches save calls.
    """

    def __init__(
        self,
        calls: AzureCalls,
        settings: AzureMachineSettings,
        agents: RemoteAgents,
        patience_seconds: float,
        poll_seconds: float,
    ) -> None:
        self.inventory, self.groups = Inventory(calls), RunGroups(calls, settings.tags)
        self.calls, self._settings, self._agents = calls, settings, agents
        self._patience_seconds, self._poll_seconds = patience_seconds, poll_seconds
        self._sizes: dict[str, dict[str, AzureSize]] = {}
        self._networks: set[tuple[str, str]] = set()
        self._least_gib: dict[str, int] = {}

    def buy(self, request: MachineRequest) -> tuple[Machine, ...]:
        """The machines that Azure allocates; those that a token bought before, if it is sent again.

        TokenTaken: the token was used for another run.
        """
        group, identity = group_name(request.tags), self.identity_of(request)
        order, name = AzureOrder.of(request, identity), deployment_name(request.token)
        served = self.calls.find(Operation.GET_DEPLOYMENT, group, name)
        if served is None:
            image = self._image(request)
            # A deployment of this token in another group was made for another run.
            for other in self.groups.listed({}):
                other_name, tags = str(other["name"]), other.get("tags") or {}
                is_ours = tags.get(INSTALLATION_TAG) == order.tags.get(INSTALLATION_TAG)
                if is_ours and other_name != group:
                    known = self.calls.find(Operation.GET_DEPLOYMENT, other_name, name)
                    if known is not None:
                        _same(known, order)

            if request.reservation:
                request = replace(request, count=available(self.calls, request))
                order = replace(order, count=request.count)
            self.groups.ensure(request, group)
            self.groups.assign_role(group, identity)
            body = self._deployment(request, order, group, image)
            self.calls.send(Operation.DEPLOY, group, name, body)
        else:
            order = _same(served, order)

        return self._collect(order, group)

    def check(self, request: MachineRequest) -> str:
        """Has Azure validate an order, which buys nothing, and returns its image."""
        group = group_name(request.tags)
        order, image = AzureOrder.of(request, self.identity_of(request)), self._image(request)
        self.groups.ensure(request, group)
        body = self._deployment(request, order, group, image)
        name = deployment_name(request.token)
        answer = self.calls.send(TrialOperation.VALIDATE, group, name, body)
        if answer.status == 202:
            raise Unanswered(f"Azure has not validated {name} after {VALIDATION_SECONDS:g} s")

        if error := answer.body.get("error"):
            cause = (error.get("details") or [error])[0]
            raise of_deployment(
                str(cause.get("code", "")),
                f"Azure refuses the deployment: {cause.get('code')} {cause.get('message')}",
            )

        return ":".join(image.values())

    def sizes_in(self, region: str) -> dict[str, AzureSize]:
        """The sizes of a region by their names in small letters: Azure does not distinguish them by
        case.
        """
        if region not in self._sizes:
            sizes: dict[str, AzureSize] = {}
            for sku in self.calls.sizes(region):
                if sku.resource_type != "virtualMachines" or not sku.name:
                    continue
                barred: set[str] = set()
                for restriction in sku.restrictions or ():
                    if restriction.reason_code == _NOT_FOR_ACCOUNT:
                        about = restriction.restriction_info
                        zones = (about.zones if about else None) or ()
                        barred |= {*zones} if restriction.type == "Zone" else {NO_ZONE}

                has = {capability.name: capability.value for capability in sku.capabilities or ()}
                spot = has.get("LowPriorityCapable", "True") == "True"
                size = AzureSize(sku.name, has, spot, frozenset(barred), sku.family or "")
                sizes[sku.name.lower()] = size
            self._sizes[region] = sizes
        return self._sizes[region]

    def _image(self, request: MachineRequest) -> Mapping[str, str]:
        market = request.market
        if market.cloud != _CLOUD:
            raise NotFound(f"{market}: not a market on Azure")
        size = require(self.sizes_in(market.region), market, spot=request.bid is not None)
        return image_reference(size, request.image or self._settings.image)

    def least_gib(self, image: str | None) -> int:
        """The size of an image that the job or the settings name by its resource id; 0 if neither
        does, or if it may not be read."""
        named = image or self._settings.image or ""
        if named.startswith("/") and named not in self._least_gib:
            body, is_version = None, "/versions/" in named.lower()
            operation = Operation.GET_IMAGE_VERSION if is_version else Operation.GET_IMAGE
            with suppress(NotPermitted), translated(named):
                body = self.calls.find(operation, named)
            kept = (body or {}).get("properties", {}).get("storageProfile", {})
            gib = kept.get("osDiskImage", {}).get("sizeInGB")
            self._least_gib[named] = int(gib or kept.get("osDisk", {}).get("diskSizeGB") or 0)
        return self._least_gib.get(named, 0)

    def identity_of(self, request: MachineRequest) -> str:
        """The identity of a request's machines. BadRequest: there is none, or no way in for ssh."""
        identity = request.identity or self._settings.identity
        if identity is None:
            raise BadRequest(
                "Machines on Azure need a managed identity to delete themselves with: a machine "
                "that is only switched off is still billed; make one with spotctl setup azure, or "
                "set identity in [azure] to the resource id of yours"
            )

        settings = self._settings
        own_rules = not (request.network or settings.subnet or settings.security_group)
        if own_rules and settings.public_ip and not settings.ssh_from:
            raise BadRequest(
                "no address may reach the machines on Azure over ssh; set ssh_from in [azure] to "
                "yours, such as 203.0.113.7/32"
            )

        return identity

    def _deployment(
        self, request: MachineRequest, order: AzureOrder, group: str, image: Mapping[str, str]
    ) -> Body:
        region = request.market.region
        own_network = not (request.network or self._settings.subnet)
        if own_network and (group, region) not in self._networks:
            # The first machines of a run in a region bring the run's network.
            id_ = network_id(self.calls.group_id(group), region)
            is_made = self.calls.find(Operation.GET_NETWORK, id_) is not None
            if is_made:
                self._networks.add((group, region))
            own_network = not is_made
        else:
            own_network = False

        # Azure insists on an account with a key; the private half is thrown away.
        _, unusable_key = host_key(secrets.token_bytes(32))
        plan = DeploymentPlan(
            group_id=self.calls.group_id(group),
            order=order,
            image=image,
            identity=order.identity,
            start_up=self._agents.start_up(request, _CLOUD).encode(),
            admin_key=unusable_key,
            own_network=own_network,
            least_gib=self.least_gib(request.image),
        )

        return deployment(request, plan, self._settings)

    def _collect(self, order: AzureOrder, group: str) -> tuple[Machine, ...]:
        """Waits until an order has ended or all its machines are allocated, up to the limit.

        Raises Azure's refusal if none was granted.
        """
        give_up, name = time.monotonic() + self._patience_seconds, deployment_name(order.token)
        while True:
            served = self.calls.send(Operation.GET_DEPLOYMENT, group, name).body
            outcome = self.inventory.outcome(group, served)
            if outcome.ended or time.monotonic() >= give_up:
                break
            if all(self.inventory.is_allocated(group, machine) for machine in order.machine_names):
                break
            time.sleep(self._poll_seconds)

        if outcome.ended:
            # The remains of machines that Azure could not allocate.
            refused = [name for name in order.machine_names if name not in outcome.granted]
            for name in refused:
                if self.calls.find(Operation.GET_MACHINE, group, name):
                    machine = MachineId(order.market.region, group, name)
                    delete_machine(self.calls, self.inventory, machine)
            if not outcome.granted:
                raise of_deployment(
                    outcome.code,
                    f"{order.market}: Azure refused all {order.count} machines: {outcome.code} "
                    f"{outcome.message}",
                )

        own = {str(MachineId(order.market.region, group, name)) for name in order.machine_names}
        machines = tuple(machine for machine in self.inventory.machines(group) if machine.id in own)
        if not machines:
            problem = (
                f"{order.market}: Azure has accepted the order, but allocated no machine yet; try "
                "again"
            )
            raise Unanswered(problem)

        return machines


def _same(served: Body, order: AzureOrder) -> AzureOrder:
    """The order as a deployment served it, maybe with fewer machines. TokenTaken: it served another
    request.
    """
    known = AzureOrder.read(served.get("tags") or {})
    if known is None or known.fingerprint != order.fingerprint:
        what = "something else" if known is None else f"{known.count} machines of {known.market}"
        cure = "a different request needs a token of its own"
        raise TokenTaken(f"token {order.token} was used for {what}; {cure}")
    return known


_CORRECT: Final = "correct the job's reservations"
_ID: Final = re.compile(
    r"/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/[^/]+/[^/]+/([^/]+)", re.IGNORECASE
)


def available(calls: AzureCalls, request: MachineRequest) -> int:
    """The machines of a request that its reservations have now. NoCapacity: none. NotFound: no such
    machines are reserved."""
    match = _ID.fullmatch(request.reservation)
    if match is None:
        problem = (
            f"{request.market}: {request.reservation} is no id of a capacity reservation group; "
            f"{_CORRECT}"
        )
        raise NotFound(problem)

    owner, group, name = match.groups()
    try:
        member = _member(calls, match, request)
        shown = calls.send(
            Operation.GET_RESERVATION,
            group,
            name,
            member["name"],
            owner=owner,
            expand="instanceView",
        ).body
    except UnknownResource as error:
        problem = (
            f"{request.market}: Azure has no capacity reservation group {request.reservation}; "
            f"{_CORRECT}"
        )
        raise NotFound(problem) from error

    state = (shown["properties"].get("instanceView") or {}).get("utilizationInfo") or {}
    quantity = int(state.get("currentCapacity", shown["sku"]["capacity"]))
    elsewhere = sum((state.get("usedReservedCountBySubscription") or {}).values())
    used = len(state.get("virtualMachinesAllocated") or ()) + int(elsewhere)

    if used >= quantity:
        problem = f"{request.market}: all {quantity} machines of reservation {name} are in use"
        raise NoCapacity(problem)

    return min(request.count, quantity - used)


def _member(calls: AzureCalls, named: re.Match[str], request: MachineRequest) -> Body:
    """The group's reservation of the machines' size and zone; it has one of each at most."""
    owner, group, name = named.groups()
    market, zone, others = request.market, zone_of(request.market), list[str]()
    for member in calls.pages(Operation.LIST_RESERVATIONS, group, name, owner=owner):
        size = str(member["sku"]["name"])
        own, *_ = member.get("zones") or [NO_ZONE]
        if size.lower() == market.instance_type.lower() and own == zone:
            return member
        others.append(f"{size} {_place(own)}")

    there = ", ".join(others) or "nothing"
    wanted = f"{market.instance_type} {_place(zone)}"
    raise NotFound(f"{market}: {name} reserves no {wanted}, but {there}; {_CORRECT}")


def _place(zone: str) -> str:
    return "without a zone" if zone == NO_ZONE else f"in zone {zone}"


# Published by Canonical; `ubuntu-hpc` is Microsoft's, with the drivers of NVIDIA and CUDA, or of
# AMD and ROCm. All are Ubuntu 24.04, because spotctl needs Python 3.11.
_X64, _ARM64, _NVIDIA, _AMD = (
    "Canonical:ubuntu-24_04-lts:server:latest",
    "Canonical:ubuntu-24_04-lts:server-arm64:latest",
    "microsoft-dsvm:ubuntu-hpc:2404:latest",
    "microsoft-dsvm:ubuntu-hpc:2404-rocm:latest",
)
_NOT_FOR_ACCOUNT: Final = "NotAvailableForSubscription"


@dataclass(frozen=True, slots=True)
class AzureSize:
    """Azure's description of a machine size in a region. `barred`: zones closed to the account
    (`-`: all). On-demand machines count against the quota of their `family`."""

    name: str
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    spot: bool = True
    barred: frozenset[str] = frozenset()
    family: str = ""


def require(sizes: dict[str, AzureSize], market: Market, *, spot: bool) -> AzureSize:
    """The size of a market. NotFound: the region does not have it. QuotaReached: the account may
    not use it.
    """
    size = sizes.get(market.instance_type.lower())
    if size is None:
        raise NotFound(f"{market}: Azure has no size {market.instance_type} in {market.region}")
    if size.barred & {NO_ZONE, zone_of(market)}:
        cure = "request access in the portal"
        raise QuotaReached(f"{market}: the subscription may not use this size there; {cure}")
    if spot and not size.spot:
        raise NoCapacity(f"{market}: Azure does not offer this size as Spot; rent it on demand")

    return size


def image_reference(size: AzureSize, image: str | None) -> dict[str, str]:
    """The image for a size: the requested one, or else Ubuntu. BadRequest: no image that spotctl
    knows runs on it.
    """
    if image is None:
        machine = next(completed([machine_of(size.name, size.capabilities)]))
        if problem := obstacle(machine):
            cure = "name an image that does (image: {azure: ...})"
            raise BadRequest(f"{size.name}: {problem}; {cure}")
        if machine.accelerators:
            image = _AMD if machine.traits.driver == AMD else _NVIDIA
        else:
            image = _ARM64 if machine.traits.architecture == ARM else _X64

    if image.startswith("/"):
        return {"id": image}

    parts = image.split(":")
    if len(parts) != 4 or not all(parts):
        raise BadRequest(
            f"image {image!r} is neither publisher:offer:sku:version nor a resource id"
        )

    return dict(zip(("publisher", "offer", "sku", "version"), parts, strict=True))
