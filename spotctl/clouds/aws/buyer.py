"""`Buyer`: finds or makes what machines need, and buys the machines of a request with one call."""

from __future__ import annotations

from collections.abc import Sequence

from pricing_data.market import LINUX, Market
from spotctl.clouds.aws.calls import AwsCalls
from spotctl.clouds.aws.images import Ec2Hardware, MachineImage, is_image, parameter_for
from spotctl.clouds.aws.networks import Networks
from spotctl.clouds.aws.orders import LaunchPlace, order
from spotctl.clouds.aws.placement import PlacementGroups
from spotctl.clouds.aws.quotas import pool_of, raise_command
from spotctl.clouds.aws.refusals import code_of
from spotctl.clouds.aws.rows import Row
from spotctl.clouds.aws.settings import AwsMachineSettings
from spotctl.clouds.errors import NotFound, QuotaReached, Unanswered
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest, SpotctlError

_VCPU_LIMITS = frozenset({"InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"})
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
        self._calls, self._settings = calls, settings
        self._networks, self._placement = Networks(calls, settings), PlacementGroups(calls, settings)
        self._hardware: dict[tuple[str, str, str], Ec2Hardware] = {}
        self._images: dict[tuple[str, str, Ec2Hardware], MachineImage] = {}

    def buy(self, request: MachineRequest, user_data: str) -> Sequence[Row]:
        """The machines as EC2 grants them: at least one, perhaps fewer than requested."""
        market = request.market
        arguments = order(request, self._place(request), user_data, self._settings.tags)
        try:
            answer = self._calls.ec2(market.region, "RunInstances", str(market), **arguments)
        except SpotctlError as error:
            group = _GROUP_GONE.get(code_of(error), "")
            if group and not (group == _SECURITY and self._settings.security_groups):
                # A new group is not known everywhere at once, and `gc` may have removed an old one.
                self.forget()
                raise Unanswered(f"{market}: EC2 does not know its new {group} yet; spotctl tries again") from error
            if code_of(error) in _VCPU_LIMITS and (pool := pool_of(market.instance_type)) is not None:
                command = raise_command(pool.code(spot=request.bid is not None), market.region)
                raise QuotaReached(f"{error} as {pool.name}: {command}") from error.__cause__
            raise
        rows: Sequence[Row] = answer["Instances"]
        return rows

    def check(self, request: MachineRequest, user_data: str) -> str:
        """Has EC2 check an order by a dry run, which buys nothing, and returns its image."""
        market, place = request.market, self._place(request)
        arguments = order(request, place, user_data, self._settings.tags)
        try:
            self._calls.ec2(market.region, "RunInstances", str(market), DryRun=True, **arguments)
        except SpotctlError as error:
            if code_of(error) != _WOULD_SUCCEED:
                raise
        return place.image.id

    def forget(self) -> None:
        """Looks for subnets and groups again, or makes them: they may have been removed."""
        self._networks.forget()
        self._placement.forget()

    def _place(self, request: MachineRequest) -> LaunchPlace:
        hardware = self._hardware_of(request.market)
        image = self._image(request, hardware)
        subnet = self._networks.subnet(request)
        groups = self._networks.groups(request, subnet["VpcId"])
        return LaunchPlace(
            subnet["SubnetId"],
            groups,
            image,
            self._settings.public_ip,
            self._settings.kms_key,
            hardware.is_burstable,
            self._placement.ensure(request, hardware) if request.close else "",
        )

    def _hardware_of(self, market: Market) -> Ec2Hardware:
        """The hardware of a market's type. NotFound: its zone does not have that type, or does not exist."""
        key = market.region, market.zone, market.instance_type
        if key not in self._hardware:
            by_type = {"instance-type": [market.instance_type]}
            by_zone = by_type | {"location": [market.zone]}
            operation, holding = "DescribeInstanceTypeOfferings", "InstanceTypeOfferings"
            where = {"LocationType": "availability-zone"}
            if market.os != LINUX or not self._calls.described(market.region, operation, holding, by_zone, **where):
                raise NotFound(
                    f"{market}: EC2 has no such market; spotctl lab prices ls aws/{market.region}/* lists them"
                )
            (row,) = self._calls.described(market.region, "DescribeInstanceTypes", "InstanceTypes", by_type)
            self._hardware[key] = Ec2Hardware.of(row)
        return self._hardware[key]

    def _image(self, request: MachineRequest, hardware: Ec2Hardware) -> MachineImage:
        region = request.market.region
        named = request.image or self._settings.image or parameter_for(hardware)
        key = region, named, hardware
        if key not in self._images:
            id_ = named if is_image(named) else self._parameter(region, named, str(request.market))
            images = self._calls.ec2(region, "DescribeImages", str(request.market), ImageIds=[id_])["Images"]
            if not images:
                raise BadRequest(f"{request.market}: image {id_} does not exist in {region}")
            self._images[key] = MachineImage.of(images[0], hardware)
        return self._images[key]

    def _parameter(self, region: str, name: str, about: str) -> str:
        return str(self._calls.call("ssm", region, "GetParameter", about, Name=name)["Parameter"]["Value"])
