"""`AzureBuyer`: makes what the machines of a request need, and buys the machines with one deployment."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pricing_data.market import Market
from spotctl.clouds.azure.calls import AzureCalls, Body, Operation, TrialOperation
from spotctl.clouds.azure.groups import RunGroups
from spotctl.clouds.azure.inventory import Inventory, OrderOutcome
from spotctl.clouds.azure.machine_role import RoleAssignments
from spotctl.clouds.azure.names import AzureOrder, MachineId, deployment_name, group_name
from spotctl.clouds.azure.refusals import refused
from spotctl.clouds.azure.removal import delete_machine
from spotctl.clouds.azure.reserved import available
from spotctl.clouds.azure.session import VALIDATION_SECONDS
from spotctl.clouds.azure.settings import AzureMachineSettings
from spotctl.clouds.azure.sizes import AzureSize, image_reference, require, sizes_from
from spotctl.clouds.azure.template import DeploymentPlan, deployment, network_id
from spotctl.clouds.errors import NotFound, TokenTaken, Unanswered
from spotctl.clouds.provider import Machine, MachineRequest
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG

if TYPE_CHECKING:
    from spotctl.clouds.remote.agents import RemoteAgents

_CLOUD = "azure"


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a call waits for Azure to finish an accepted allocation or deletion, and how often it checks."""

    patience_seconds: float = 60.0
    poll_seconds: float = 1.0


class AzureBuyer:
    """Buys for one subscription. It caches only to save calls."""

    def __init__(
        self,
        calls: AzureCalls,
        inventory: Inventory,
        groups: RunGroups,
        settings: AzureMachineSettings,
        agents: RemoteAgents,
        waits: Waits,
    ) -> None:
        self._calls, self._inventory, self._groups = calls, inventory, groups
        self._settings, self._agents, self._waits = settings, agents, waits
        self._role = RoleAssignments(calls)
        self._sizes: dict[str, dict[str, AzureSize]] = {}
        self._networks: set[tuple[str, str]] = set()

    def buy(self, request: MachineRequest) -> tuple[Machine, ...]:
        """The machines that Azure allocates; those that a token bought before, if it is sent again."""
        group, identity = group_name(request.tags), self._identity(request)
        order = AzureOrder.of(request, identity)
        served = self._calls.find(Operation.GET_DEPLOYMENT, group, deployment_name(request.token))
        if served is None:
            image = self._image(request)
            self._refuse_tokens_of_other_runs(order, group)
            if request.reservation:
                request = replace(request, count=available(self._calls, request))
                order = replace(order, count=request.count)
            self._groups.ensure(request, group)
            self._role.assign(group, identity)
            body = self._deployment(request, order, group, image)
            self._calls.send(Operation.DEPLOY, group, deployment_name(request.token), body)
        else:
            order = _same(served, order)
        return self._collect(order, group)

    def check(self, request: MachineRequest) -> str:
        """Has Azure validate an order, which buys nothing, and returns its image."""
        group = group_name(request.tags)
        order, image = AzureOrder.of(request, self._identity(request)), self._image(request)
        self._groups.ensure(request, group)
        body = self._deployment(request, order, group, image)
        name = deployment_name(request.token)
        answer = self._calls.send(TrialOperation.VALIDATE, group, name, body)
        if answer.status == 202:
            raise Unanswered(f"Azure has not validated {name} after {VALIDATION_SECONDS:g} s")
        if error := answer.body.get("error"):
            cause = (error.get("details") or [error])[0]
            raise refused(
                str(cause.get("code", "")), f"Azure refuses the deployment: {cause.get('code')} {cause.get('message')}"
            )
        return ":".join(image.values())

    def sizes_in(self, region: str) -> dict[str, AzureSize]:
        """The sizes of a region by name."""
        if region not in self._sizes:
            self._sizes[region] = sizes_from(self._calls.sizes(region))
        return self._sizes[region]

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
        if market.cloud != _CLOUD:
            raise NotFound(f"{market}: not a market on Azure")
        return self.sizes_in(market.region)

    def _refuse_tokens_of_other_runs(self, order: AzureOrder, group: str) -> None:
        """TokenTaken: another group has a deployment of this token, so the token was used for another run."""
        installation = order.tags.get(INSTALLATION_TAG)
        for other in self._groups.listed({}):
            name = str(other["name"])
            if name == group or (other.get("tags") or {}).get(INSTALLATION_TAG) != installation:
                continue
            served = self._calls.find(Operation.GET_DEPLOYMENT, name, deployment_name(order.token))
            if served is not None:
                _same(served, order)

    def _deployment(self, request: MachineRequest, order: AzureOrder, group: str, image: Mapping[str, str]) -> Body:
        region = request.market.region
        plan = DeploymentPlan(
            group_id=self._calls.group_id(group),
            order=order,
            image=image,
            identity=order.identity,
            start_up=self._agents.start_up(request, _CLOUD).encode(),
            admin_key=unusable_key(),
            own_network=not (request.network or self._settings.subnet) and not self._has_network(group, region),
        )
        return deployment(request, plan, self._settings)

    def _has_network(self, group: str, region: str) -> bool:
        if (group, region) not in self._networks:
            id_ = network_id(self._calls.group_id(group), region)
            if self._calls.find(Operation.GET_NETWORK, id_) is None:
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
            served = self._calls.send(Operation.GET_DEPLOYMENT, group, name).body
            outcome = self._inventory.outcome(group, served)
            if outcome.ended or time.monotonic() >= give_up:
                return outcome
            if all(self._inventory.is_allocated(group, machine) for machine in order.machine_names):
                return outcome
            time.sleep(self._waits.poll_seconds)

    def _clear_refused(self, order: AzureOrder, outcome: OrderOutcome, group: str) -> None:
        """Deletes the remains of machines that Azure could not allocate."""
        for name in order.machine_names:
            if name not in outcome.granted and self._calls.find(Operation.GET_MACHINE, group, name):
                delete_machine(self._calls, self._inventory, MachineId(order.market.region, group, name))


def _same(served: Body, order: AzureOrder) -> AzureOrder:
    """The order as a deployment served it, maybe with fewer machines. TokenTaken: it served another request."""
    known = AzureOrder.read(served.get("tags") or {})
    if known is None or known.fingerprint != order.fingerprint:
        what = "something else" if known is None else f"{known.count} machines of {known.market}"
        raise TokenTaken(f"token {order.token} was used for {what}; a different request needs a token of its own")
    return known


def unusable_key() -> str:
    """A public key for the account that Azure insists on; its private half is thrown away."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
