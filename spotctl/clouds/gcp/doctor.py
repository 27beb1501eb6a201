"""The needs of spotctl on Google Cloud: of the account, for `spotctl doctor`, and for one order.

An order's requirements are rows, which `doctor`, `plan --check`, launches and `try` have judged by
the one engine of `spotctl.clouds.doctor`. Google Cloud has no dry runs, so each row looks one thing
up. Nothing is ever made or changed here.

Metrics of quotas are those of "Allocation quotas" in the Compute Engine documentation. A region has
one quota of vCPUs for the series without a quota of their own, one for some series, and one for
each kind of GPU. Spot machines have the same ones with `PREEMPTIBLE_` before their names; where
they have none, or one of 0, they count against the quota of all machines. A project's quota of GPUs
counts all regions together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pricing_data.errors import CloudError
from pricing_data.market import NO_ZONE
from spotctl.clouds.doctor import (
    TIMEOUT_SECONDS,
    Finding,
    Level,
    OrderNeeds,
    Requirement,
    finding_of,
    permissions,
    quota,
    skew,
)
from spotctl.clouds.errors import Answers, ApiCall, NotFound, NotPermitted, QuotaReached, Scope
from spotctl.clouds.gcp import calls, orders
from spotctl.clouds.gcp.calls import ALL, role
from spotctl.clouds.gcp.cloud import ACCOUNT, GcpMachineSettings, GcpSettings
from spotctl.clouds.gcp.creation import Creation
from spotctl.clouds.gcp.inventory import last_part
from spotctl.clouds.gcp.machine_types import NEVER_SPOT, split_type
from spotctl.clouds.gcp.session import ACT_AS, GcpSession
from spotctl.clouds.provider import MachineRequest
from spotctl.home import account_quotas
from spotctl.home.config import Settings, is_traced
from spotctl.home.errors import BadRequest
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import wall_us

_SSH_PORT = 22
_ADDRESSES = "IN_USE_ADDRESSES"
_UNCHECKED = (
    "organization policies, capacity, and whether machines reach the internet: Google Cloud has no "
    "dry runs"
)

SETUP = ACCOUNT.setup


is_configured = partial(is_traced, account=ACCOUNT)


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    access = GcpSettings(
        project=settings.text("gcp_project"),
        compute_endpoint=settings.text("gcp_compute_endpoint"),
        resource_manager_endpoint=settings.text("gcp_resource_manager_endpoint"),
        iam_endpoint=settings.text("gcp_iam_endpoint"),
        call_timeout_seconds=TIMEOUT_SECONDS,
        retry_deadline_seconds=TIMEOUT_SECONDS,
    )
    with GcpSession(access, answers) as session:
        call = ApiCall(f"permissions on project {session.project}", "resourcemanager.projects.get")
        granted, date = session.granted(call, list(ALL))
        yield Finding("gcp", "credentials", Level.GOOD, f"project {session.project}")
        yield skew("gcp", date)
        yield permissions(
            "gcp", [permission for permission in ALL if permission not in granted], len(ALL)
        )
        yield from _quotas(session, settings)

        if (account := settings.table("gcp", GcpMachineSettings).service_account) is None:
            default = (
                "machines get the project's default one, which is often allowed to rent machines"
            )
            cure = "spotctl setup gcp makes one that may only delete machines"
            yield Finding("gcp", "service account", Level.NOTE, f"not set, so {default}", cure)
            return
        given = partial(given_account, session, account)
        yield finding_of("gcp", Requirement("service account", given, access=True))


def _quotas(session: GcpSession, settings: Settings) -> Iterator[Finding]:
    """The quotas of the region that allows the most spot machines; keeps those of all regions."""
    call = ApiCall("list of regions", "compute.regions.list (in roles/compute.viewer)")
    pages = session.pages(call, "Regions", {"project": session.project})
    regions = [region for page in pages for region in page]
    limits = [limit for region in regions for limit in region_quotas(region)]

    with suppress(CloudError):  # the permission may be missing, which is a finding of its own
        asked = ApiCall("quotas of the project", "compute.projects.get")
        limits += project_quotas(
            session.answer(asked, "Projects", "get", {"project": session.project})
        )

    account_quotas.keep(settings, limits, wall_us())

    cure = f"request more at {calls.QUOTAS}"
    stated = [(region.name, limits_of(region)) for region in regions]
    spot = {name: spot_limit(limits, VCPUS) or 0 for name, limits in stated}
    if not spot:
        yield quota("gcp", "spot quota in no region", 0.0, cure)
        return

    best = max(spot, key=spot.__getitem__)
    yield quota("gcp", f"spot quota in {best}", spot[best], cure)
    yield quota("gcp", f"on-demand quota in {best}", dict(stated)[best].get(VCPUS), cure)


def given_account(session: GcpSession, account: str) -> str:
    """A service account that the launcher may give to machines. NotPermitted: it may not."""
    call = ApiCall(f"permissions on {account}", "iam.serviceAccounts.get")
    granted, _ = session.granted(call, [ACT_AS], account)
    if not granted:
        grant = f"gcloud iam service-accounts add-iam-policy-binding {account}"
        to_you = "--role roles/iam.serviceAccountUser --member user:YOU"
        raise NotPermitted(f"{ACT_AS} on {account} is missing; {grant} {to_you}")
    return account


POLICIES = {name: partial(role, name) for name in ("gcp", "gcp-machines", "gcp-try")}


class GoogleNeeds(OrderNeeds[Creation, GcpMachineSettings, MachineRequest]):
    """The needs of one order, as far as they can be looked up: Google Cloud has no dry runs."""

    @property
    def rows(self) -> Sequence[Requirement]:
        market = self.request.market
        chosen = self.request.network or self.settings.subnetwork or self.settings.network
        network, image = last_part(chosen), f"{market.instance_type} and its image"
        return (
            Requirement(image, self.buyer.check, optional=True),
            Requirement("spot", self._spot),
            Requirement(f"network {network}", self._network, optional=True),
            Requirement("ssh", self._way_in, optional=True),
            Requirement("service account of machines", self._account),
            Requirement(f"quotas in {market.region}", self._quotas, optional=True),
            Requirement("not checked", partial(str, _UNCHECKED), note=True),
        )

    def _spot(self) -> str:
        type_ = self.request.market.instance_type
        if self.request.bid is not None and type_.partition("-")[0] in NEVER_SPOT:
            raise NotFound(f"Google sells no {type_} as spot; name other types, or rent on demand")
        return f"{type_} is sold as spot" if self.request.bid is not None else "on demand"

    def _network(self) -> str:
        region, settings, calls_ = self.request.market.region, self.settings, self.buyer.calls
        path = orders.subnetwork_of(self.request, settings, f"{region}-a")
        if path is not None:
            name = last_part(path)
            where = {"region": path.split("/")[-3], "subnetwork": name}
            if calls_.unless_missing(calls.GET_SUBNETWORK, f"subnetwork {name}", **where) is None:
                cure = "correct subnetwork in [gcp]"
                raise BadRequest(f"there is no subnetwork {name} in {region}; {cure}")
            return f"subnetwork {name} in {region}"

        name = last_part(self.request.network or settings.network)
        network = calls_.unless_missing(calls.GET_NETWORK, f"network {name}", network=name)
        if network is None:
            create = f"gcloud compute networks create {name} --subnet-mode auto"
            cure = f"create it ({create}), or set network in [gcp]"
            raise BadRequest(f"the project has no network {name}; {cure}")

        is_custom = not network.auto_create_subnetworks
        if is_custom and not any(region in subnetwork for subnetwork in network.subnetworks):
            cure = "add one, or set subnetwork in [gcp]"
            raise BadRequest(f"network {name} has no subnetwork in {region}; {cure}")

        return "exists"

    def _way_in(self) -> str:
        settings = self.settings
        if settings.network_tags:
            return f"as the network's rules for {', '.join(settings.network_tags)} admit it"
        if settings.ssh_from:
            return f"from {', '.join(settings.ssh_from)}"

        cure = "set ssh_from in [gcp] to the public address of this computer"
        if settings.network != "default" or settings.subnetwork or self.request.network:
            raise BadRequest(f"no address may reach machines over ssh; {cure}, or network_tags")

        rules = self.buyer.calls.listed(
            calls.LIST_FIREWALLS, "list of firewall rules", 'name eq ".*"'
        )
        own = [rule for rule in rules if last_part(rule.network) == settings.network]
        if not any(map(_admits_ssh, own)):
            raise BadRequest(f"no rule of network default admits ssh; {cure}")
        return "as a rule of network default admits it"

    def _account(self) -> str:
        """Whether machines may be given their service account."""
        account = self.request.identity or self.settings.service_account
        if account is None or "@" not in account:
            return "the project's default one, which is not looked up"
        return given_account(self.buyer.calls.session, account)

    def _quotas(self) -> str:
        """Whether vCPUs and public addresses suffice, as far as the region's own limits say."""
        request, market = self.request, self.request.market
        what = f"quotas of {market.region}"
        region = self.buyer.calls.call(calls.GET_REGION, what, region=market.region)
        limits = limits_of(region)

        zone = last_part(region.zones[0]) if market.zone == NO_ZONE else market.zone
        name, _ = split_type(market.instance_type)
        what = f"machine type {name} in {zone}"
        asked = {"zone": zone, "machine_type": name}
        type_ = self.buyer.calls.unless_missing(calls.GET_MACHINE_TYPE, what, **asked)

        # Reserved machines count against no quota of vCPUs.
        vcpus = 0
        if type_ is not None and not request.reservation:
            vcpus = request.count * type_.guest_cpus
        own_quota = "PREEMPTIBLE_CPUS" if request.bid is not None else ""
        metric = own_quota if limits.get(own_quota) else VCPUS
        needed = {
            metric: vcpus,
            _ADDRESSES: request.count if self.settings.public_ip else 0,
        }

        stated = []
        for name, amount in needed.items():
            if name not in limits:
                continue
            if limits[name] < amount:
                other = ", or set public_ip = false in [gcp]" if name == _ADDRESSES else ""
                command = calls.RAISE_COMMAND.format(
                    project=self.buyer.calls.session.project,
                    quota=name.replace("_", "-"),
                    region=market.region,
                    limit=amount,
                )
                cure = f"request more at {calls.QUOTAS}, or with {command}{other}"
                problem = (
                    f"{name} is {limits[name]} in {market.region}, and {amount} are needed; {cure}"
                )
                raise QuotaReached(problem, Scope.TYPE)
            stated.append(f"{name} {limits[name]}, {amount} needed")

        return ", ".join(stated) or "Google states none"


