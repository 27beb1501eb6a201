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
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotPermitted,
    QuotaReached,
    Throttled,
    TokenTaken,
    Unanswered,
)
from spotctl.clouds.meanings import error_of_kind
from spotctl.home.errors import BadRequest, SpotctlError

_TRY_ANOTHER_MARKET = "try another market, or this one later"
_RAISE_QUOTA = "request a higher EC2 quota"
_REPEATED = "spotctl tries again"
_CORRECT_RESERVATION = "correct the id among the job's reservations"
_CORRECT_SETTINGS = "correct [aws] in config.toml, or the job"


class AwsRefusal(NamedTuple):
    """The meaning of a code: an error of the contract, where the code is documented, and the cure."""

    kind: type[SpotctlError]
    source: str
    cure: str


TABLE: dict[str, AwsRefusal] = {
    # No machine of this kind here and now.
    "InsufficientInstanceCapacity": AwsRefusal(NoCapacity, "server", _TRY_ANOTHER_MARKET),
    "InsufficientCapacity": AwsRefusal(NoCapacity, "server", _TRY_ANOTHER_MARKET),
    "InsufficientHostCapacity": AwsRefusal(NoCapacity, "server", _TRY_ANOTHER_MARKET),
    "InsufficientReservedInstanceCapacity": AwsRefusal(NoCapacity, "server", _TRY_ANOTHER_MARKET),
    "InsufficientVolumeCapacity": AwsRefusal(NoCapacity, "server", _TRY_ANOTHER_MARKET),
    "InsufficientAddressCapacity": AwsRefusal(NoCapacity, "server", _TRY_ANOTHER_MARKET),
    "ReservationCapacityExceeded": AwsRefusal(NoCapacity, "action", _TRY_ANOTHER_MARKET),
    "UnfulfillableCapacity": AwsRefusal(NoCapacity, "fleet", _TRY_ANOTHER_MARKET),
    "SpotMaxPriceTooLow": AwsRefusal(NoCapacity, "fleet", "raise the maximum price, or leave it out"),
    "InsufficientFreeAddressesInSubnet": AwsRefusal(NoCapacity, "action", "use a larger subnet, or another zone"),
    # The account may not have more.
    "AddressLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "HostLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "InstanceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "PlacementGroupLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "MaxIOPSLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "MaxSpotInstanceCountExceeded": AwsRefusal(QuotaReached, "fleet", _RAISE_QUOTA),
    "NetworkInterfaceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "ResourceCountExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "RulesPerSecurityGroupLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "SecurityGroupLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "SecurityGroupsPerInstanceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "SecurityGroupsPerInterfaceLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "VcpuLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    "VolumeLimitExceeded": AwsRefusal(QuotaReached, "action", _RAISE_QUOTA),
    # Too many calls.
    "BandwidthLimitExceeded": AwsRefusal(Throttled, "server", _REPEATED),
    "EC2ThrottledException": AwsRefusal(Throttled, "server", _REPEATED),
    "RequestLimitExceeded": AwsRefusal(Throttled, "server", _REPEATED),
    "Throttling": AwsRefusal(Throttled, "client", _REPEATED),
    "ThrottlingException": AwsRefusal(Throttled, "ssm", _REPEATED),
    "TooManyRequestsException": AwsRefusal(Throttled, "quotas", _REPEATED),
    "ConcurrentTagAccess": AwsRefusal(Throttled, "action", _REPEATED),
    "TooManyUpdates": AwsRefusal(Throttled, "ssm", _REPEATED),
    # Credentials, permissions and the account itself.
    "AuthFailure": AwsRefusal(NotPermitted, "client", "enable the region for the account, or check the keys"),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": AwsRefusal(
        NotPermitted,
        "fleet",
        "run once, with an administrator's rights: aws iam create-service-linked-role --aws-service-name"
        " spot.amazonaws.com",
    ),
    "Blocked": AwsRefusal(NotPermitted, "client", "the account is blocked: contact AWS Support"),
    "OptInRequired": AwsRefusal(NotPermitted, "client", "subscribe to the service, or to the image's product"),
    "PendingVerification": AwsRefusal(
        NotPermitted, "client", "AWS is still verifying the account: wait for its e-mail"
    ),
    "InvalidSecurity.RequestHasExpired": AwsRefusal(NotPermitted, "client", "set this computer's clock"),
    "RequestExpired": AwsRefusal(LoginNeeded, "client", "renew the credentials, or set this computer's clock"),
    "UnauthorizedOperation": AwsRefusal(NotPermitted, "client", "spotctl doctor --policy prints what is needed"),
    "OperationNotPermitted": AwsRefusal(NotPermitted, "action", "lift the machine's termination protection"),
    "TagPolicyViolation": AwsRefusal(NotPermitted, "action", "set the tags that the company requires: [aws.tags]"),
    # What the request names does not exist: a market, or a machine.
    "InvalidAvailabilityZone": AwsRefusal(NotFound, "action", "the zone is not available to the account"),
    "InvalidInstanceType": AwsRefusal(NotFound, "action", "the type does not exist here"),
    "InvalidZone.NotFound": AwsRefusal(NotFound, "action", "the zone is not available to the account"),
    "Unsupported": AwsRefusal(NotFound, "action", "the type does not exist in this zone"),
    "UnsupportedOperation": AwsRefusal(NotFound, "client", "the type does not support it"),
    "EncryptedVolumesNotSupported": AwsRefusal(NotFound, "action", "the type cannot encrypt its disks"),
    "VolumeTypeNotAvailableInZone": AwsRefusal(NotFound, "action", "the zone has no gp3 disks"),
    "InvalidCapacityReservationId.Malformed": AwsRefusal(NotFound, "action", _CORRECT_RESERVATION),
    "InvalidCapacityReservationId.NotFound": AwsRefusal(NotFound, "action", _CORRECT_RESERVATION),
    "InvalidCapacityReservationState": AwsRefusal(NotFound, "action", "it has ended, or has not begun"),
    "InvalidInstanceID.Malformed": AwsRefusal(NotFound, "action", ""),
    "InvalidInstanceID.NotFound": AwsRefusal(NotFound, "action", ""),
    "InvalidSpotInstanceRequestID.Malformed": AwsRefusal(NotFound, "action", ""),
    "InvalidSpotInstanceRequestID.NotFound": AwsRefusal(NotFound, "action", ""),
    # Settings that the cloud does not have or does not accept.
    "DefaultVpcDoesNotExist": AwsRefusal(BadRequest, "action", "create a default network, or set subnets in [aws]"),
    "InvalidAMIID.Malformed": AwsRefusal(BadRequest, "action", "correct the image"),
    "InvalidAMIID.NotFound": AwsRefusal(BadRequest, "action", "name an image of this region"),
    "InvalidAMIID.Unavailable": AwsRefusal(BadRequest, "action", "name another image"),
    "InvalidBlockDeviceMapping": AwsRefusal(BadRequest, "action", "make the disk as large as the image needs"),
    "InvalidGroup.NotFound": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidGroupId.Malformed": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidIamInstanceProfileArn.Malformed": AwsRefusal(BadRequest, "action", "correct the job's identity"),
    "InvalidKeyPair.NotFound": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidParameter": AwsRefusal(BadRequest, "client", _CORRECT_SETTINGS),
    "InvalidParameterCombination": AwsRefusal(BadRequest, "client", _CORRECT_SETTINGS),
    "InvalidParameterValue": AwsRefusal(BadRequest, "client", _CORRECT_SETTINGS),
    "InvalidSecurityGroupID.NotFound": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidSnapshot.NotFound": AwsRefusal(BadRequest, "action", "name another image"),
    "InvalidSubnet": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidSubnetID.NotFound": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidTagKey.Malformed": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "InvalidUserData.Malformed": AwsRefusal(BadRequest, "action", "make the payload smaller"),
    "InvalidVpcID.NotFound": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "NoSuchEntity": AwsRefusal(BadRequest, "iam", "correct the job's identity"),
    "KmsKeyNotAccessibleFault": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "MissingInput": AwsRefusal(BadRequest, "action", "create a default subnet, or set subnets in [aws]"),
    "NonEBSInstance": AwsRefusal(BadRequest, "action", "name an image with an EBS disk"),
    "ParameterNotFound": AwsRefusal(BadRequest, "ssm", "name an image of this region"),
    "ParameterVersionNotFound": AwsRefusal(BadRequest, "ssm", "name an image of this region"),
    "TagLimitExceeded": AwsRefusal(BadRequest, "action", "set fewer tags in [aws]"),
    "UnsupportedTenancy": AwsRefusal(BadRequest, "action", _CORRECT_SETTINGS),
    "VPCIdNotSpecified": AwsRefusal(BadRequest, "action", "create a default network, or set subnets in [aws]"),
    "VPCResourceNotSpecified": AwsRefusal(BadRequest, "action", "set subnets in [aws]"),
    # It may have been carried out, or will succeed in a moment.
    "DependencyViolation": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "IncorrectInstanceState": AwsRefusal(Unanswered, "action", _REPEATED),
    "IncorrectState": AwsRefusal(Unanswered, "action", _REPEATED),
    "InternalError": AwsRefusal(Unanswered, "server", _REPEATED),
    "InternalFailure": AwsRefusal(Unanswered, "server", _REPEATED),
    "InternalServerError": AwsRefusal(Unanswered, "ssm", _REPEATED),
    "InvalidGroup.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidNetworkInterface.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidPlacementGroup.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidPlacementGroup.Unknown": AwsRefusal(Unanswered, "action", _REPEATED),
    "InvalidIPAddress.InUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    "InvalidState": AwsRefusal(Unanswered, "action", _REPEATED),
    "ServiceException": AwsRefusal(Unanswered, "quotas", _REPEATED),
    "ServiceUnavailable": AwsRefusal(Unanswered, "server", _REPEATED),
    "Unavailable": AwsRefusal(Unanswered, "server", _REPEATED),
    "VolumeInUse": AwsRefusal(Unanswered, "action", "resources that use it are still ending"),
    # The token.
    "IdempotentParameterMismatch": AwsRefusal(TokenTaken, "client", "a different request needs a token of its own"),
    "IdempotentInstanceTerminated": AwsRefusal(TokenTaken, "action", "a different request needs a token of its own"),
}
"""The meaning of each code when a machine is requested or a resource is described. A code in `ABSENT` means that
nothing is left to remove. Codes that are not listed keep the cloud's own words."""

