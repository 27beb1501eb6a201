"""The conditions for renting machines on Google Cloud, as far as they can be looked up: it has no dry runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pricing_data.market import NO_ZONE
from spotctl.clouds.doctor import Check
from spotctl.clouds.errors import ApiCall, NotFound, NotPermitted, QuotaReached, Scope
from spotctl.clouds.gcp import calls, orders
from spotctl.clouds.gcp.calls import GcpCalls
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.gcp.inventory import last_part
from spotctl.clouds.gcp.machine_types import NEVER_SPOT, split_type
from spotctl.clouds.gcp.session import ACT_AS
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest

_QUOTAS = "https://console.cloud.google.com/iam-admin/quotas"
_SSH_PORT = 22

_UNCHECKED = "organization policies, capacity, and whether machines reach the internet: Google Cloud has no dry runs"


@dataclass(frozen=True, slots=True)
class GoogleChecks:
    """The checks of one request; `known_image` looks up its type and image, and returns the image's name."""

    calls: GcpCalls
    settings: GcpMachineSettings
    request: MachineRequest
    known_image: Callable[[], str]

    @property
    def all(self) -> Sequence[Check]:
        market = self.request.market
        network = self.request.network or self.settings.subnetwork or self.settings.network
        return (
            Check(f"{market.instance_type} and its image", self.known_image, optional=True),
            Check("spot", self._spot),
            Check(f"network {last_part(network)}", self._network, optional=True),
            Check("ssh", self._way_in, optional=True),
            Check("service account of machines", self._account),
            Check(f"quotas in {market.region}", self._quotas, optional=True),
            Check("not checked", partial(str, _UNCHECKED), note=True),
        )

    def _spot(self) -> str:
        type_ = self.request.market.instance_type
        if self.request.bid is not None and type_.partition("-")[0] in NEVER_SPOT:
            raise NotFound(f"Google sells no {type_} as spot; name other types, or rent on demand")
        return f"{type_} is sold as spot" if self.request.bid is not None else "on demand"

    def _network(self) -> str:
        region, settings = self.request.market.region, self.settings
        path = orders.subnetwork_of(self.request, settings, f"{region}-a")
        if path is not None:
            name = last_part(path)
            subnetwork = self.calls.unless_missing(
                calls.GET_SUBNETWORK, f"subnetwork {name}", region=path.split("/")[-3], subnetwork=name
            )
            if subnetwork is None:
                raise BadRequest(f"there is no subnetwork {name} in {region}; correct subnetwork in [gcp]")
            return f"subnetwork {name} in {region}"
        name = last_part(self.request.network or settings.network)
        network = self.calls.unless_missing(calls.GET_NETWORK, f"network {name}", network=name)
        if network is None:
            create = f"gcloud compute networks create {name} --subnet-mode auto"
            raise BadRequest(f"the project has no network {name}; create it ({create}), or set network in [gcp]")
        if not network.auto_create_subnetworks and not any(region in subnet for subnet in network.subnetworks):
            raise BadRequest(f"network {name} has no subnetwork in {region}; add one, or set subnetwork in [gcp]")
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
        rules = self.calls.listed(calls.LIST_FIREWALLS, "list of firewall rules", 'name eq ".*"')
        if not any(last_part(rule.network) == settings.network and _admits_ssh(rule) for rule in rules):
            raise BadRequest(f"no rule of network default admits ssh; {cure}")
        return "as a rule of network default admits it"

    def _account(self) -> str:
        """Whether machines may be given their service account."""
        account = self.request.identity or self.settings.service_account
        if account is None or "@" not in account:
            return "the project's default one, which is not looked up"
        call = ApiCall(f"permissions on {account}", "iam.serviceAccounts.get")
        if not self.calls.session.may_act_as(call, account):
            grant = f"gcloud iam service-accounts add-iam-policy-binding {account} --member user:YOU"
            raise NotPermitted(f"{ACT_AS} on {account} is missing; {grant} --role roles/iam.serviceAccountUser")
        return account

    def _quotas(self) -> str:
        """Whether vCPUs and public addresses suffice, as far as the region's own limits say."""
        market, count, spot = self.request.market, self.request.count, self.request.bid is not None
        region = self.calls.call(calls.GET_REGION, f"quotas of {market.region}", region=market.region)
        limits = {quota.metric: int(quota.limit) for quota in region.quotas}
        zone = last_part(region.zones[0]) if market.zone == NO_ZONE else market.zone
        name = split_type(market.instance_type)[0]
        type_ = self.calls.unless_missing(
            calls.GET_MACHINE_TYPE, f"machine type {name} in {zone}", zone=zone, machine_type=name
        )
        # Reserved machines count against no quota of vCPUs.
        vcpus = 0 if type_ is None or self.request.reservation else count * type_.guest_cpus
        metric = "PREEMPTIBLE_CPUS" if spot and limits.get("PREEMPTIBLE_CPUS") else "CPUS"
        needed = {metric: vcpus, "IN_USE_ADDRESSES": count if self.settings.public_ip else 0}
        for quota, amount in needed.items():
            if quota in limits and limits[quota] < amount:
                other = ", or set public_ip = false in [gcp]" if quota == "IN_USE_ADDRESSES" else ""
                raise QuotaReached(
                    f"{quota} is {limits[quota]} in {market.region}, and {amount} are needed; request more at"
                    f" {_QUOTAS}{other}",
                    Scope.TYPE,
                )
        stated = (f"{quota} {limits[quota]}, {amount} needed" for quota, amount in needed.items() if quota in limits)
        return ", ".join(stated) or "Google states none"


def _admits_ssh(rule: Any) -> bool:  # noqa: ANN401  # the SDK's messages
    """Whether a rule admits tcp to port 22 on all machines."""
    if rule.target_tags or rule.disabled or rule.direction == "EGRESS":
        return False
    return any(
        entry.I_p_protocol in ("tcp", "all") and (not entry.ports or any(map(_has_ssh, entry.ports)))
        for entry in rule.allowed
    )


def _has_ssh(ports: str) -> bool:
    first, _, last = ports.partition("-")
    return int(first) <= _SSH_PORT <= int(last or first)
