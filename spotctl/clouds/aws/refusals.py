"""Converts AWS's refusals of calls to errors of the provider contract. Pure.

Sources of the codes, in the columns of `TABLE`:

- `client`, `action`, `server`: Amazon EC2 API Reference, "Error codes for the Amazon EC2 API": common client errors,
  those of specific actions, and server errors. Missing capacity is a server error there, with HTTP status 500.
- `fleet`: the same page, under requests for Spot Instances and fleets.
- `ssm`, `quotas`, `iam`: the references of Systems Manager (GetParameter), Service Quotas (ListServiceQuotas) and
  IAM (GetInstanceProfile).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pricing_data.errors import CloudError
from spotctl.clouds.errors import NoCapacity, NotFound, NotPermitted, QuotaReached, Throttled, TokenTaken, Unanswered
from spotctl.clouds.meanings import meaning_of_kind
from spotctl.home.errors import BadRequest, SpotctlError

_ELSEWHERE = "try another market, or this one later"
_RAISE = "ask for a higher quota of EC2"
_LATER = "spotctl tries again"
_SETTING = "correct [aws] in config.toml, or the job"


class AwsRefusal(NamedTuple):
    """What a code means: an error of the contract, where the code is documented, and what to do about it."""

    kind: type[SpotctlError]
    source: str
    cure: str


TABLE: dict[str, AwsRefusal] = {
    # No machine of this kind here and now.
    "InsufficientInstanceCapacity": AwsRefusal(NoCapacity, "server", _ELSEWHERE),
    "InsufficientCapacity": AwsRefusal(NoCapacity, "server", _ELSEWHERE),
    "InsufficientHostCapacity": AwsRefusal(NoCapacity, "server", _ELSEWHERE),
    "InsufficientReservedInstanceCapacity": AwsRefusal(NoCapacity, "server", _ELSEWHERE),
    "InsufficientVolumeCapacity": AwsRefusal(NoCapacity, "server", _ELSEWHERE),
    "InsufficientAddressCapacity": AwsRefusal(NoCapacity, "server", _ELSEWHERE),
    "ReservationCapacityExceeded": AwsRefusal(NoCapacity, "action", _ELSEWHERE),
    "UnfulfillableCapacity": AwsRefusal(NoCapacity, "fleet", _ELSEWHERE),
    "SpotMaxPriceTooLow": AwsRefusal(NoCapacity, "fleet", "raise the maximum price, or leave it out"),
    "InsufficientFreeAddressesInSubnet": AwsRefusal(NoCapacity, "action", "use a larger subnet, or another zone"),
    # The account may not have more.
    "AddressLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "HostLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "InstanceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "MaxIOPSLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "MaxSpotInstanceCountExceeded": AwsRefusal(QuotaReached, "fleet", _RAISE),
    "NetworkInterfaceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "ResourceCountExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "RulesPerSecurityGroupLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "SecurityGroupLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "SecurityGroupsPerInstanceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "SecurityGroupsPerInterfaceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "VcpuLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    "VolumeLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE),
    # Too many calls.
    "BandwidthLimitExceeded": AwsRefusal(Throttled, "server", _LATER),
    "EC2ThrottledException": AwsRefusal(Throttled, "server", _LATER),
    "RequestLimitExceeded": AwsRefusal(Throttled, "server", _LATER),
    "Throttling": AwsRefusal(Throttled, "client", _LATER),
    "ThrottlingException": AwsRefusal(Throttled, "ssm", _LATER),
    "TooManyRequestsException": AwsRefusal(Throttled, "quotas", _LATER),
    "ConcurrentTagAccess": AwsRefusal(Throttled, "action", _LATER),
    "TooManyUpdates": AwsRefusal(Throttled, "ssm", _LATER),
    # Credentials, permissions and the account itself.
    "AuthFailure": AwsRefusal(NotPermitted, "client", "enable the region for the account, or check the keys"),
    "Blocked": AwsRefusal(NotPermitted, "client", "the account is blocked: contact AWS Support"),
    "OptInRequired": AwsRefusal(NotPermitted, "client", "subscribe to the service, or to the image's product"),
    "PendingVerification": AwsRefusal(NotPermitted, "client", "AWS is still verifying the account: wait for its mail"),
    "InvalidSecurity.RequestHasExpired": AwsRefusal(NotPermitted, "client", "set this computer's clock"),
    "RequestExpired": AwsRefusal(NotPermitted, "client", "renew the credentials, or set this computer's clock"),
    "UnauthorizedOperation": AwsRefusal(NotPermitted, "client", "spotctl doctor --policy prints what is needed"),
    "OperationNotPermitted": AwsRefusal(NotPermitted, "action", "lift the machine's termination protection"),
    "TagPolicyViolation": AwsRefusal(NotPermitted, "action", "set the tags that the company requires: [aws.tags]"),
    # What the request names does not exist: a market, or a machine.
    "InvalidAvailabilityZone": AwsRefusal(NotFound, "action", "the zone is not available to the account"),
    "InvalidInstanceType": AwsRefusal(NotFound, "action", "the type does not exist here"),
    "InvalidZone.NotFound": AwsRefusal(NotFound, "action", "the zone is not available to the account"),
    "Unsupported": AwsRefusal(NotFound, "action", "the type does not exist in this zone"),
    "UnsupportedOperation": AwsRefusal(NotFound, "client", "the type does not support it"),
    "VolumeTypeNotAvailableInZone": AwsRefusal(NotFound, "action", "the zone has no gp3 disks"),
    "InvalidInstanceID.Malformed": AwsRefusal(NotFound, "action", ""),
    "InvalidInstanceID.NotFound": AwsRefusal(NotFound, "action", ""),
    "InvalidSpotInstanceRequestID.Malformed": AwsRefusal(NotFound, "action", ""),
    "InvalidSpotInstanceRequestID.NotFound": AwsRefusal(NotFound, "action", ""),
    # Settings that the cloud does not have or does not accept.
    "DefaultVpcDoesNotExist": AwsRefusal(BadRequest, "action", "create a default network, or set subnets in [aws]"),
    "EncryptedVolumesNotSupported": AwsRefusal(BadRequest, "action", "the type cannot encrypt its disks: use another"),
    "InvalidAMIID.Malformed": AwsRefusal(BadRequest, "action", "correct the image"),
    "InvalidAMIID.NotFound": AwsRefusal(BadRequest, "action", "name an image of this region"),
    "InvalidAMIID.Unavailable": AwsRefusal(BadRequest, "action", "name another image"),
    "InvalidBlockDeviceMapping": AwsRefusal(BadRequest, "action", "make the disk as large as the image needs"),
    "InvalidGroup.NotFound": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidGroupId.Malformed": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidIamInstanceProfileArn.Malformed": AwsRefusal(BadRequest, "action", "correct the job's identity"),
    "InvalidKeyPair.NotFound": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidParameter": AwsRefusal(BadRequest, "client", _SETTING),
    "InvalidParameterCombination": AwsRefusal(BadRequest, "client", _SETTING),
    "InvalidParameterValue": AwsRefusal(BadRequest, "client", _SETTING),
    "InvalidSecurityGroupID.NotFound": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidSnapshot.NotFound": AwsRefusal(BadRequest, "action", "name another image"),
    "InvalidSubnet": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidSubnetID.NotFound": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidTagKey.Malformed": AwsRefusal(BadRequest, "action", _SETTING),
    "InvalidUserData.Malformed": AwsRefusal(BadRequest, "action", "make the payload smaller"),
    "InvalidVpcID.NotFound": AwsRefusal(BadRequest, "action", _SETTING),
    "NoSuchEntity": AwsRefusal(BadRequest, "iam", "correct the job's identity"),
    "KmsKeyNotAccessibleFault": AwsRefusal(BadRequest, "action", _SETTING),
    "MissingInput": AwsRefusal(BadRequest, "action", "create a default subnet, or set subnets in [aws]"),
    "NonEBSInstance": AwsRefusal(BadRequest, "action", "name an image with an EBS disk"),
    "ParameterNotFound": AwsRefusal(BadRequest, "ssm", "name an image of this region"),
    "ParameterVersionNotFound": AwsRefusal(BadRequest, "ssm", "name an image of this region"),
    "TagLimitExceeded": AwsRefusal(BadRequest, "action", "set fewer tags in [aws]"),
    "UnsupportedTenancy": AwsRefusal(BadRequest, "action", _SETTING),
    "VPCIdNotSpecified": AwsRefusal(BadRequest, "action", "create a default network, or set subnets in [aws]"),
    "VPCResourceNotSpecified": AwsRefusal(BadRequest, "action", "set subnets in [aws]"),
    # It may have been carried out, or will succeed in a moment.
    "DependencyViolation": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "IncorrectInstanceState": AwsRefusal(Unanswered, "action", _LATER),
    "IncorrectState": AwsRefusal(Unanswered, "action", _LATER),
    "InternalError": AwsRefusal(Unanswered, "server", _LATER),
    "InternalFailure": AwsRefusal(Unanswered, "server", _LATER),
    "InternalServerError": AwsRefusal(Unanswered, "ssm", _LATER),
    "InvalidGroup.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidNetworkInterface.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidIPAddress.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidState": AwsRefusal(Unanswered, "action", _LATER),
    "ServiceException": AwsRefusal(Unanswered, "quotas", _LATER),
    "ServiceUnavailable": AwsRefusal(Unanswered, "server", _LATER),
    "Unavailable": AwsRefusal(Unanswered, "server", _LATER),
    "VolumeInUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    # The token.
    "IdempotentParameterMismatch": AwsRefusal(TokenTaken, "client", "a different request needs a token of its own"),
    "IdempotentInstanceTerminated": AwsRefusal(TokenTaken, "action", "a different request needs a token of its own"),
}
"""What each code means when a machine is requested or a resource is described. A code in `ABSENT` means that there
is nothing left to remove. Codes that are not listed keep the cloud's own words."""

