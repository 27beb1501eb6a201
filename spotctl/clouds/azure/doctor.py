"""The needs of spotctl on Azure: of the account, for `spotctl doctor`, and for one order.

Of the account: subscription, clock, permissions and quotas. An order's requirements are rows, which
`doctor`, `plan --check`, launches and `try` have judged by the one engine of
`spotctl.clouds.doctor`. Nothing is ever made or changed here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final

from spotctl.clouds.azure.buyer import AzureBuyer, image_reference, require
from spotctl.clouds.azure.calls import (
    ALL,
    MACHINE_ROLE,
    NAMESPACES,
    RAISE_COMMAND,
    REGISTER,
    AzureCalls,
    Operation,
    role,
    translated,
)
from spotctl.clouds.azure.cloud import ACCOUNT, AzureMachineSettings, AzureSettings
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.doctor import (
    RESERVED,
    TIMEOUT_SECONDS,
    Finding,
    Level,
    OrderNeeds,
    Requirement,
    permissions,
    quota,
    skew,
)
from spotctl.clouds.errors import Answers, ApiCall, QuotaReached, Scope
from spotctl.clouds.provider import MachineRequest
from spotctl.home import account_quotas
from spotctl.home.config import Settings, is_traced
from spotctl.home.errors import BadRequest
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import wall_us

SETUP = ACCOUNT.setup
_PERMISSIONS_VERSION = "2022-04-01"
_ANY_LOCATION = "eastus"
SPOT_QUOTA: Final = "lowPriorityCores"
"""The quota of vCPUs that spot machines of all sizes share in a region."""
ON_DEMAND_QUOTA: Final = "cores"
"""The quota of vCPUs that on-demand machines of all sizes share in a region; each family of sizes
also has its own."""
_UNCHECKED = (
    "policies, capacity, public addresses, terms of images and the subscription's offer: only an "
    "order tells"
)


is_configured = partial(is_traced, account=ACCOUNT)


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    access = AzureSettings(
        subscription=settings.text("azure_subscription"),
        management_endpoint=settings.text("azure_management_endpoint"),
        managed_identity=settings.flag("azure_managed_identity"),
        timeout_seconds=TIMEOUT_SECONDS,
        retries=1,
    )
    session = AzureSession.sign_in(access, answers=answers)

    call = ApiCall("Azure permissions", "Microsoft.Authorization/permissions/read")
    # The SDK of roles lists the permissions for a resource group only, and there may be none yet.
    own = f"{session.subscription_id}/providers/Microsoft.Authorization/permissions"
    answer = session.carry_out(
        call, "resources.resources.get_by_id", own, api_version=_PERMISSIONS_VERSION
    )
    yield Finding("azure", "credentials", Level.GOOD, f"subscription {session.subscription}")
    yield skew("azure", answer.date)
    grants: list[dict[str, Any]] = answer.body["value"]
    missing = []
    for action in ALL:
        granted = [grant for grant in grants if _matches(grant.get("actions", ()), action)]
        if all(_matches(grant.get("notActions", ()), action) for grant in granted):
            missing.append(action)

    yield permissions("azure", missing, len(ALL))

    # The subscription must be registered for what machines consist of.
    call = ApiCall("Azure resource providers", "Microsoft.Resources/subscriptions/providers/read")
    missing = []
    for name in NAMESPACES:
        state = session.carry_out(call, "resources.providers.get", name).body
        if state.get("registrationState") != "Registered":
            missing.append(name)

    if missing:
        lacking = f"not registered: {', '.join(missing)}"
        yield Finding("azure", "providers", Level.FAILS, lacking, REGISTER)
    else:
        yield Finding("azure", "providers", Level.GOOD, "registered")

    yield from _quotas(session, settings)
    yield _identity(session, settings.table("azure", AzureMachineSettings).identity)


def _matches(patterns: Sequence[str], action: str) -> bool:
    """Azure's patterns support only `*`, and ignore case."""
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def _quotas(session: AzureSession, settings: Settings) -> Iterator[Finding]:
    location = os.environ.get("AZURE_DEFAULTS_LOCATION") or _ANY_LOCATION
    call = ApiCall(f"Azure quotas in {location}", "Microsoft.Compute/locations/usages/read")
    pages = session.pages(call, Operation.LIST_USAGES.method, location)
    limits = {
        usage.name.value: usage.limit for page in pages for usage in page if usage.name is not None
    }

    for what, name, title in (
        ("spot", SPOT_QUOTA, "Spot vCPUs"),
        ("on-demand", ON_DEMAND_QUOTA, "vCPUs"),
    ):
        limit = limits.get(name)
        if limit is not None:
            stated = Quota(
                "azure", location, None, int(limit), QuotaUnit.VCPUS, spot=name == SPOT_QUOTA
            )
            account_quotas.keep(settings, [stated], wall_us())
        cure = f"request more in the Azure portal under Quotas: Total Regional {title}"
        yield quota("azure", f"{what} quota in {location}", limit, cure)


