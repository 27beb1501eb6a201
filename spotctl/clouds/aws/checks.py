"""The conditions for renting machines on AWS, checked by describe calls and dry runs, which change
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from spotctl.clouds.aws.buyer import Buyer
from spotctl.clouds.aws.calls import code_of
from spotctl.clouds.aws.cloud import AwsMachineSettings, partition_of
from spotctl.clouds.aws.orders import pool_of, raise_command
from spotctl.clouds.doctor import RESERVED, OrderNeeds, Requirement
from spotctl.clouds.errors import NotFound, QuotaReached, Scope
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest, SpotctlError

_EVERYWHERE = ("0.0.0.0/0", "::/0")


class AwsNeeds(OrderNeeds[Buyer, AwsMachineSettings, MachineRequest]):
    """The needs of one order, by describe calls and dry runs."""

    @property
    def rows(self) -> Sequence[Requirement]:
        market, settings, profile = self.request.market, self.settings, self.request.identity
        checks = [
            Requirement(f"region {market.region}", self._region, optional=True),
            Requirement(f"type {market.instance_type}", self._type),
            Requirement("image", self._image),
            Requirement(f"subnet in {market.zone}", self._subnet),
            Requirement("route", self._route, optional=True),
            Requirement("ssh", self._way_in),
            Requirement("dry run", partial(self._dry_run, None)),
            Requirement("quota", self._quota, optional=True),
        ]

        if profile is not None:
            of_profile = partial(self._dry_run, profile)
            checks.append(Requirement(f"profile {profile}", of_profile))
        if settings.kms_key is not None:
            of_key = partial(self._key, settings.kms_key)
            checks.append(Requirement("key", of_key, optional=True))
        return checks

    def _region(self) -> str:
        region = self.request.market.region
        about = f"region {region}"
        asked = {"RegionNames": [region], "AllRegions": True}
        _, home = partition_of(region)
        try:
            answer = self.buyer.calls.ec2(home, "DescribeRegions", about, **asked)["Regions"]
        except SpotctlError as error:
            if code_of(error) == "InvalidParameterValue":
                raise NotFound(f"AWS has no {about}; correct regions") from error
            raise

        status = answer[0].get("OptInStatus", "") if answer else "not-opted-in"
        if status == "not-opted-in":
            cure = f"aws account enable-region --region-name {region}"
            raise NotFound(f"the account has not enabled it; {cure}")

        return "enabled"

    def _type(self) -> str:
        hardware = self.buyer.hardware_of(self.request.market)
        if self.request.bid is not None and not hardware.is_spot:
            cure = "name other types, or rent on demand"
            raise NotFound(f"AWS sells no {hardware.name} as spot; {cure}")
        return f"exists in {self.request.market.zone}{', also as spot' if hardware.is_spot else ''}"

    def _image(self) -> str:
        hardware = self.buyer.hardware_of(self.request.market)
        return f"{self.buyer.image_of(self.request, hardware).id} for {hardware.architecture}"

    def _subnet(self) -> str:
        subnet = self.buyer.networks.subnet(self.request)
        return f"{subnet['SubnetId']}, {subnet.get('AvailableIpAddressCount', 0)} addresses free"

    def _route(self) -> str:
        """Whether machines reach the internet, from which they install packages."""
        subnet, region = self.buyer.networks.subnet(self.request), self.request.market.region
        own = {"association.subnet-id": [subnet["SubnetId"]]}
        main = {"association.main": ["true"], "vpc-id": [subnet["VpcId"]]}
        described = partial(
            self.buyer.calls.described, region, "DescribeRouteTables", "RouteTables"
        )

        for table in described(own) or described(main):
            for route in table.get("Routes", ()):
                to = route.get("DestinationCidrBlock", route.get("DestinationIpv6CidrBlock"))
                gates = [name for name in route if name.endswith(("GatewayId", "InterfaceId"))]
                way = str(route[gates[0]]) if gates else ""
                is_open = not self.settings.public_ip or way.startswith("igw-")
                if to in _EVERYWHERE and is_open:
                    return f"{to} through {way}"

        need = "an internet gateway" if self.settings.public_ip else "a NAT gateway or the like"
        where = f"{subnet['SubnetId']} has no route to {need}, so machines get no packages"
        cure = f"add one (aws ec2 create-route --region {region}), or set other subnets in [aws]"
        raise BadRequest(f"{where}; {cure}")

    def _way_in(self) -> str:
        """Whether ssh is admitted; a group of the company's is taken at its word."""
        settings = self.settings
        if not settings.security_groups:
            return self.buyer.networks.way_in(self.request)
        subnet = self.buyer.networks.subnet(self.request)
        return (
            f"as {', '.join(self.buyer.networks.groups(self.request, subnet['VpcId']))} admits it"
        )

    def _dry_run(self, profile: str | None) -> str:
        self.buyer.dry_run(replace(self.request, identity=profile))
        return "EC2 would accept the order" if profile is None else "EC2 would give it to machines"

    def _quota(self) -> str:
        market, spot = self.request.market, self.request.bid is not None
        if self.request.reservation:
            return RESERVED
        if (pool := pool_of(market.instance_type)) is None:
            return "not known for this type"

        code, kind = pool.code(spot=spot), "spot" if spot else "on-demand"
        if not code:
            return f"AWS names none for {kind} machines of {pool.name}"
        named = {"ServiceCode": "ec2", "QuotaCode": code}
        answer = self.buyer.calls.call("service-quotas", market.region, "GetServiceQuota", **named)
        quota = answer["Quota"]["Value"]
        needed = self.buyer.hardware_of(market).vcpus * self.request.count

        if quota < needed:
            cure = f"{raise_command(code, market.region)}"
            problem = (
                f"{quota:,.0f} {kind} vCPUs of {pool.name} in {market.region}, and {needed} are "
                f"needed; {cure}"
            )
            raise QuotaReached(problem, Scope.TYPE)

        return f"{quota:,.0f} {kind} vCPUs of {pool.name}, {needed} needed"

    def _key(self, key: str) -> str:
        state = self.buyer.calls.call("kms", self.request.market.region, "DescribeKey", KeyId=key)[
            "KeyMetadata"
        ]["KeyState"]
        if state != "Enabled":
            raise BadRequest(f"key {key} is {state}; enable it, or correct kms_key in [aws]")
        return "enabled"