def _admits_ssh(rule: Any) -> bool:  # noqa: ANN401  # the SDK's messages
    """Whether a rule admits tcp to port 22 on all machines."""
    if rule.target_tags or rule.disabled or rule.direction == "EGRESS":
        return False

    for entry in rule.allowed:
        # Without ports, all are admitted; a range is written as 20-25.
        ranges = [ports.partition("-") for ports in entry.ports] or [("0", "-", "65535")]
        is_open = any(int(first) <= _SSH_PORT <= int(last or first) for first, _, last in ranges)
        if is_open and entry.I_p_protocol in ("tcp", "all"):
            return True

    return False


VCPUS = "CPUS"
_SPOT = "PREEMPTIBLE_"
_ALL_VCPUS, _ALL_GPUS = "CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS"
_SERIES = ("c2", "c2d", "c3", "e2", "m1", "m2", "m3", "n2", "n2d", "t2a", "t2d")
"""The series whose vCPUs may have a quota of their own, such as `N2_CPUS`."""

_VARIANTS = ("", "-highcpu", "-highmem", "-standard")
GPU_METRICS = {
    "a2-highgpu": "NVIDIA_A100_GPUS",
    "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
    "a3-megagpu": "NVIDIA_H100_MEGA_GPUS",
    "a3-ultragpu": "NVIDIA_H200_GPUS",
    "a4-highgpu": "NVIDIA_B200_GPUS",
    "a4x-highgpu": "NVIDIA_GB200_GPUS",
    "g2-standard": "NVIDIA_L4_GPUS",
    "g4-standard": "NVIDIA_RTX_PRO_6000_GPUS",
}
"""The metric of each family whose GPUs belong to the machine type."""

