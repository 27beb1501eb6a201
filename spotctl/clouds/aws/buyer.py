"""`Buyer`: finds or makes what machines need, and buys the machines of a request with one call.

Machines go to an existing subnet of their zone, into a security group, the company's or one of the
run's own, whose machines reach each other, and which admits ssh from the settings' ranges. The
machines of a gang go into a cluster placement group, next to each other, for a fast network between
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pricing_data.market import LINUX, Market
from spotctl.clouds.aws.calls import AwsCalls, code_of
from spotctl.clouds.aws.cloud import AwsMachineSettings
from spotctl.clouds.aws.orders import (
    GROUP,
    Ec2Hardware,
    LaunchPlace,
    MachineImage,
    Row,
    filters_of,
    group_name,
    order,
    parameter_for,
    pool_of,
    raise_command,
    size_of,
    tag_list,
)
from spotctl.clouds.aws.session import AwsAnswer
from spotctl.clouds.errors import NotFound, NotHere, ProviderError, QuotaReached, Scope, Unanswered
from spotctl.clouds.provider import MachineRequest, run_tags
from spotctl.home.errors import BadRequest, SpotctlError

_VCPU_LIMITS = frozenset(
    {"InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"}
)
_WOULD_SUCCEED = "DryRunOperation"
_SECURITY = "security group"
_GROUP_GONE = {
    "InvalidGroup.NotFound": _SECURITY,
    "InvalidSecurityGroupID.NotFound": _SECURITY,
    "InvalidPlacementGroup.Unknown": "placement group",
}


class Buyer:
    """Buys for one account. It caches only to save calls."""

    def __init__(self, calls: AwsCalls, settings: AwsMachineSettings) -> None:
        self.calls, self._settings = calls, settings
        self._hardware: dict[tuple[str, str, str], Ec2Hardware] = {}
        self._images: dict[tuple[str, str], Row] = {}
        self.forget()

    def buy(self, request: MachineRequest, user_data: str) -> Sequence[Row]:
        """The machines as EC2 grants them: at least one, perhaps fewer than requested."""
        market = request.market
        arguments = order(request, self._place(request), user_data, self._settings.tags)
        try:
            rows: Sequence[Row] = self._order(request, **arguments)["Instances"]
        except SpotctlError as error:
            group = _GROUP_GONE.get(code_of(error), "")
            if group and not (group == _SECURITY and self._settings.security_groups):
                # A new group is not known everywhere at once, and `gc` may have removed an old one.
                self.forget()
                cure = "spotctl tries again"
                raise Unanswered(
                    f"{market}: EC2 does not know its new {group} yet; {cure}"
                ) from error
            raise

        return rows

    def check(self, request: MachineRequest, user_data: str) -> str:
        """Has EC2 check an order by a dry run, which buys nothing, and returns its image."""
        place = self._place(request)
        self._order(request, DryRun=True, **order(request, place, user_data, self._settings.tags))
        return place.image.id

    def dry_run(self, request: MachineRequest) -> None:
        """Has EC2 check an order in the network's default group, and makes nothing."""
        settings, hardware = self._settings, self.hardware_of(request.market)
        subnet = self.networks.subnet(request)
        image = self.image_of(request, hardware)
        groups, key = settings.security_groups, settings.kms_key
        place = LaunchPlace(subnet["SubnetId"], groups, image, settings.public_ip, key)
        arguments = order(request, place, "", settings.tags)
        self._order(request, DryRun=True, **arguments)

    def _order(self, request: MachineRequest, **arguments: object) -> AwsAnswer:
        """EC2's answer, which is empty if a dry run says that an order would succeed. A refusal
        because of a quota says how to raise it."""
        market = request.market
        try:
            return self.calls.ec2(market.region, "RunInstances", str(market), **arguments)
        except SpotctlError as error:
            code, pool = code_of(error), pool_of(market.instance_type)
            if code == _WOULD_SUCCEED:
                return {}
            quota = "" if pool is None else pool.code(spot=request.bid is not None)
            if code in _VCPU_LIMITS and pool is not None and quota:
                command = raise_command(quota, market.region)
                scope = error.scope if isinstance(error, ProviderError) else Scope.TYPE
                raise QuotaReached(f"{error} as {pool.name}: {command}", scope) from error.__cause__
            raise

    def forget(self) -> None:
        """From now on looks for subnets and groups again, or makes them: they may have been
        removed.
        """
        self.networks = Networks(self.calls, self._settings)

    def _place(self, request: MachineRequest) -> LaunchPlace:
        hardware = self.hardware_of(request.market)
        image = self.image_of(request, hardware)
        subnet = self.networks.subnet(request)
        groups = self.networks.groups(request, subnet["VpcId"])
        return LaunchPlace(
            subnet["SubnetId"],
            groups,
            image,
            self._settings.public_ip,
            self._settings.kms_key,
            hardware.is_burstable,
            self.networks.placement_group(request, hardware) if request.close else "",
        )

    def hardware_of(self, market: Market) -> Ec2Hardware:
        """The hardware of a market's type. NotFound: its zone does not have that type, or does not
        exist.
        """
        key = market.region, market.zone, market.instance_type
        if key not in self._hardware:
            by_type = {"instance-type": [market.instance_type]}
            by_zone = by_type | {"location": [market.zone]}
            operation, holding = "DescribeInstanceTypeOfferings", "InstanceTypeOfferings"
            where = {"LocationType": "availability-zone"}
            if market.os != LINUX or not self.calls.described(
                market.region, operation, holding, by_zone, **where
            ):
                cure = f"spotctl lab prices ls aws/{market.region}/* lists them"
                raise NotFound(f"{market}: EC2 has no such market; {cure}")
            (row,) = self.calls.described(
                market.region, "DescribeInstanceTypes", "InstanceTypes", by_type
            )
            self._hardware[key] = Ec2Hardware.of(row)

        return self._hardware[key]

    def image_of(self, request: MachineRequest, hardware: Ec2Hardware) -> MachineImage:
        """The image that a request's machines boot."""
        named = request.image or self._settings.image or parameter_for(hardware)
        return MachineImage(self._row_of(request.market, named), hardware)

    def least_gib(self, market: Market, image: str | None) -> int:
        """The size of an image that the job or the settings name; 0 if neither does, since the
        usual disks hold the usual images."""
        named = image or self._settings.image
        return size_of(self._row_of(market, named)) if named else 0

    def _row_of(self, market: Market, named: str) -> Row:
        """EC2's description of an image in a market's region."""
        region, id_, about = market.region, named, str(market)
        if (region, named) not in self._images:
            if named.startswith("/"):
                id_ = str(
                    self.calls.call("ssm", region, "GetParameter", about, Name=named)["Parameter"][
                        "Value"
                    ]
                )
            elif not named.startswith("ami-"):
                problem = (
                    f"image {named!r} is neither an AMI (ami-...) nor the name of an SSM "
                    "parameter (/...)"
                )
                raise BadRequest(problem)
            images = self.calls.ec2(region, "DescribeImages", about, ImageIds=[id_])["Images"]
            if not images:
                raise BadRequest(f"{about}: image {id_} does not exist in {region}")
            self._images[region, named] = images[0]

        return self._images[region, named]


