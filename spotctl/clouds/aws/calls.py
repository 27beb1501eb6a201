"""`AwsCalls`: calls to AWS in any region, which raise the errors of the provider contract.

The codes in the table of errors are those of "Error codes for the Amazon EC2 API" in the Amazon EC2 API Reference,
where missing capacity is a server error, with HTTP status 500; a few are in the references of Systems Manager
(GetParameter), Service Quotas (ListServiceQuotas) and IAM (GetInstanceProfile).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from typing import TypeVar
from urllib.parse import urlsplit

from pricing_data.errors import CloudError
from spotctl.clouds.aws.orders import Row, machine_id
from spotctl.clouds.aws.session import AwsAnswer, AwsClient, AwsSession, Service
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotPermitted,
    PartlyListed,
    ProviderError,
    QuotaReached,
    Refusal,
    Throttled,
    TokenTaken,
    Unanswered,
    error_of_kind,
    in_contract,
    refused,
)
from spotctl.home.errors import BadRequest, SpotctlError

T = TypeVar("T")

_REGIONS_AT_A_TIME = 8
# The largest page size of each operation that accepts a page size together with filters.
_PAGE_ROWS = {
    "DescribeInstances": 1000,
    "DescribeLaunchTemplates": 200,
    "DescribeNetworkInterfaces": 1000,
    "DescribeSecurityGroups": 1000,
    "DescribeSpotInstanceRequests": 1000,
    "DescribeVolumes": 1000,
}


class AwsCalls:
    """Clients of services and regions, opened when first needed and shared by threads, as botocore allows."""

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._open, self._clients = ExitStack(), dict[tuple[Service, str], AwsClient]()
        self._lock = Lock()

    def ec2(self, region: str, operation: str, about: str = "", **arguments: object) -> AwsAnswer:
        """EC2's answer to one call; `about` names the purpose of the call in errors."""
        return self.call("ec2", region, operation, about, **arguments)

    def call(self, service: Service, region: str, operation: str, about: str = "", **arguments: object) -> AwsAnswer:
        """The answer of any service to one call."""
        with self._answered(about):
            return self._client(service, region).call(operation, **arguments)

    def described(
        self, region: str, operation: str, holding: str, filters: Mapping[str, Sequence[str]], **arguments: object
    ) -> list[Row]:
        """The items that EC2 lists under `holding`, on all pages, and that pass all filters."""
        asked = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        size = {"MaxResults": _PAGE_ROWS[operation]} if operation in _PAGE_ROWS else {}
        with self._answered():
            pages = self._client("ec2", region).pages(operation, holding, Filters=asked, **size, **arguments)
            return [row for page in pages for row in page[holding]]

    def endpoint(self, region: str) -> str:
        """The host that answers calls to EC2 in a region."""
        return urlsplit(self._client("ec2", region).sdk.meta.endpoint_url).hostname or ""

    def close(self) -> None:
        """Closes all connections; the next call opens new ones."""
        with self._lock:
            self._open.close()
            self._clients.clear()

    @contextmanager
    def _answered(self, about: str = "") -> Iterator[None]:
        """Turns AWS's errors into those of the provider contract."""
        try:
            with in_contract(partial(error_of, about=about)):
                yield
        except LoginNeeded:
            # Other threads may still use the old clients, which `close` closes.
            with self._lock:
                self._clients.clear()
            self._session.forget_login()
            raise

    def _client(self, service: Service, region: str) -> AwsClient:
        with self._lock:
            if (service, region) not in self._clients:
                self._clients[service, region] = self._open.enter_context(self._session.client(service, region))
            return self._clients[service, region]


