"""Where machines go: an existing subnet of their zone, and a security group, the company's or one of the run's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spotctl.clouds.aws.calls import AwsCalls
from spotctl.clouds.aws.labels import GROUP, filters_of, group_name, tag_list, tags_of_run
from spotctl.clouds.aws.refusals import code_of
from spotctl.clouds.aws.rows import Row
from spotctl.clouds.aws.rules import IpPermission, admitted, admitting, missing, superfluous, wanted
from spotctl.clouds.aws.settings import AwsMachineSettings
from spotctl.clouds.errors import NotFound, ProviderError, Unanswered
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest


class Networks:
    """Finds subnets, and makes the security group of a run when its first machine in a network is bought."""

    def __init__(self, calls: AwsCalls, settings: AwsMachineSettings) -> None:
        self._calls, self._settings = calls, settings
        self._subnets: dict[tuple[str, str, str], Row] = {}
        self._groups: dict[tuple[str, str, str], str] = {}

    def subnet(self, request: MachineRequest) -> Row:
        """The subnet for a request. NotFound: none in its zone can be used."""
        market, named = request.market, self._named_subnets(request)
        key = market.region, market.zone, ",".join(named)
        if key not in self._subnets:
            filters: dict[str, Sequence[str]] = {"availability-zone": [market.zone], "state": ["available"]}
            filters |= {"subnet-id": named} if named else {"default-for-az": ["true"]}
            subnets = self._calls.described(market.region, "DescribeSubnets", "Subnets", filters)
            if not subnets:
                raise NotFound(_no_subnet(str(market), market.zone, named))
            self._subnets[key] = max(subnets, key=lambda row: int(row.get("AvailableIpAddressCount", 0)))
        return self._subnets[key]

    def groups(self, request: MachineRequest, vpc: str) -> tuple[str, ...]:
        """The security groups for a request's machines in a network."""
        region = request.market.region
        if not self._settings.security_groups:
            return (self._own_group(request, region, vpc),)
        named = self._settings.security_groups
        filters = {"group-id": named, "vpc-id": [vpc]}
        groups = self._calls.described(region, "DescribeSecurityGroups", "SecurityGroups", filters)
        if not groups:
            raise BadRequest(f"{request.market}: none of the security groups {', '.join(named)} is in network {vpc}")
        return tuple(group["GroupId"] for group in groups)

    def forget(self) -> None:
        """Looks for groups and subnets again: they may have been removed."""
        self._groups.clear()
        self._subnets.clear()

    def _named_subnets(self, request: MachineRequest) -> Sequence[str]:
        return (request.network,) if request.network is not None else self._settings.subnets

    def _own_group(self, request: MachineRequest, region: str, vpc: str) -> str:
        """The run's group, with its rules. A caller that was killed may have made the group without them."""
        if not self._settings.ssh_from:
            raise BadRequest(
                f"{request.market}: no address may reach its machines over ssh; set ssh_from in [aws] of config.toml to"
                ' the public address of this computer (ssh_from = ["203.0.113.7/32"]), or set security_groups'
            )
        key = region, vpc, group_name(request)
        if key not in self._groups:
            group = self._find_group(*key) or self._make_group(request, *key)
            self._set_rules(region, group)
            self._groups[key] = group["GroupId"]
        return self._groups[key]

    def _find_group(self, region: str, vpc: str, name: str) -> Row | None:
        filters = {"group-name": [name], "vpc-id": [vpc]}
        groups = self._calls.described(region, "DescribeSecurityGroups", "SecurityGroups", filters)
        return groups[0] if groups else None

    def _make_group(self, request: MachineRequest, region: str, vpc: str, name: str) -> Row:
        tags = {**self._settings.tags, **tags_of_run(request), GROUP: name}
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
            group = self._find_group(region, vpc, name)
            if group is None:
                raise Unanswered(
                    f"{request.market}: security group {name} is not listed yet; spotctl tries again"
                ) from None
            return group
        return {"GroupId": made["GroupId"], "IpPermissions": []}

    def admit_ssh(self, region: str, tags: Mapping[str, str], ssh_from: Sequence[str]) -> list[str]:
        """Replaces the ssh rules of the runs with these tags, and returns the groups of these runs."""
        filters = {**filters_of(tags), "tag-key": [GROUP]}
        groups = self._calls.described(region, "DescribeSecurityGroups", "SecurityGroups", filters)
        for group in groups:
            id_, present = group["GroupId"], group.get("IpPermissions", ())
            standing = set(admitted(present)) & set(ssh_from)
            self._replace(region, group, wanted(id_, standing))
            fresh = wanted(id_, [source for source in ssh_from if source not in standing])[1:]
            self._add(region, id_, [admitting(rule) for rule in fresh])
        return [f"security group {group['GroupId']}" for group in groups]

    def _set_rules(self, region: str, group: Row) -> None:
        present = group.get("IpPermissions", ())
        self._replace(region, group, wanted(group["GroupId"], admitted(present) or self._settings.ssh_from))

    def _replace(self, region: str, group: Row, rules: Sequence[IpPermission]) -> None:
        id_, present = group["GroupId"], group.get("IpPermissions", ())
        if extra := superfluous(present, rules):
            self._calls.ec2(region, "RevokeSecurityGroupIngress", GroupId=id_, IpPermissions=extra)
        self._add(region, id_, missing(present, rules))

    def _add(self, region: str, id_: str, rules: Sequence[IpPermission]) -> None:
        # One at a time: if one of several rules exists already, EC2 adds none of them.
        for rule in rules:
            try:
                self._calls.ec2(region, "AuthorizeSecurityGroupIngress", GroupId=id_, IpPermissions=[rule])
            except ProviderError as error:
                if code_of(error) != "InvalidPermission.Duplicate":
                    raise


def _no_subnet(market: str, zone: str, named: Sequence[str]) -> str:
    if named:
        return f"{market}: none of the subnets {', '.join(named)} is in {zone}"
    return (
        f"{market}: the account has no default subnet in {zone}; create one"
        f" (aws ec2 create-default-subnet --availability-zone {zone}), or set subnets in [aws] of config.toml"
    )
