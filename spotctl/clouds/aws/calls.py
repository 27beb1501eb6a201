"""`AwsCalls`: calls to AWS in any region, which raise the errors of the provider contract.

Most codes in the table of errors are those of "Error codes for the Amazon EC2 API", where missing
capacity is a server error, with HTTP status 500.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Lock
from typing import TypeVar
from urllib.parse import urlsplit

from pricing_data.errors import CloudError
from pricing_data.units import MINUTE
from spotctl.clouds.aws.orders import CLOUD, Row, machine_id
from spotctl.clouds.aws.session import AwsAnswer, AwsClient, AwsSession, Service
from spotctl.clouds.errors import (
    MADE_WITHIN,
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    PartlyListed,
    ProviderError,
    QuotaReached,
    Refusal,
    Scope,
    Throttled,
    TokenTaken,
    Unanswered,
    error_of_kind,
    in_contract,
    refused,
)
from spotctl.home.errors import BadRequest, SpotctlError

T = TypeVar("T")

_REGIONS_AT_A_TIME = 40
"""More than there are, so that those that answer do not wait for those that do not."""

REGION_SECONDS = 20.0
"""After this time without an answer from any of them, the regions that are left count as silent."""

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
    """Clients of services and regions, opened when first needed and shared by threads, as botocore
    allows.
    """

    def __init__(self, session: AwsSession) -> None:
        self._session = session
        self._open, self._clients = ExitStack(), dict[tuple[Service, str], AwsClient]()
        self._lock = Lock()

    def ec2(self, region: str, operation: str, about: str = "", **arguments: object) -> AwsAnswer:
        """EC2's answer to one call; `about` names the purpose of the call in errors."""
        return self.call("ec2", region, operation, about, **arguments)

    def call(
        self, service: Service, region: str, operation: str, about: str = "", **arguments: object
    ) -> AwsAnswer:
        """The answer of any service to one call."""
        with self._answered(about):
            return self._client(service, region).call(operation, **arguments)

    def described(
        self,
        region: str,
        operation: str,
        holding: str,
        filters: Mapping[str, Sequence[str]],
        **arguments: object,
    ) -> list[Row]:
        """The items that EC2 lists under `holding`, on all pages, and that pass all filters."""
        asked = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        size = {"MaxResults": _PAGE_ROWS[operation]} if operation in _PAGE_ROWS else {}
        with self._answered():
            pages = self._client("ec2", region).pages(
                operation, holding, Filters=asked, **size, **arguments
            )
            return [row for page in pages for row in page[holding]]

    @property
    def region(self) -> str | None:
        """The region that is configured on this computer."""
        with self._answered():
            return self._session.sign_in()

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
                self._clients[service, region] = self._open.enter_context(
                    self._session.client(service, region)
                )
            return self._clients[service, region]


def in_each(regions: Sequence[str], call: Callable[[str], Sequence[T]]) -> list[T]:
    """Calls all regions in parallel and joins their answers. PartlyListed: some failed, or were
    silent.
    """
    if len(regions) < 2:
        return [item for region in regions for item in call(region)]

    silent = Unanswered(f"{CLOUD}: no answer within {REGION_SECONDS:.0f} s; try again")
    answers: dict[str, Sequence[T] | ProviderError] = dict.fromkeys(regions, silent)
    pool = ThreadPoolExecutor(_REGIONS_AT_A_TIME, "aws-region")
    try:
        called = {pool.submit(call, region): region for region in regions}
        while called and (answered := wait(called, REGION_SECONDS, FIRST_COMPLETED).done):
            for asked in answered:
                region = called.pop(asked)
                try:
                    answers[region] = asked.result()
                except ProviderError as error:
                    answers[region] = error
    finally:
        # Neither a silent region nor Ctrl-C keeps the command waiting for its threads.
        pool.shutdown(wait=False, cancel_futures=True)

    failures, listed = dict[str, ProviderError](), list[T]()
    for region, answer in answers.items():
        if isinstance(answer, ProviderError):
            failures[region] = answer
        else:
            listed += answer

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
    "run once, with an administrator's rights: aws iam create-service-linked-role "
    "--aws-service-name spot.amazonaws.com"
)
_FREE_PLAN = (
    "the account is on AWS's free plan, which rents few types: upgrade the plan under Billing in "
    "the console, or name types that this lists: aws ec2 describe-instance-types --filters "
    "Name=free-tier-eligible,Values=true"
)
_ORGANISATION = (
    "only who administers the AWS organisation can allow it, and other regions are tried"
)
_DENY = "remove the statement that denies it: no permission that you add outweighs it"
_NEW_PROFILE = (
    f"AWS may need {MADE_WITHIN // MINUTE} minutes to know a new profile, and spotctl tries again "
    "as long. If it is not new, correct the job's identity (aws iam list-instance-profiles)"
)
_TERMS = (
    "accept the terms of the image's product at https://aws.amazon.com/marketplace, or name "
    "another image"
)
_ACTIVATION = "subscribe to the service, or wait: a new account may take 24 hours to be activated"