ABSENT = frozenset(
    """
    InvalidAddress.NotFound InvalidAddressID.NotFound InvalidAllocationID.NotFound InvalidGroup.NotFound
    InvalidInstanceID.Malformed InvalidInstanceID.NotFound InvalidKeyPair.NotFound InvalidLaunchTemplateId.NotFound
    InvalidLaunchTemplateName.NotFoundException InvalidNetworkInterfaceID.NotFound InvalidPermission.NotFound
    InvalidSecurityGroupID.NotFound InvalidSpotInstanceRequestID.NotFound InvalidVolume.NotFound
    """.split()
)


def refused(error: CloudError, about: str = "") -> SpotctlError:
    """The error of the contract for an error of AWS. `about` is what was wanted, such as a market."""
    where = f"{about}: " if about else ""
    known = TABLE.get(error.code)
    if known is not None:
        return known.kind(f"{where}{error.problem}{known.cure and f'; {known.cure}'}")
    return meaning_of_kind(error)(f"{where}{error}")


def code_of(error: BaseException) -> str:
    """AWS's code behind an error of the contract, if it has one."""
    return error.__cause__.code if isinstance(error.__cause__, CloudError) else ""


@contextmanager
def as_contract(about: str = "") -> Iterator[None]:
    """Turns AWS's errors into those of the provider contract."""
    try:
        yield
    except CloudError as error:
        raise refused(error, about) from error