ABSENT = frozenset(
    """
    InvalidAddress.NotFound InvalidAddressID.NotFound InvalidAllocationID.NotFound InvalidGroup.NotFound
    InvalidInstanceID.Malformed InvalidInstanceID.NotFound InvalidKeyPair.NotFound InvalidLaunchTemplateId.NotFound
    InvalidLaunchTemplateName.NotFoundException InvalidNetworkInterfaceID.NotFound InvalidPermission.NotFound
    InvalidPlacementGroup.Unknown InvalidSecurityGroupID.NotFound InvalidSpotInstanceRequestID.NotFound
    InvalidVolume.NotFound
    """.split()
)


def refused(error: CloudError, about: str = "") -> SpotctlError:
    """The error of the contract for an error of AWS. `about` names the object of the call, such as a market."""
    where = f"{about}: " if about else ""
    known = TABLE.get(error.code)
    if known is not None:
        return known.kind(f"{where}{error.problem}{known.cure and f'; {known.cure}'}")
    return error_of_kind(error, f"{where}{error}")


def code_of(error: BaseException) -> str:
    """AWS's code behind an error of the contract; empty if the error has none."""
    return error.__cause__.code if isinstance(error.__cause__, CloudError) else ""


@contextmanager
def as_contract(about: str = "") -> Iterator[None]:
    """Turns AWS's errors into those of the provider contract."""
    try:
        yield
    except CloudError as error:
        raise refused(error, about) from error
