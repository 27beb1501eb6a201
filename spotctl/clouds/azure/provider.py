"""`AzureProvider`: virtual machines of Azure, Spot or on demand. All state is in Azure.

A token becomes the name of a deployment in the run's resource group. One request makes all machines of an order with
their disks, interfaces and addresses, which are deleted with the machines. The deployment remains, so a repeated token
finds its machines even when they are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from pricing_data.errors import CloudError
from pricing_data.market import Market
from spotctl.clouds.azure.access import AzureSettings
from spotctl.clouds.azure.calls import AzureCalls, Body, Operation, TrialOperation
from spotctl.clouds.azure.inventory import Inventory, OrderOutcome
from spotctl.clouds.azure.machine_role import RoleAssignments
from spotctl.clouds.azure.names import (
    GROUP_MARK,
    GROUP_TAG,
    AzureOrder,
    MachineId,
    checked,
    deployment_name,
    group_name,
    group_tags,
    index_of,
)
from spotctl.clouds.azure.refusals import refused, translated
from spotctl.clouds.azure.removal import Removal, group_resource, resource_in
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.azure.settings import AzureMachineSettings
from spotctl.clouds.azure.sizes import USUAL_DISK_GIB, AzureSize, families_of, image_reference, require, sizes_from
from spotctl.clouds.azure.template import RULES, DeploymentPlan, deployment, network_name, ssh_rules
from spotctl.clouds.azure.validation import unusable_key, validate
from spotctl.clouds.base import Machine, MachineLink, MachineRequest, MachineState, Resource
from spotctl.clouds.capabilities import Holdings, Invocation, MachineSupplies
from spotctl.clouds.errors import NotFound, ProviderError, Throttled, TokenTaken, Unanswered
from spotctl.clouds.holdings import HeldDisk, holdings_of
from spotctl.clouds.remote.machine import RemoteMachine
from spotctl.clouds.requests import each
from spotctl.clouds.tags import INSTALLATION_TAG
from spotctl.home.errors import BadRequest
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import WallClock

if TYPE_CHECKING:
    from pricing_data.series import PriceSeries
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceLookup
    from spotctl.home.config import Settings


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a call waits for Azure to finish an accepted allocation or deletion, and how often it checks."""

    patience_seconds: float = 60.0
    poll_seconds: float = 1.0


SPOT_QUOTA: Final = "lowPriorityCores"
"""The quota of vCPUs that spot machines of all sizes share in a region."""
ON_DEMAND_QUOTA: Final = "cores"
"""The quota of vCPUs that on-demand machines of all sizes share in a region; each family of sizes also has its own."""
_DELETING: Final = "Deleting"
_SSH_PORT: Final = 22