class Networks:
    """Finds subnets, and makes the groups of a run when its first machine in a network, or in a
    zone, is bought.
    """

    def __init__(self, calls: AwsCalls, settings: AwsMachineSettings) -> None:
        self._calls, self._settings = calls, settings
        self._subnets: dict[tuple[str, str, str], Row] = {}
        self._groups: dict[tuple[str, str, str], str] = {}
        self._placement = set[tuple[str, str]]()

    def subnet(self, request: MachineRequest) -> Row:
        """The subnet for a request. NotFound: none in its zone can be used."""
        market = request.market
        named = self._settings.subnets if request.network is None else (request.network,)
        key = market.region, market.zone, ",".join(named)
        if key not in self._subnets:
            filters: dict[str, Sequence[str]] = (
                {"subnet-id": named} if named else {"default-for-az": ["true"]}
            )
            anywhere = self._calls.described(market.region, "DescribeSubnets", "Subnets", filters)
            open_ = [row for row in anywhere if row.get("State") == "available"]
            subnets = [row for row in open_ if row["AvailabilityZone"] == market.zone]
            if not subnets and named:
                cure = "name one that is, under subnets in [aws]"
                problem = (
                    f"{market}: none of the subnets {', '.join(named)} is in {market.zone}; {cure}"
                )
                raise NotFound(problem)
            if not subnets:
                cure = (
                    f"create one (aws ec2 create-default-subnet --region {market.region} "
                    f"--availability-zone {market.zone}, in an account without a default network "
                    f"first aws ec2 create-default-vpc --region {market.region}), or set subnets "
                    "in [aws] of config.toml"
                )
                problem = f"{market}: the account has no default subnet in {market.zone}; {cure}"
                raise NotHere(problem, Scope.ZONE if open_ else Scope.REGION)
            free = [int(row.get("AvailableIpAddressCount", 0)) for row in subnets]
            self._subnets[key] = subnets[free.index(max(free))]

        return self._subnets[key]

    def groups(self, request: MachineRequest, vpc: str) -> tuple[str, ...]:
        """The security groups for a request's machines in a network."""
        region, named = request.market.region, self._settings.security_groups
        if named:
            filters = {"group-id": named, "vpc-id": [vpc]}
            groups = self._calls.described(
                region, "DescribeSecurityGroups", "SecurityGroups", filters
            )
            if not groups:
                problem = (
                    f"{request.market}: none of the security groups {', '.join(named)} is in "
                    f"network {vpc}"
                )
                raise BadRequest(problem)
            return tuple(group["GroupId"] for group in groups)

        self.way_in(request)
        key = region, vpc, group_name(request)
        if key not in self._groups:
            group = self._group_of(request, *key)
            # A caller that was killed may have made the group without its rules.
            sources = admitted_sources(group.get("IpPermissions", ())) or self._settings.ssh_from
            self._replace(region, group, rules_of(group["GroupId"], sources))
            self._groups[key] = group["GroupId"]

        return (self._groups[key],)

    def way_in(self, request: MachineRequest) -> str:
        """The addresses that may reach machines over ssh. BadRequest: there are none."""
        if not self._settings.ssh_from:
            raise BadRequest(
                f"{request.market}: no address may reach its machines over ssh; set ssh_from in "
                "[aws] of config.toml to"
                ' the public address of this computer (ssh_from = ["203.0.113.7/32"]), or set security_groups'
            )
        return f"from {', '.join(self._settings.ssh_from)}"

    def placement_group(self, request: MachineRequest, hardware: Ec2Hardware) -> str:
        """The name of the run's placement group in a zone. NotFound: machines of this type cannot
        be in one.
        """
        market = request.market
        if not hardware.can_cluster:
            cure = "name other types"
            problem = (
                f"{market}: EC2 puts no {market.instance_type} into a cluster placement group "
                f"(resources: {{placement: close}}); {cure}"
            )
            raise NotFound(problem)

        # A group is in one zone as long as it has machines.
        name = f"{group_name(request)}-{market.zone}"
        if (market.region, name) not in self._placement:
            tags = {**self._settings.tags, **run_tags(request.tags), GROUP: name}
            specification = [{"ResourceType": "placement-group", "Tags": tag_list(tags)}]
            try:
                self._calls.ec2(
                    market.region,
                    "CreatePlacementGroup",
                    str(market),
                    GroupName=name,
                    Strategy="cluster",
                    TagSpecifications=specification,
                )
            except ProviderError as error:
                # The run has made it before, in this process or in another one.
                if code_of(error) != "InvalidPlacementGroup.Duplicate":
                    raise
            self._placement.add((market.region, name))

        return name

    def _group_of(self, request: MachineRequest, region: str, vpc: str, name: str) -> Row:
        """The run's group in a network, which is made if there is none."""
        filters = {"group-name": [name], "vpc-id": [vpc]}
        find = partial(
            self._calls.described, region, "DescribeSecurityGroups", "SecurityGroups", filters
        )
        if groups := find():
            return groups[0]

        tags = {**self._settings.tags, **run_tags(request.tags), GROUP: name}
        specification = [{"ResourceType": "security-group", "Tags": tag_list(tags)}]
        try:
            made = self._calls.ec2(
                region,
                "CreateSecurityGroup",
                str(request.market),
                GroupName=name,
                Description="Machines of one spotctl run: each other, and ssh",
                VpcId=vpc,
                TagSpecifications=specification,
            )
        except ProviderError as error:
            if code_of(error) != "InvalidGroup.Duplicate":
                raise
            # Another process of the run made the group first, or EC2's list is behind.
            groups = find()
            if not groups:
                cure = "spotctl tries again"
                problem = f"{request.market}: security group {name} is not listed yet; {cure}"
                raise Unanswered(problem) from None
            return groups[0]

        return {"GroupId": made["GroupId"], "IpPermissions": []}

    def admit_ssh(self, region: str, tags: Mapping[str, str], ssh_from: Sequence[str]) -> list[str]:
        """Replaces the ssh rules of the runs with these tags, and returns the groups of these
        runs."""
        filters = {**filters_of(tags), "tag-key": [GROUP]}
        groups = self._calls.described(region, "DescribeSecurityGroups", "SecurityGroups", filters)
        for group in groups:
            id_, present = group["GroupId"], group.get("IpPermissions", ())
            standing = set(admitted_sources(present)) & set(ssh_from)
            self._replace(region, group, rules_of(id_, standing))
            fresh = [source for source in ssh_from if source not in standing]
            self._add(region, id_, [_ssh_rule(source, Description=ADMITTED) for source in fresh])

        return [f"security group {group['GroupId']}" for group in groups]

    def _replace(self, region: str, group: Row, rules: Sequence[IpPermission]) -> None:
        """Makes these the rules of a group. Others must not stay, such as one for yesterday's
        address.
        """
        id_, present = group["GroupId"], list[IpPermission]()
        for row in group.get("IpPermissions", ()):
            ports = {name: row[name] for name in ("FromPort", "ToPort") if row.get(name, -1) != -1}
            base = {"IpProtocol": row["IpProtocol"], **ports}
            # One source each, and without descriptions.
            for kind, source in _SOURCES:
                for entry in row.get(kind, ()):
                    present.append({**base, kind: [{source: entry[source]}]})

        extra = [rule for rule in present if rule not in rules]
        if extra:
            self._calls.ec2(region, "RevokeSecurityGroupIngress", GroupId=id_, IpPermissions=extra)
        self._add(region, id_, [rule for rule in rules if rule not in present])

    def _add(self, region: str, id_: str, rules: Sequence[IpPermission]) -> None:
        # One at a time: if one of several rules exists already, EC2 adds none of them.
        for rule in rules:
            try:
                self._calls.ec2(
                    region, "AuthorizeSecurityGroupIngress", GroupId=id_, IpPermissions=[rule]
                )
            except ProviderError as error:
                if code_of(error) != "InvalidPermission.Duplicate":
                    raise