_EC2 = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html"
_SSM = "https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_GetParameter.html"
_IAM = "https://docs.aws.amazon.com/IAM/latest/APIReference/CommonErrors.html"
_DENIED = "https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html"
_SPOT = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-spot-limits.html"
_KARPENTER = "https://github.com/aws/karpenter-provider-aws/pull/"
_WORKSHOP = "https://github.com/aws-samples/eks-workshop-v2/issues/1644"
_PROFILE = r"iamInstanceProfile\.\w+ is invalid|Invalid IAM Instance Profile"

_IN_DETAIL = (
    Refusal(
        "InvalidParameterCombination",
        NotPermitted,
        Scope.ACCOUNT,
        _FREE_PLAN,
        _WORKSHOP,
        r"free.tier",
    ),
    Refusal(
        "InvalidParameterValue", NotYet, Scope.MOMENT, _NEW_PROFILE, f"{_KARPENTER}7849", _PROFILE
    ),
    *(
        refusal
        for code in ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
        for refusal in (
            Refusal(
                code,
                NotHere,
                Scope.ORGANISATION,
                _ORGANISATION,
                _DENIED,
                r"explicit deny in a (service|resource) c",
            ),
            Refusal(code, NotPermitted, Scope.ACCOUNT, _DENY, _DENIED, r"explicit deny"),
        )
    ),
    Refusal(
        "OptInRequired", NotPermitted, Scope.ACCOUNT, _TERMS, _EC2, r"marketplace|accept terms"
    ),
)
"""The meaning of codes in some messages only."""

