"""The conditions for renting machines on Azure, as far as they can be looked up before a resource
group exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from spotctl.clouds.azure.buyer import AzureBuyer, image_reference, require
from spotctl.clouds.azure.calls import MACHINE_ROLE, AzureCalls, Operation, translated
from spotctl.clouds.azure.cloud import AzureMachineSettings
from spotctl.clouds.doctor import RESERVED, Requirement
from spotctl.clouds.errors import QuotaReached, Scope
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest

_UNCHECKED = (
    "policies, capacity, public addresses, terms of images and the subscription's offer: only an "
    "order tells"
)


@dataclass(frozen=True, slots=True)
class AzureChecks:
    """The checks of one request."""

    calls: AzureCalls
    settings: AzureMachineSettings
    buyer: AzureBuyer
    request: MachineRequest
    limits: tuple[str, str]
    """The names of the quotas of Spot vCPUs and of all vCPUs."""

    @property
    def rows(self) -> Sequence[Requirement]:
        market = self.request.market
        checks = [
            Requirement(f"size {market.instance_type}", self._size),
            Requirement("image", self._image, optional=True),
            Requirement("identity of machines", self._identity),
            Requirement(f"role {MACHINE_ROLE}", self._role),
            Requirement("ssh", self._way_in),
            Requirement(f"quotas in {market.region}", self._quotas, optional=True),
            Requirement("not checked", partial(str, _UNCHECKED), note=True),
        ]

        if self.request.network or self.settings.subnet:
            checks.append(Requirement("subnet", self._subnet, optional=True))
        return [row._replace(call=translated()(row.call)) for row in checks]

    def _size(self) -> str:
        market, spot = self.request.market, self.request.bid is not None
        require(self.buyer.sizes_in(market.region), market, spot=spot)
        return f"exists in {market.region}{', also as Spot' if spot else ''}"

    def _image(self) -> str:
        market = self.request.market
        size = require(
            self.buyer.sizes_in(market.region), market, spot=self.request.bid is not None
        )
        image = image_reference(size, self.request.image or self.settings.image)
        if "id" in image:
            return f"{image['id'].rpartition('/')[2]}, which is not looked up"

        named = image["publisher"], image["offer"], image["sku"]
        versions = self.calls.listed_versions(market.region, *named)
        if not versions or image["version"] not in ("latest", *versions):
            raise BadRequest(
                f"{market.region} has no image {':'.join(image.values())}; correct image in [azure]"
            )

        return f"{':'.join(named)}, {versions[-1]}"

    def _identity(self) -> str:
        identity = self.buyer.identity_of(self.request)
        if self.calls.find(Operation.GET_IDENTITY, identity) is None:
            raise BadRequest(
                f"{identity} does not exist; az identity create, or correct identity in [azure]"
            )
        return identity.rpartition("/")[2]

    def _role(self) -> str:
        scope = self.calls.session.subscription_id
        if not self.calls.listed(
            Operation.LIST_ROLES, scope, filter=f"roleName eq '{MACHINE_ROLE}'"
        ):
            create = (
                "spotctl doctor --policy azure-machines > machines.json, then az role definition "
                "create"
            )
            raise BadRequest(f"it does not exist; {create} --role-definition machines.json")
        return "exists"

    def _way_in(self) -> str:
        self.buyer.identity_of(self.request)
        settings = self.settings
        if settings.ssh_from:
            return f"from {', '.join(settings.ssh_from)}"
        return "as the company's network admits it"

    def _subnet(self) -> str:
        subnet = self.request.network or self.settings.subnet or ""
        network, _, name = subnet.partition("/subnets/")
        known = self.calls.find(Operation.GET_NETWORK, network)
        subnets = [] if known is None else known["properties"].get("subnets", ())
        names = [inner["name"].lower() for inner in subnets]
        if name.lower() not in names:
            raise BadRequest(f"{subnet} does not exist; correct subnet in [azure]")
        return name

    def _quotas(self) -> str:
        market, spot = self.request.market, self.request.bid is not None
        if self.request.reservation:
            return RESERVED

        name = self.limits[0 if spot else 1]
        usages = self.calls.listed(Operation.LIST_USAGES, market.region)
        left = next(
            (
                int(usage["limit"])
                for usage in usages
                if usage["name"]["value"].lower() == name.lower()
            ),
            None,
        )

        size = self.buyer.sizes_in(market.region).get(market.instance_type.lower())
        needed = self.request.count * int(0 if size is None else size.capabilities.get("vCPUs", 0))
        if left is None:
            return "Azure states none"

        if left < needed:
            title = "Total Regional Spot vCPUs" if spot else "Total Regional vCPUs"
            raise QuotaReached(
                f"{left} {title} in {market.region}, and {needed} are needed; request more in the "
                "Azure portal under Quotas",
                Scope.TYPE,
            )

        return f"{left} {'Spot ' if spot else ''}vCPUs, {needed} needed"