SSH = 22
ADMITTED = "spotctl admit"
"""The description of a rule for an address that the user admitted during the run; such rules
replace the settings'."""
IpPermission = dict[str, Any]
_SOURCES = (
    ("UserIdGroupPairs", "GroupId"),
    ("IpRanges", "CidrIp"),
    ("Ipv6Ranges", "CidrIpv6"),
    ("PrefixListIds", "PrefixListId"),
)
"""The lists of sources of a rule, and what names a source in each."""


def rules_of(group: str, ssh_from: Iterable[str]) -> list[IpPermission]:
    """The rules of a group, one source each."""
    among_themselves = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
    return [among_themselves, *(_ssh_rule(source) for source in ssh_from)]


def _ssh_rule(source: str, **about: str) -> IpPermission:
    kind, name = ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")
    return {"IpProtocol": "tcp", "FromPort": SSH, "ToPort": SSH, kind: [{name: source, **about}]}


def admitted_sources(present: Sequence[Row]) -> list[str]:
    """The sources of ssh that the user admitted during the run."""
    admitted = []
    for row in present:
        for kind, source in (("IpRanges", "CidrIp"), ("Ipv6Ranges", "CidrIpv6")):
            entries = row.get(kind, ())
            admitted += [entry[source] for entry in entries if entry.get("Description") == ADMITTED]

    return admitted