_MACHINE, _ZONE, _REGION, _ACCOUNT, _MOMENT = (
    Scope.MACHINE,
    Scope.ZONE,
    Scope.REGION,
    Scope.ACCOUNT,
    Scope.MOMENT,
)
_CODES: Mapping[tuple[type[SpotctlError], Scope, str, str], str] = {
    # No machine of this kind here and now.
    (NoCapacity, _MACHINE, _TRY_ANOTHER_MARKET, _EC2): """
        InsufficientInstanceCapacity InsufficientCapacity InsufficientHostCapacity InsufficientReservedInstanceCapacity
        InsufficientVolumeCapacity ReservationCapacityExceeded UnfulfillableCapacity
    """,
    (
        NoCapacity,
        _REGION,
        "the region has no free public address: try again later",
        _EC2,
    ): "InsufficientAddressCapacity",
    (NoCapacity, _MACHINE, "raise the maximum price, or leave it out", _EC2): "SpotMaxPriceTooLow",
    (
        NoCapacity,
        _ZONE,
        "use a larger subnet, or another zone",
        _EC2,
    ): "InsufficientFreeAddressesInSubnet",
    # The account may not have more, in one region.
    (QuotaReached, Scope.TYPE, _RAISE_QUOTA, _EC2): """
        HostLimitExceeded InstanceLimitExceeded MaxIOPSLimitExceeded VcpuLimitExceeded VolumeLimitExceeded
    """,
    (QuotaReached, _REGION, _RAISE_QUOTA, _EC2): """
        AddressLimitExceeded NetworkInterfaceLimitExceeded PlacementGroupLimitExceeded ResourceCountExceeded
        RulesPerSecurityGroupLimitExceeded SecurityGroupLimitExceeded SecurityGroupsPerInstanceLimitExceeded
        SecurityGroupsPerInterfaceLimitExceeded
    """,
    (QuotaReached, _REGION, _RAISE_QUOTA, _SPOT): "MaxSpotInstanceCountExceeded",
    # Too many calls.
    (Throttled, _MOMENT, _REPEATED, _EC2): """
        BandwidthLimitExceeded EC2ThrottledException RequestLimitExceeded Throttling ThrottlingException
        TooManyRequestsException ConcurrentTagAccess TooManyUpdates
    """,
    # Credentials, permissions and the account itself.
    (NotHere, _REGION, "enable the region for the account, or check the keys", _EC2): "AuthFailure",
    (NotPermitted, _ACCOUNT, _MAKE_ROLE, _EC2): "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
    (
        NotPermitted,
        _ACCOUNT,
        "the account is blocked: contact AWS Support",
        _EC2,
    ): "AccountDisabled Blocked",
    (NotPermitted, _ACCOUNT, _ACTIVATION, _EC2): "OptInRequired",
    (
        NotPermitted,
        _ACCOUNT,
        "AWS is still verifying the account: wait for its e-mail",
        _EC2,
    ): "PendingVerification",
    (
        NotPermitted,
        _ACCOUNT,
        "set this computer's clock",
        _EC2,
    ): "InvalidSecurity.RequestHasExpired",
    (
        LoginNeeded,
        _ACCOUNT,
        "renew the credentials, or set this computer's clock",
        _EC2,
    ): "RequestExpired",
    (NotPermitted, _ACCOUNT, "spotctl doctor --policy aws prints what is needed", _EC2): """
        AccessDenied AccessDeniedException UnauthorizedOperation
    """,
    (
        NotPermitted,
        _MACHINE,
        "lift the machine's termination protection",
        _EC2,
    ): "OperationNotPermitted",
    (
        NotPermitted,
        Scope.ORGANISATION,
        "set the tags that the company requires: [aws.tags]",
        _EC2,
    ): "TagPolicyViolation",
    # What the request names does not exist: a market, or a machine.
    (
        NotHere,
        _ZONE,
        "the zone is not available to the account",
        _EC2,
    ): "InvalidAvailabilityZone InvalidZone.NotFound",
    (NotFound, _MACHINE, "the type does not exist here", _EC2): "InvalidInstanceType",
    (NotFound, _MACHINE, "the type does not exist in this zone", _EC2): "Unsupported",
    (NotFound, _MACHINE, "the type does not support it", _EC2): "UnsupportedOperation",
    (NotFound, _MACHINE, "the type cannot encrypt its disks", _EC2): "EncryptedVolumesNotSupported",
    (NotHere, _ZONE, "the zone has no gp3 disks", _EC2): "VolumeTypeNotAvailableInZone",
    (NotFound, _MACHINE, _CORRECT_RESERVATION, _EC2): """
        InvalidCapacityReservationId.Malformed InvalidCapacityReservationId.NotFound
    """,
    (NotFound, _MACHINE, "it has ended, or has not begun", _EC2): "InvalidCapacityReservationState",
    (NotFound, _MACHINE, "", _EC2): """
        InvalidInstanceID.Malformed InvalidInstanceID.NotFound InvalidSpotInstanceRequestID.Malformed
        InvalidSpotInstanceRequestID.NotFound
    """,
    # Settings that the cloud does not have or does not accept.
    (
        BadRequest,
        _ACCOUNT,
        "create a default network (aws ec2 create-default-vpc), or set subnets in [aws]",
        _EC2,
    ): """
        DefaultVpcDoesNotExist VPCIdNotSpecified
    """,
    (BadRequest, _ACCOUNT, "correct the image", _EC2): "InvalidAMIID.Malformed",
    (BadRequest, _ACCOUNT, "name an image of this region", _EC2): "InvalidAMIID.NotFound",
    (
        BadRequest,
        _ACCOUNT,
        "name an image of this region",
        _SSM,
    ): "ParameterNotFound ParameterVersionNotFound",
    (
        BadRequest,
        _ACCOUNT,
        "name another image",
        _EC2,
    ): "InvalidAMIID.Unavailable InvalidSnapshot.NotFound",
    (
        BadRequest,
        _ACCOUNT,
        "make the disk as large as the image needs",
        _EC2,
    ): "InvalidBlockDeviceMapping",
    (BadRequest, _ACCOUNT, _CORRECT_SETTINGS, _EC2): """
        InvalidGroup.NotFound InvalidGroupId.Malformed InvalidKeyPair.NotFound InvalidParameter
        InvalidParameterCombination InvalidParameterValue InvalidSecurityGroupID.NotFound InvalidSubnet
        InvalidSubnetID.NotFound InvalidTagKey.Malformed InvalidVpcID.NotFound KmsKeyNotAccessibleFault
        UnsupportedTenancy
    """,
    (
        BadRequest,
        _ACCOUNT,
        "correct the job's identity",
        _EC2,
    ): "InvalidIamInstanceProfileArn.Malformed",
    (BadRequest, _ACCOUNT, "correct the job's identity", _IAM): "NoSuchEntity",
    (BadRequest, _ACCOUNT, "make the payload smaller", _EC2): "InvalidUserData.Malformed",
    (
        BadRequest,
        _ACCOUNT,
        "create a default subnet, or set subnets in [aws]",
        _EC2,
    ): "MissingInput",
    (BadRequest, _ACCOUNT, "name an image with an EBS disk", _EC2): "NonEBSInstance",
    (BadRequest, _ACCOUNT, "set fewer tags in [aws]", _EC2): "TagLimitExceeded",
    (BadRequest, _ACCOUNT, "set subnets in [aws]", _EC2): "VPCResourceNotSpecified",
    # It may have been carried out, or will succeed in a moment.
    (Unanswered, _MOMENT, "resources that use it are still ending", _EC2): """
        DependencyViolation InvalidGroup.InUse InvalidNetworkInterface.InUse InvalidPlacementGroup.InUse
        InvalidIPAddress.InUse VolumeInUse
    """,
    (Unanswered, _MOMENT, _REPEATED, _EC2): """
        IncorrectInstanceState IncorrectState InternalError InternalFailure InternalServerError
        InvalidPlacementGroup.Unknown InvalidState ServiceException ServiceUnavailable Unavailable
    """,
    # The token.
    (TokenTaken, _MACHINE, "a different request needs a token of its own", _EC2): """
        IdempotentParameterMismatch IdempotentInstanceTerminated
    """,
}
REFUSALS = (
    *_IN_DETAIL,
    *(Refusal(code, *meaning) for meaning, codes in _CODES.items() for code in codes.split()),
)
"""The meaning of each code when a machine is requested or a resource is described. A code in
`ABSENT` means that nothing is left to remove. Codes that are not listed keep the cloud's own words.
The first row that fits decides."""

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
    """The error of the contract for an error of AWS. `about` names the object of the call, such as
    a market.
    """
    where = f"{about}: " if about else ""
    known = refused(REFUSALS, error.code, f"{where}{error.problem}", error.problem)
    return known or error_of_kind(error, f"{where}{error}")


def code_of(error: BaseException) -> str:
    """AWS's code behind an error of the contract; empty if the error has none."""
    return error.__cause__.code if isinstance(error.__cause__, CloudError) else ""