def _identity(session: AzureSession, identity: str | None) -> Finding:
    """Checks that the managed identity exists with which machines delete themselves."""
    if identity is None:
        unset = "not set, so no machines can be rented"
        return Finding("azure", "identity", Level.NOTE, unset, "spotctl setup azure makes one")

    calls, name = AzureCalls(session), identity.rpartition("/")[2]
    known = calls.find(Operation.GET_IDENTITY, identity)
    if known is None:
        cure = "make it with spotctl setup azure, or correct identity in [azure]"
        return Finding("azure", "identity", Level.FAILS, f"{identity} does not exist", cure)

    principal = known["properties"]["principalId"]
    # The role at the subscription reaches the machines of everyone; earlier instructions had users
    # assign it there.
    if calls.listed(Operation.LIST_ASSIGNMENTS, filter=f"atScope() and assignedTo('{principal}')"):
        everywhere = f"--assignee {principal} --scope /subscriptions/{session.subscription}"
        cure = (
            f"az role assignment delete {everywhere}: each run assigns the role for its own group"
        )
        return Finding(
            "azure", "identity", Level.NOTE, f"{name} has a role in the whole subscription", cure
        )

    return Finding("azure", "identity", Level.GOOD, name)


POLICIES = {policy: partial(role, policy) for policy in ("azure", "azure-machines", "azure-try")}
"""The roles of the launcher, of the managed identity of the machines, and what `spotctl try --full`
needs besides."""


class AzureNeeds(OrderNeeds[AzureBuyer, AzureMachineSettings, MachineRequest]):
    """The needs of one order, as far as they can be looked up before a resource group exists."""

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
        versions = self.buyer.calls.listed_versions(market.region, *named)
        if not versions or image["version"] not in ("latest", *versions):
            cure = "correct image in [azure]"
            raise BadRequest(f"{market.region} has no image {':'.join(image.values())}; {cure}")

        return f"{':'.join(named)}, {versions[-1]}"

    def _identity(self) -> str:
        identity = self.buyer.identity_of(self.request)
        if self.buyer.calls.find(Operation.GET_IDENTITY, identity) is None:
            cure = "make it with spotctl setup azure, or correct identity in [azure]"
            raise BadRequest(f"{identity} does not exist; {cure}")
        return identity.rpartition("/")[2]

    def _role(self) -> str:
        scope = self.buyer.calls.session.subscription_id
        if not self.buyer.calls.listed(
            Operation.LIST_ROLES, scope, filter=f"roleName eq '{MACHINE_ROLE}'"
        ):
            raise BadRequest("it does not exist; make it with spotctl setup azure")
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
        known = self.buyer.calls.find(Operation.GET_NETWORK, network)
        subnets = [] if known is None else known["properties"].get("subnets", ())
        names = [inner["name"].lower() for inner in subnets]
        if name.lower() not in names:
            raise BadRequest(f"{subnet} does not exist; correct subnet in [azure]")
        return name

    def _quotas(self) -> str:
        market, spot = self.request.market, self.request.bid is not None
        if self.request.reservation:
            return RESERVED

        name = SPOT_QUOTA if spot else ON_DEMAND_QUOTA
        usages = self.buyer.calls.listed(Operation.LIST_USAGES, market.region)
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
            subscription = self.buyer.calls.session.subscription
            command = RAISE_COMMAND.format(
                quota=name, subscription=subscription, region=market.region, limit=needed
            )
            cure = f"request more in the Azure portal under Quotas, or with {command}"
            problem = f"{left} {title} in {market.region}, and {needed} are needed; {cure}"
            raise QuotaReached(problem, Scope.TYPE)

        return f"{left} {'Spot ' if spot else ''}vCPUs, {needed} needed"