class AzureProvider(WallClock):
    """Machines in one subscription; it signs in when it is first used. `agents` prepare the machines."""

    name = "azure"

    def __init__(
        self,
        sign_in: Callable[[], AzureSession],
        settings: AzureMachineSettings,
        agents: RemoteAgents,
        prices: PriceLookup,
        waits: Waits = Waits(),
    ) -> None:
        self._waits = waits
        self._sign_in, self._settings, self._agents, self._prices = sign_in, settings, agents, prices
        self._sizes: dict[str, dict[str, AzureSize]] = {}
        self._remote: dict[MachineId, RemoteMachine] = {}
        self._networks: set[tuple[str, str]] = set()

    @cached_property
    def _calls(self) -> AzureCalls:
        return AzureCalls(self._sign_in())

    @cached_property
    def _inventory(self) -> Inventory:
        return Inventory(self._calls)

    @cached_property
    def _role(self) -> RoleAssignments:
        return RoleAssignments(self._calls)

    def offers(self) -> tuple[Market, ...]:
        """See `CloudProvider`; the markets whose prices are known."""
        return self._prices.markets(self.name)

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """See `CloudProvider`."""
        return self._prices.prices(market, start, end)

    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:
        """See `StatesQuotas`. On-demand machines also count against the quotas of their families."""
        with translated(f"quotas in {region}"):
            usages = self._calls.listed(Operation.LIST_USAGES, region=region)
            families = families_of(instance_types, self._sizes_in(region))
        limits = {usage["name"]["value"].lower(): int(usage["limit"]) for usage in usages}
        shared = (
            Quota(self.name, region, None, limits[name.lower()], QuotaUnit.VCPUS, spot=name == SPOT_QUOTA)
            for name in (SPOT_QUOTA, ON_DEMAND_QUOTA)
            if name.lower() in limits
        )
        of_families = (
            Quota(self.name, region, "+".join(types), limits[family.lower()], QuotaUnit.VCPUS, spot=False)
            for family, types in families.items()
            if family.lower() in limits
        )
        return (*shared, *of_families)

    # -- buying -------------------------------------------------------------------------------------------------------

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. Waits until Azure has allocated the machines, for up to `patience_seconds`."""
        group = group_name(request.tags)
        with translated(str(request.market)):
            identity = self._identity(request)
            order = AzureOrder.of(request, identity)
            served = self._calls.find(Operation.GET_DEPLOYMENT, group=group, name=deployment_name(request.token))
            if served is None:
                image = self._image(request)
                self._refuse_tokens_of_other_runs(order, group)
                self._ensure_group(request, group)
                self._role.assign(group, identity)
                self._deploy(request, order, group, image)
            else:
                _require_same(served, order)
            return self._collect(order, group)

    @property
    def endpoint(self) -> str:
        """See `AllowsTrials`."""
        with translated():
            return self._calls.endpoint

    def check_order(self, request: MachineRequest) -> str:
        """See `AllowsTrials`; the validation of a deployment. It makes the resource group of the run."""
        group = group_name(request.tags)
        with translated(str(request.market)):
            order, image = AzureOrder.of(request, self._identity(request)), self._image(request)
            self._ensure_group(request, group)
            body = self._deployment(request, order, group, image)
            validate(self._calls, group, deployment_name(request.token), body, self._waits.poll_seconds)
        return ":".join(image.values())

    def simulate_eviction(self, machine: str) -> None:
        """See `AllowsTrials`."""
        id_ = MachineId.parse(machine)
        if id_ is None:
            raise NotFound(f"{machine}: not a machine of Azure", (machine,))
        with translated(machine):
            self._calls.send(TrialOperation.SIMULATE_EVICTION, group=id_.group, name=id_.name)

    def console(self, machine: str) -> str:
        """See `AllowsTrials`."""
        return self._remote_of(machine).console()

    def _image(self, request: MachineRequest) -> Mapping[str, str]:
        size = require(self._sizes_of(request.market), request.market, spot=request.bid is not None)
        return image_reference(size, request.image or self._settings.image)

    def _identity(self, request: MachineRequest) -> str:
        identity = request.identity or self._settings.identity
        if identity is None:
            raise BadRequest(
                "Machines on Azure need a managed identity to delete themselves with: a machine that is only"
                " switched off is still billed. Create one (az identity create), give it the role that"
                " `spotctl doctor --policy azure-machines` prints, and set identity in [azure] to its resource id"
            )
        settings = self._settings
        own_rules = not (request.network or settings.subnet or settings.security_group)
        if own_rules and settings.public_ip and not settings.ssh_from:
            raise BadRequest(
                "no address may reach the machines on Azure over ssh: set ssh_from in [azure] to yours,"
                " such as 203.0.113.7/32"
            )
        return identity

    def _sizes_of(self, market: Market) -> dict[str, AzureSize]:
        if market.cloud != self.name:
            raise NotFound(f"{market}: not a market on Azure")
        return self._sizes_in(market.region)

    def _sizes_in(self, region: str) -> dict[str, AzureSize]:
        if region not in self._sizes:
            self._sizes[region] = sizes_from(self._calls.sizes(region))
        return self._sizes[region]

    def _refuse_tokens_of_other_runs(self, order: AzureOrder, group: str) -> None:
        """TokenTaken: another group has a deployment of this token, so the token was used for another run."""
        installation = order.tags.get(INSTALLATION_TAG)
        for other in self._groups({}):
            name = str(other["name"])
            if name == group or (other.get("tags") or {}).get(INSTALLATION_TAG) != installation:
                continue
            served = self._calls.find(Operation.GET_DEPLOYMENT, group=name, name=deployment_name(order.token))
            if served is not None:
                _require_same(served, order)

    def _ensure_group(self, request: MachineRequest, group: str) -> None:
        wanted = checked({**self._settings.tags, **group_tags(request.tags), GROUP_TAG: GROUP_MARK})
        existing = self._calls.find(Operation.GET_GROUP, group=group)
        if existing is None:
            body = {"location": request.market.region, "tags": wanted}
            self._calls.send(Operation.PUT_GROUP, body, group=group)
            return
        if existing["properties"]["provisioningState"] == _DELETING:
            raise Throttled(f"resource group {group} is being deleted; try again once it is gone")
        if not _is_ours(existing, group_tags(request.tags)):
            raise BadRequest(f"resource group {group} exists and was not made for this run; delete or rename it")

    def _deploy(self, request: MachineRequest, order: AzureOrder, group: str, image: Mapping[str, str]) -> None:
        body = self._deployment(request, order, group, image)
        self._calls.send(Operation.DEPLOY, body, group=group, name=deployment_name(request.token))

    def _deployment(self, request: MachineRequest, order: AzureOrder, group: str, image: Mapping[str, str]) -> Body:
        region = request.market.region
        plan = DeploymentPlan(
            group_id=f"/subscriptions/{self._calls.subscription}/resourceGroups/{group}",
            order=order,
            image=image,
            identity=order.identity,
            start_up=self._agents.start_up(request, self.name).encode(),
            admin_key=unusable_key(),
            own_network=not (request.network or self._settings.subnet) and not self._has_network(group, region),
        )
        return deployment(request, plan, self._settings)

    def _has_network(self, group: str, region: str) -> bool:
        if (group, region) not in self._networks:
            if self._calls.find(Operation.GET_NETWORK, group=group, name=network_name(region)) is None:
                return False
            self._networks.add((group, region))
        return True

    def _collect(self, order: AzureOrder, group: str) -> tuple[Machine, ...]:
        """Waits for the machines of an order. Raises Azure's refusal if none was granted."""
        outcome = self._wait_for_outcome(order, group)
        if outcome.ended:
            self._clear_refused(order, outcome, group)
            if not outcome.granted:
                raise refused(
                    outcome.code,
                    f"{order.market}: Azure refused all {order.count} machines: {outcome.code} {outcome.message}",
                )
        own = {str(MachineId(order.market.region, group, name)) for name in order.machine_names}
        machines = tuple(machine for machine in self._inventory.machines(group) if machine.id in own)
        if not machines:
            raise Unanswered(f"{order.market}: Azure has accepted the order, but allocated no machine yet; try again")
        return machines

    def _wait_for_outcome(self, order: AzureOrder, group: str) -> OrderOutcome:
        """An order's outcome once the order has ended or all machines are allocated; after the limit, as it is."""
        give_up = time.monotonic() + self._waits.patience_seconds
        name = deployment_name(order.token)
        while True:
            served = self._calls.send(Operation.GET_DEPLOYMENT, group=group, name=name).body
            outcome = self._inventory.outcome(group, served)
            if outcome.ended or time.monotonic() >= give_up:
                return outcome
            if all(self._inventory.is_allocated(group, machine) for machine in order.machine_names):
                return outcome
            time.sleep(self._waits.poll_seconds)

    def _clear_refused(self, order: AzureOrder, outcome: OrderOutcome, group: str) -> None:
        """Deletes the remains of machines that Azure could not allocate."""
        for name in order.machine_names:
            if name not in outcome.granted and self._calls.find(Operation.GET_MACHINE, group=group, name=name):
                self._delete(MachineId(order.market.region, group, name))

    # -- looking ------------------------------------------------------------------------------------------------------

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        with translated():
            machines = [machine for group in self._groups(tags) for machine in self._inventory.machines(group["name"])]
        self._agents.forget([machine.id for machine in machines if machine.state is MachineState.GONE])
        return tuple(machine for machine in machines if tags.items() <= machine.tags.items())

    def _groups(self, tags: Mapping[str, str]) -> Iterator[Body]:
        """The resource groups made by spotctl whose machines may have these tags."""
        mark = f"tagName eq '{GROUP_TAG}' and tagValue eq '{GROUP_MARK}'"
        for group in self._calls.pages(Operation.LIST_GROUPS, query={"$filter": mark}):
            if _is_ours(group, group_tags(tags)):
                yield group

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`; a group that is being deleted is listed until it is gone."""
        resources: list[Resource] = []
        with translated():
            for group in self._groups(tags):
                shared = dict(group.get("tags") or {})
                items = self._calls.listed(Operation.LIST_RESOURCES, group=group["name"])
                resources += [*(resource_in(group["name"], item, shared) for item in items), group_resource(group)]
        return tuple(resource for resource in resources if tags.items() <= resource.tags.items())

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        """See `AdmitsSsh`."""
        with translated():
            return tuple(name for group in self._groups(tags) for name in self._admit_in(group["name"], ssh_from))

    def _admit_in(self, group: str, ssh_from: Sequence[str]) -> Iterator[str]:
        items = self._calls.listed(Operation.LIST_RESOURCES, group=group)
        for name in (item["name"] for item in items if item["type"].lower() == RULES.lower()):
            rules = self._calls.send(Operation.GET_RULES, group=group, name=name).body
            kept = {key: rules[key] for key in ("location", "tags") if key in rules}
            self._calls.send(Operation.PUT_RULES, {**kept, "properties": ssh_rules(ssh_from)}, group=group, name=name)
            yield f"security group {group}/{name}"

    # -- ending -------------------------------------------------------------------------------------------------------

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Tries all machines, even if one fails; then raises the first failure."""
        each(partial(self._delete, machine) for machine in map(MachineId.parse, ids) if machine is not None)

    def _delete(self, machine: MachineId) -> None:
        try:
            with translated():
                answer = self._calls.send(Operation.DELETE_MACHINE, group=machine.group, name=machine.name)
        except NotFound:
            return
        if answer.status != 204:  # 204: there was nothing to delete
            self._inventory.note_returned(machine)

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`. A group is deleted with everything in it, unless its tags have changed since the list.

        A call without an answer is repeated. Groups that Azure is deleting after `patience_seconds` count as removed.
        ProviderError: something else still exists then.
        """
        machines = [resource.id for resource in resources if MachineId.parse(resource.id)]
        removal, give_up = Removal(self._calls, resources), time.monotonic() + self._waits.patience_seconds
        while True:
            try:
                with translated():
                    self.terminate(machines)
                    machines, left = [], removal.advance()
            except (Throttled, Unanswered):
                if time.monotonic() >= give_up:
                    raise
            else:
                if not left or (time.monotonic() >= give_up and removal.is_accepted):
                    return
                if time.monotonic() >= give_up:
                    raise ProviderError(f"Azure is still deleting {', '.join(left)}; check again in a few minutes")
            time.sleep(self._waits.poll_seconds)

    # -- talking to machines ------------------------------------------------------------------------------------------

    def prepare(self, machine: Machine, supplies: MachineSupplies) -> None:
        """See `Prepares`."""
        self._agents.prepare(self._remote_of(machine.id), supplies)

    def link(self, machine: str) -> MachineLink:
        return self._agents.link(self._remote_of(machine))

    def invocation(self, machine: str, command: Sequence[str]) -> Invocation:
        """See `TakesCommands`."""
        return self._agents.invocation(self._remote_of(machine), command)

    def holdings(self, market: Market, *, spot: bool, disk_gib: int | None) -> Holdings:
        """See `BillsHoldings`."""
        disk = HeldDisk(self._settings.disk_type, disk_gib or USUAL_DISK_GIB, AzureMachineSettings().disk_type)
        return holdings_of(market, disk, self._prices.lists(), spot=spot, public_ip=self._settings.public_ip)

    def close(self) -> None:
        """See `Closes`."""
        self._agents.close()

    def _remote_of(self, machine: str) -> RemoteMachine:
        """How to reach a machine. NotFound: the machine is gone. Unanswered: it has no address yet."""
        id_ = MachineId.parse(machine)
        if id_ is None or self._inventory.known_gone(id_):
            raise NotFound(f"{machine}: gone (evicted or returned)", (machine,))
        if id_ not in self._remote:
            self._remote[id_] = self._look_up(id_)
        return self._remote[id_]

    def _look_up(self, id_: MachineId) -> RemoteMachine:
        with translated():
            vm = self._calls.find(Operation.GET_MACHINE, group=id_.group, name=id_.name)
            address = None if vm is None else self._inventory.address(id_.group, vm)
        if vm is None:
            raise NotFound(f"{id_}: gone (evicted or returned)", (str(id_),))
        public = self._settings.public_ip and not self._settings.private_ssh
        host = address and (address.public if public else address.private)
        if not host:
            raise Unanswered(f"{id_}: it has no address yet; try again")
        return RemoteMachine(
            id=str(id_),
            index=index_of(vm["tags"]),
            host=host,
            port=_SSH_PORT,
            console=partial(self._console, id_),
            gone=partial(self._is_gone, id_),
        )

    def _console(self, id_: MachineId) -> str:
        with translated(str(id_)):
            return self._calls.console(id_.group, id_.name)

    def _is_gone(self, id_: MachineId) -> bool:
        """Whether a machine is gone or being deleted; False if Azure does not answer."""
        try:
            vm = self._calls.find(Operation.GET_MACHINE, group=id_.group, name=id_.name)
        except CloudError:
            return False
        return vm is None or vm["properties"]["provisioningState"] == _DELETING


def _require_same(served: Body, order: AzureOrder) -> None:
    """TokenTaken: this deployment served another request."""
    known = AzureOrder.read(served.get("tags") or {})
    if known is None or known.fingerprint != order.fingerprint:
        what = "something else" if known is None else f"{known.count} machines of {known.market}"
        raise TokenTaken(f"token {order.token} was used for {what}; a different request needs a token of its own")


def _is_ours(group: Body, tags: Mapping[str, str]) -> bool:
    has: Mapping[str, str] = group.get("tags") or {}
    return has.get(GROUP_TAG) == GROUP_MARK and tags.items() <= has.items()


def provider(
    settings: Settings,
    regions: tuple[str, ...],  # noqa: ARG001 - machines are listed in all regions at once
    agents: RemoteAgents,
    prices: PriceLookup,
) -> AzureProvider:
    """See `ProviderPart`."""
    # A run repeats its calls itself; it must not wait here for as long as a throttled call asks for.
    access = AzureSettings(
        subscription=settings.text("azure_subscription"),
        management_endpoint=settings.text("azure_management_endpoint"),
        managed_identity=settings.flag("azure_managed_identity"),
        retries=0,
    )
    chosen = settings.table("azure", AzureMachineSettings)
    return AzureProvider(lambda: AzureSession.sign_in(access), chosen, agents, prices)
