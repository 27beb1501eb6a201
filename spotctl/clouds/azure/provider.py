"""`AzureProvider`: virtual machines of Azure, Spot or on demand. All state is in Azure.

A token becomes the name of a deployment in the run's resource group. One request makes all machines
of an order with their disks, interfaces and addresses, which are deleted with the machines. The
deployment remains, so a repeated token finds its machines even when they are gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final

from pricing_data.errors import CloudError, UnknownResource
from pricing_data.market import Market
from spotctl.clouds.azure import orders
from spotctl.clouds.azure.buyer import AzureBuyer
from spotctl.clouds.azure.calls import RULES, AzureCalls, Operation, TrialOperation, translated
from spotctl.clouds.azure.cloud import AzureMachineSettings, AzureSettings
from spotctl.clouds.azure.doctor import ON_DEMAND_QUOTA, SPOT_QUOTA, AzureNeeds
from spotctl.clouds.azure.groups import Removal, delete_machine, resources_of
from spotctl.clouds.azure.orders import INDEX, MachineId, ssh_rules
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.doctor import Requirement
from spotctl.clouds.errors import (
    Answers,
    ApiCall,
    NotFound,
    ProviderError,
    Throttled,
    Unanswered,
    each,
)
from spotctl.clouds.provider import Holdings, Machine, MachineRequest, MachineState, Resource
from spotctl.clouds.remote.agents import RentingProvider
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import holdings_of
from spotctl.home.errors import SpotctlError
from spotctl.home.quotas import Quota, QuotaUnit

if TYPE_CHECKING:
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.home.config import Settings


_DELETING: Final = "Deleting"
_SSH_PORT: Final = 22


class AzureProvider(RentingProvider):
    """Machines in one subscription; it signs in when it is first used. `agents` prepare the
    machines.

    A call waits up to `patience_seconds` for Azure to finish an accepted allocation or deletion,
    and looks every `poll_seconds`.
    """

    name = "azure"
    usual_market = "AZURE_DEFAULTS_LOCATION", "eastus", "Standard_D2s_v5"

    def __init__(
        self,
        sign_in: Callable[[], AzureSession],
        settings: AzureMachineSettings,
        agents: RemoteAgents,
        prices: PriceBook,
        patience_seconds: float = 60.0,
        poll_seconds: float = 1.0,
    ) -> None:
        self._patience_seconds, self._poll_seconds = patience_seconds, poll_seconds
        super().__init__(agents, prices)
        self._sign_in, self._settings = sign_in, settings
        self._known: dict[MachineId, RemoteMachine] = {}

    @cached_property
    def _calls(self) -> AzureCalls:
        return AzureCalls(self._sign_in())

    @cached_property
    def _buyer(self) -> AzureBuyer:
        return AzureBuyer(
            self._calls, self._settings, self._agents, self._patience_seconds, self._poll_seconds
        )

    def quotas(self, region: str, instance_types: Collection[str]) -> tuple[Quota, ...]:
        """See `CloudProvider`. On-demand machines also count against the quotas of their
        families."""
        with translated(f"quotas in {region}"):
            usages = self._calls.listed(Operation.LIST_USAGES, region)
            sizes = self._buyer.sizes_in(region)

        families: dict[str, list[str]] = {}
        for name in sorted(instance_types):
            size = sizes.get(name.lower())
            if size is not None and size.family:
                families.setdefault(size.family, []).append(name)

        limits = {usage["name"]["value"].lower(): int(usage["limit"]) for usage in usages}
        names: dict[str, str | None] = {SPOT_QUOTA: None, ON_DEMAND_QUOTA: None}
        names |= {family: "+".join(types) for family, types in families.items()}

        quotas = []
        for name, family in names.items():
            limit, spot = limits.get(name.lower()), name == SPOT_QUOTA
            if limit is not None:
                unit = QuotaUnit.VCPUS
                quotas.append(Quota(self.name, region, family, limit, unit, spot=spot))

        return tuple(quotas)

    # -- buying ------------------------------------------------------------------------------------

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. Waits until Azure has allocated the machines, for up to
        `patience_seconds`.
        """
        with translated(str(request.market)):
            return self._buyer.buy(request)

    @property
    def endpoint(self) -> str:
        with translated():
            return self._calls.session.host

    def checks(self, request: MachineRequest) -> Sequence[Requirement]:
        with translated():
            return AzureNeeds(self._buyer, self._settings, request).rows

    def check_order(self, request: MachineRequest) -> str:
        """See `CloudProvider`; the validation of a deployment. It makes the resource group of the
        run.
        """
        with translated(str(request.market)):
            return self._buyer.check(request)

    def simulate_eviction(self, machine: str) -> None:
        id_ = MachineId.parse(machine)
        if id_ is None:
            raise NotFound(f"{machine}: not a machine of Azure", (machine,))
        with translated(machine):
            self._calls.send(TrialOperation.SIMULATE_EVICTION, id_.group, id_.name)

    # -- looking -----------------------------------------------------------------------------------

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        with translated():
            groups, inventory = self._buyer.groups.listed(tags), self._buyer.inventory
            machines = [
                machine for group in groups for machine in inventory.machines(group["name"])
            ]

        self._agents.forget(
            [machine.id for machine in machines if machine.state is MachineState.GONE]
        )
        return tuple(machine for machine in machines if tags.items() <= machine.tags.items())

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        """See `CloudProvider`; a group that is being deleted is listed until it is gone."""
        resources: list[Resource] = []
        with translated():
            for group in self._buyer.groups.listed(tags):
                items = self._calls.listed(Operation.LIST_RESOURCES, group["name"])
                resources += resources_of(group, items)

        return tuple(resource for resource in resources if tags.items() <= resource.tags.items())

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        changed: list[str] = []
        with translated():
            for group in self._buyer.groups.listed(tags):
                items = self._calls.listed(Operation.LIST_RESOURCES, group["name"])
                for item in (item for item in items if item["type"].lower() == RULES.lower()):
                    rules = self._calls.send(Operation.GET_RULES, item["id"]).body
                    kept = {key: rules[key] for key in ("location", "tags") if key in rules}
                    self._calls.send(
                        Operation.PUT_RULES, item["id"], {**kept, "properties": ssh_rules(ssh_from)}
                    )
                    changed.append(f"security group {group['name']}/{item['name']}")

        return tuple(changed)

    # -- ending ------------------------------------------------------------------------------------

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Tries all machines, even if one fails; then raises the first
        failure.
        """
        each(
            partial(delete_machine, self._calls, self._buyer.inventory, machine)
            for machine in map(MachineId.parse, ids)
            if machine is not None
        )

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`. A group is deleted with everything in it, unless its tags have
        changed since the list.

        A call without an answer is repeated. Groups that Azure is deleting after `patience_seconds`
        count as removed. ProviderError: something else still exists then.
        """
        machines = [resource.id for resource in resources if MachineId.parse(resource.id)]
        removal, give_up = (
            Removal(self._calls, resources),
            time.monotonic() + self._patience_seconds,
        )

        while True:
            try:
                with translated():
                    self.terminate(machines)
                    machines, left = [], removal.advance()
            except (Throttled, Unanswered):
                if time.monotonic() >= give_up:
                    raise
            else:
                is_late = time.monotonic() >= give_up
                # Azure deletes groups that it has accepted, which takes minutes.
                if not left or (is_late and removal.accepted.issuperset(left)):
                    return
                if is_late:
                    cure = "check again in a few minutes"
                    raise ProviderError(f"Azure is still deleting {', '.join(left)}; {cure}")
            time.sleep(self._poll_seconds)

    # -- talking to machines -----------------------------------------------------------------------

    def holdings(
        self, market: Market, *, spot: bool, disk_gib: int | None, image: str | None = None
    ) -> Holdings:
        """See `CloudProvider`. A disk whose size is left to an image counts as one with drivers."""
        settings, usual, least = self._settings, AzureMachineSettings().disk_type, 0
        if not (is_usual := not (image or settings.image)):
            # An image that Azure does not describe cannot be ordered either.
            with suppress(SpotctlError), translated():
                least = self._buyer.least_gib(image)
        gib = orders.disk_gib(market.instance_type, disk_gib, least, is_usual=is_usual)
        return holdings_of(
            market,
            self._prices.lists(),
            settings.disk_type,
            gib or orders.USUAL_DISK_GIB,
            spot=spot,
            public_ip=settings.public_ip,
            usual=usual,
        )

    def remote(self, machine: str) -> RemoteMachine:
        id_ = MachineId.parse(machine)
        if id_ is None or id_ in self._buyer.inventory.known_ends:
            raise NotFound(f"{machine}: gone (evicted or returned)", (machine,))
        if id_ in self._known:
            return self._known[id_]

        with translated():
            vm = self._calls.find(Operation.GET_MACHINE, id_.group, id_.name)
            address = None if vm is None else self._buyer.inventory.address(vm)

        if vm is None:
            raise NotFound(f"{id_}: gone (evicted or returned)", (str(id_),))

        public = self._settings.public_ip and not self._settings.private_ssh
        host = address and address[1 if public else 0]
        if not host:
            raise Unanswered(f"{id_}: it has no address yet; try again")

        self._known[id_] = RemoteMachine(
            id=str(id_),
            index=int(vm["tags"][INDEX]),
            host=host,
            port=_SSH_PORT,
            console=partial(self._console, id_),
            gone=partial(self._is_gone, id_),
        )

        return self._known[id_]

    def seen_by_cloud(self, machine: str) -> str:
        """See `RentingProvider`; the instance view: the states of the machine, and of the agent
        inside it.
        """
        id_ = MachineId.parse(machine)
        with translated(machine):
            return (
                "" if id_ is None else " ".join(self._buyer.inventory.statuses(id_.group, id_.name))
            )

    def _console(self, id_: MachineId) -> str:
        """A machine's serial console output, as far as Azure has it by now."""
        what = ApiCall(f"console of {id_.group}/{id_.name}", "a signed link")
        with translated(str(id_)):
            answer = self._calls.send(
                Operation.CONSOLE, id_.group, id_.name, sas_uri_expiration_time_in_minutes=5
            )
            link = answer.body.get("serialConsoleLogBlobUri")
            if not link:
                return ""
            try:
                return self._calls.session.download(what, link).decode(errors="replace")
            except UnknownResource:
                return ""

    def _is_gone(self, id_: MachineId) -> bool:
        """Whether a machine is gone or being deleted; False if Azure does not answer."""
        try:
            vm = self._calls.find(Operation.GET_MACHINE, id_.group, id_.name)
        except CloudError:
            return False
        return vm is None or vm["properties"]["provisioningState"] == _DELETING


def provider(
    settings: Settings,
    regions: tuple[str, ...],  # noqa: ARG001 - machines are listed in all regions at once
    agents: RemoteAgents,
    prices: PriceBook,
    answers: Answers,
) -> AzureProvider:
    """See `ProviderPart`."""
    # A run repeats its calls itself; it must not wait here for as long as a throttled call asks
    # for.
    access = AzureSettings(
        subscription=settings.text("azure_subscription"),
        management_endpoint=settings.text("azure_management_endpoint"),
        managed_identity=settings.flag("azure_managed_identity"),
        retries=0,
    )

    chosen = settings.table("azure", AzureMachineSettings)
    sign_in = partial(AzureSession.sign_in, access, answers=answers)
    return AzureProvider(sign_in, chosen, agents, prices)