def in_each(regions: Sequence[str], call: Callable[[str], Sequence[T]]) -> list[T]:
    """Calls all regions in parallel and joins their answers. PartlyListed: some failed."""
    if len(regions) < 2:
        return [item for region in regions for item in call(region)]

    def attempt(region: str) -> Sequence[T] | ProviderError:
        try:
            return call(region)
        except ProviderError as error:
            return error

    pool = ThreadPoolExecutor(_REGIONS_AT_A_TIME, "aws-region")
    try:
        answers = dict(zip(regions, pool.map(attempt, regions), strict=True))
    finally:
        # After Ctrl-C, nobody waits for a region that does not answer.
        pool.shutdown(wait=False, cancel_futures=True)
    failures = {region: answer for region, answer in answers.items() if isinstance(answer, ProviderError)}
    listed = [item for answer in answers.values() if not isinstance(answer, ProviderError) for item in answer]
    if not failures:
        return listed
    first = next(iter(failures.values()))
    if len(failures) == len(regions):
        raise first
    raise PartlyListed(first, listed, [machine_id(region, "") for region in failures]) from first


_TRY_ANOTHER_MARKET = "try another market, or this one later"
_RAISE_QUOTA = "request a higher EC2 quota"
_REPEATED = "spotctl tries again"
_CORRECT_RESERVATION = "correct the id among the job's reservations"
_CORRECT_SETTINGS = "correct [aws] in config.toml, or the job"
_MAKE_ROLE = (
    "run once, with an administrator's rights: aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
)