_FAMILIES = (
    *(
        (
            "+".join(series + variant for variant in _VARIANTS),
            f"{series.upper()}_{VCPUS}",
            QuotaUnit.VCPUS,
        )
        for series in _SERIES
    ),
    *((family, metric, QuotaUnit.GPUS) for family, metric in GPU_METRICS.items()),
)


# The SDK's messages are not annotated.
def limits_of(stated: Any) -> dict[str, int]:  # noqa: ANN401
    """The limits of a region or a project by their metrics."""
    return {quota.metric: int(quota.limit) for quota in stated.quotas}


def spot_limit(limits: Mapping[str, int], metric: str) -> int | None:
    """The limit of spot machines or, without one, that of all machines; None: neither is stated."""
    own = limits.get(_SPOT + metric)
    return own or limits.get(metric, own)


# The SDK's messages are not annotated.
def region_quotas(region: Any) -> tuple[Quota, ...]:  # noqa: ANN401
    """The quotas of spot machines in a region, then those of machines on demand.

    `CPUS` is left out for machines on demand: it holds for the series that have none of their own.
    """
    limits = limits_of(region)
    if not limits:
        return ()

    vcpus = spot_limit(limits, VCPUS) or 0
    quotas = [Quota(orders.CLOUD, region.name, None, vcpus, QuotaUnit.VCPUS)]
    for spot in (True, False):
        # Only spot machines without a quota of their own share the quotas of the series.
        has_own = spot and limits.get(_SPOT + VCPUS)
        for family, metric, unit in _FAMILIES:
            limit = spot_limit(limits, metric) if spot else limits.get(metric)
            if limit is None or (has_own and unit is QuotaUnit.VCPUS):
                continue
            quotas.append(Quota(orders.CLOUD, region.name, family, limit, unit, spot=spot))

    return tuple(quotas)


# The SDK's messages are not annotated.
def project_quotas(project: Any) -> tuple[Quota, ...]:  # noqa: ANN401
    """The quotas of all regions: of vCPUs on demand, and of GPUs, which all machines share."""
    limits, quotas = limits_of(project), list[Quota]()
    if _ALL_VCPUS in limits:
        quotas.append(
            Quota(orders.CLOUD, None, None, limits[_ALL_VCPUS], QuotaUnit.VCPUS, spot=False)
        )
    if _ALL_GPUS in limits:
        for spot in (True, False):
            quotas.append(
                Quota(orders.CLOUD, None, None, limits[_ALL_GPUS], QuotaUnit.GPUS, spot=spot)
            )
    return tuple(quotas)