_CODES: Mapping[tuple[type[SpotctlError], str], str] = {
    # No machine of this kind here and now.
    (NoCapacity, _TRY_ANOTHER_MARKET): """
        InsufficientInstanceCapacity InsufficientCapacity InsufficientHostCapacity InsufficientReservedInstanceCapacity
        InsufficientVolumeCapacity InsufficientAddressCapacity ReservationCapacityExceeded UnfulfillableCapacity
    """,
    (NoCapacity, "raise the maximum price, or leave it out"): "SpotMaxPriceTooLow",
    (NoCapacity, "use a larger subnet, or another zone"): "InsufficientFreeAddressesInSubnet",
    # The account may not have more.
    (QuotaReached, _RAISE_QUOTA): """
        AddressLimitExceeded HostLimitExceeded InstanceLimitExceeded PlacementGroupLimitExceeded MaxIOPSLimitExceeded
        MaxSpotInstanceCountExceeded NetworkInterfaceLimitExceeded ResourceCountExceeded
        RulesPerSecurityGroupLimitExceeded SecurityGroupLimitExceeded SecurityGroupsPerInstanceLimitExceeded
        SecurityGroupsPerInterfaceLimitExceeded VcpuLimitExceeded VolumeLimitExceeded
    """,
    # Too many calls.
    (Throttled, _REPEATED): """
        BandwidthLimitExceeded EC2ThrottledException RequestLimitExceeded Throttling ThrottlingException
        TooManyRequestsException ConcurrentTagAccess TooManyUpdates
    """,
    # Credentials, permissions and the account itself.
    (NotPermitted, "enable the region for the account, or check the keys"): "AuthFailure",
    (NotPermitted, _MAKE_ROLE): "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    (NotPermitted, "the account is blocked: contact AWS Support"): "Blocked",
    (NotPermitted, "subscribe to the service, or to the image's product"): "OptInRequired",
    (NotPermitted, "AWS is still verifying the account: wait for its e-mail"): "PendingVerification",
    (NotPermitted, "set this computer's clock"): "InvalidSecurity.RequestHasExpired",
    (LoginNeeded, "renew the credentials, or set this computer's clock"): "RequestExpired",
    (NotPermitted, "spotctl doctor --policy prints what is needed"): "UnauthorizedOperation",
    (NotPermitted, "lift the machine's termination protection"): "OperationNotPermitted",
    (NotPermitted, "set the tags that the company requires: [aws.tags]"): "TagPolicyViolation",
    # What the request names does not exist: a market, or a machine.
    (NotFound, "the zone is not available to the account"): "InvalidAvailabilityZone InvalidZone.NotFound",
    (NotFound, "the type does not exist here"): "InvalidInstanceType",
    (NotFound, "the type does not exist in this zone"): "Unsupported",
    (NotFound, "the type does not support it"): "UnsupportedOperation",
    (NotFound, "the type cannot encrypt its disks"): "EncryptedVolumesNotSupported",
    (NotFound, "the zone has no gp3 disks"): "VolumeTypeNotAvailableInZone",
    (NotFound, _CORRECT_RESERVATION): """
        InvalidCapacityReservationId.Malformed InvalidCapacityReservationId.NotFound
    """,
    (NotFound, "it has ended, or has not begun"): "InvalidCapacityReservationState",
    (NotFound, ""): """
        InvalidInstanceID.Malformed InvalidInstanceID.NotFound InvalidSpotInstanceRequestID.Malformed
        InvalidSpotInstanceRequestID.NotFound
    """,
    # Settings that the cloud does not have or does not accept.
    (BadRequest, "create a default network, or set subnets in [aws]"): """
        DefaultVpcDoesNotExist VPCIdNotSpecified
    """,
    (BadRequest, "correct the image"): "InvalidAMIID.Malformed",
    (BadRequest, "name an image of this region"): """
        InvalidAMIID.NotFound ParameterNotFound ParameterVersionNotFound
    """,
    (BadRequest, "name another image"): "InvalidAMIID.Unavailable InvalidSnapshot.NotFound",
    (BadRequest, "make the disk as large as the image needs"): "InvalidBlockDeviceMapping",
    (BadRequest, _CORRECT_SETTINGS): """
        InvalidGroup.NotFound InvalidGroupId.Malformed InvalidKeyPair.NotFound InvalidParameter
        InvalidParameterCombination InvalidParameterValue InvalidSecurityGroupID.NotFound InvalidSubnet
        InvalidSubnetID.NotFound InvalidTagKey.Malformed InvalidVpcID.NotFound KmsKeyNotAccessibleFault
        UnsupportedTenancy
    """,
    (BadRequest, "correct the job's identity"): "InvalidIamInstanceProfileArn.Malformed NoSuchEntity",
    (BadRequest, "make the payload smaller"): "InvalidUserData.Malformed",
    (BadRequest, "create a default subnet, or set subnets in [aws]"): "MissingInput",
    (BadRequest, "name an image with an EBS disk"): "NonEBSInstance",
    (BadRequest, "set fewer tags in [aws]"): "TagLimitExceeded",
    (BadRequest, "set subnets in [aws]"): "VPCResourceNotSpecified",
    # It may have been carried out, or will succeed in a moment.
    (Unanswered, "resources that use it are still ending"): """
        DependencyViolation InvalidGroup.InUse InvalidNetworkInterface.InUse InvalidPlacementGroup.InUse
        InvalidIPAddress.InUse VolumeInUse
    """,
    (Unanswered, _REPEATED): """
        IncorrectInstanceState IncorrectState InternalError InternalFailure InternalServerError
        InvalidPlacementGroup.Unknown InvalidState ServiceException ServiceUnavailable Unavailable
    """,
    # The token.
    (TokenTaken, "a different request needs a token of its own"): """
        IdempotentParameterMismatch IdempotentInstanceTerminated
    """,
}
REFUSALS = tuple(Refusal(code, *meaning) for meaning, codes in _CODES.items() for code in codes.split())
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


def error_of(error: CloudError, about: str = "") -> SpotctlError:
    """The error of the contract for an error of AWS. `about` names the object of the call, such as a market."""
    where = f"{about}: " if about else ""
    known = refused(REFUSALS, error.code, f"{where}{error.problem}", error.problem)
    return known or error_of_kind(error, f"{where}{error}")


def code_of(error: BaseException) -> str:
    """AWS's code behind an error of the contract; empty if the error has none."""
    return error.__cause__.code if isinstance(error.__cause__, CloudError) else ""
