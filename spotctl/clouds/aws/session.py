"""The only door to boto3: one session that threads share, and clients that each serve one task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal

from boto3.session import Session
from botocore import exceptions as sdk, xform_name
from botocore.config import Config
from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.paginate import Paginator
from botocore.parsers import ResponseParserError
from botocore.session import Session as BotocoreSession, get_session

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    MissingExtra,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.errors import AT_A_TIME, NOT_KEPT, Answers, on_one_line

if TYPE_CHECKING:
    from stamina import RetryingCaller

Service = Literal["ec2", "fis", "iam", "kms", "pricing", "s3", "service-quotas", "ssm", "sts"]
AwsAnswer = Mapping[str, Any]

# Signing in needs a region, but any region will do.
_ANY_REGION = "us-east-1"

_SET_KEYS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, run `aws configure`, or name a configured "
    "profile in AWS_PROFILE"
)
_RENEW = "run `aws sso login` (or `aws login`), or renew the keys and AWS_SESSION_TOKEN"
_ENABLE_REGION = (
    "enable the region for the account, use other regions (--region),"
    " or check the keys with `aws sts get-caller-identity`"
)
_LATER = "try again later"

# EC2 says RequestExpired where other services say ExpiredToken, and also where this computer's
# clock is wrong.
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
_INVALID = {
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "InvalidToken",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_DENIED = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
# In a region that the account has not enabled, valid credentials are answered with AuthFailure.
_NOT_ENABLED = {"AuthFailure", "OptInRequired"}
_THROTTLED = {
    "EC2ThrottledException",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_NOT_FOUND = {
    "NoSuchBucket",
    "NoSuchEntity",
    "NoSuchResourceException",
    "ParameterNotFound",
    "ResourceNotFoundException",
}


@dataclass(frozen=True, slots=True)
class AwsClient:
    """One service in one region, used by one task. `region` is the region that calls and errors are
    about. Of `answers` that are kept, none is asked for twice."""

    service: Service
    region: str
    sdk: Any
    core: BotocoreSession
    retrying: RetryingCaller
    answers: Answers

    def call(self, operation: str, **arguments: object) -> AwsAnswer:
        """The answer to one call; for example `call("RunInstances", MinCount=1, ...)`."""
        with translated(self.region, self._permission(operation)):
            return self._answer(operation, arguments)

    def pages(self, operation: str, holding: str, **arguments: object) -> Iterator[AwsAnswer]:
        """All pages of an operation, as botocore follows them; each must contain the field
        `holding`.
        """
        # botocore repeats no answer that it cannot parse.
        repeated = self.retrying.on(ResponseParserError)
        ask: Callable[..., AwsAnswer] = partial(repeated, self._page, operation, holding)
        if not self.sdk.can_paginate(xform_name(operation)):
            with translated(self.region, self._permission(operation)):
                only = ask(**arguments)
            yield only
            return

        rules = self.core.get_paginator_model(self.service).get_paginator(operation)
        model = self.sdk.meta.service_model.operation_model(operation)
        # The stubs expect the method's name.
        paginator: Paginator[Any] = Paginator(ask, rules, model)  # type: ignore[arg-type]
        pages: Iterator[AwsAnswer] = iter(paginator.paginate(**arguments))

        while True:
            with translated(self.region, self._permission(operation)):
                page = next(pages, None)
            if page is None:
                return
            yield page

    def _page(self, operation: str, holding: str, /, **arguments: object) -> AwsAnswer:
        """One page. botocore accepts an answer that was cut short: it parses badly, or to
        nothing."""
        page = self._answer(operation, arguments)
        # A proxy's login page also parses; taken for "no rows", it would count as complete.
        if holding not in page:
            raise ResponseParserError(f"the answer has no {holding}")
        return page

    def _answer(self, operation: str, arguments: Mapping[str, object]) -> AwsAnswer:
        ask: Callable[[], AwsAnswer] = partial(
            getattr(self.sdk, xform_name(operation)), **arguments
        )
        return self.answers.of(
            (self.service, self.region, operation, repr(sorted(arguments.items()))), ask
        )

    def _permission(self, operation: str) -> str:
        """The IAM action of an operation, such as `ec2:RunInstances`."""
        return f"{self.service.replace('-', '')}:{operation}"


@dataclass
class AwsSession:
    """Makes clients. Credentials are looked up when the first client is made. No client asks for
    `answers` that another one has kept."""

    settings: AwsSettings = field(default_factory=AwsSettings)
    answers: Answers = NOT_KEPT
    _session: Session | None = field(default=None, init=False)
    _core: BotocoreSession = field(default_factory=get_session, init=False)
    _region: str | None = field(default=None, init=False)
    # Making a session or a client in two threads at once is not safe; using clients is.
    _lock: Lock = field(default_factory=Lock, init=False)

    def sign_in(self) -> str | None:
        """Finds the credentials, once for all clients; returns the configured region, if there is
        one.
        """
        with translated("-", "signing in"), self._lock:
            session = self._open_session()
            # Without this check each client would look again, and wait for a metadata server that
            # does not answer.
            if session.get_credentials() is None:
                raise sdk.NoCredentialsError
            return self._region

    def keys(self) -> tuple[str, str, str]:
        """The credentials as they are now, for requests that are signed without the SDK: key,
        secret, session token.
        """
        self.sign_in()
        with translated("-", "signing in"), self._lock:
            credentials = self._open_session().get_credentials()
            if credentials is None:
                raise sdk.NoCredentialsError
            frozen = credentials.get_frozen_credentials()
            # Of keys that expire, the SDK renews all but those in a file, where the user does.
            if frozen.token and not isinstance(credentials, RefreshableCredentials):
                self._session = None
            return str(frozen.access_key), str(frozen.secret_key), frozen.token or ""

    def forget_login(self) -> None:
        """Looks for credentials again when the next client is made: the user may have signed in
        since.
        """
        with self._lock:
            self._session = None

    @contextmanager
    def client(
        self, service: Service, region: str | None, endpoint_region: str = ""
    ) -> Iterator[AwsClient]:
        """A client for the duration of the `with` block.

        Without a region, any will do. `endpoint_region` is set where the service runs in another
        region than its calls are about (the Price List).
        """
        region = region or _ANY_REGION
        where, timeout = endpoint_region or region, self.settings.timeout_seconds
        config = Config(
            connect_timeout=timeout,
            read_timeout=timeout,
            max_pool_connections=AT_A_TIME,
            retries={"total_max_attempts": self.settings.max_attempts, "mode": "standard"},
        )

        with translated(region, "signing in"), self._lock:
            try:
                client: Any = self._open_session().client(service, region_name=where, config=config)
            except ValueError as error:
                variable = f"AWS_ENDPOINT_URL_{service.upper().replace('-', '_')}"
                cure = f"correct AWS_ENDPOINT_URL, {variable} or the region"
                raise RequestRejected(f"aws/{where}: {error}", cure) from error

        order = "needs-retry.ec2.RunInstances"
        client.meta.events.register_first(order, _settle_missing_capacity)
        with closing(client):
            retrying = self.settings.retrying()
            yield AwsClient(service, region, client, self._core, retrying, self.answers)

    def _open_session(self) -> Session:
        if self._session is None:
            core = self._core = get_session()
            # botocore would fail a whole page over one time that it cannot parse; as text, only
            # that record is lost.
            core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=str)
            self._region = core.get_config_variable("region")
            if self._region is None:
                # Assuming a role needs a region.
                core.set_config_variable("region", _ANY_REGION)
            self._session = Session(botocore_session=core)
        return self._session


def _settle_missing_capacity(response: tuple[Any, AwsAnswer] | None, **_: object) -> None:
    """Keeps botocore from repeating an order for machines that are sold out: EC2 refuses it with
    status 500.
    """
    if response is not None and response[1].get("Error", {}).get("Code", "").startswith(
        "Insufficient"
    ):
        response[0].status_code = 400


@contextmanager
def translated(region: str, action: str) -> Iterator[None]:
    """Turns an SDK error into the `CloudError` to handle. `action` is an IAM action, or `signing
    in`.
    """
    call = f"aws/{region}: {action}"
    try:
        yield
    except ClientError as error:
        raise _error_of_answer(call, action, error) from error
    except BotoCoreError as error:
        raise _error_of_sdk(call, error) from error
    except (
        ResponseParserError,
        ValueError,
    ) as error:  # ValueError: a number or boolean that does not parse
        raise NoAnswer(
            f"{call}: the answer cannot be read ({on_one_line(error)})", _LATER
        ) from error


def _error_of_answer(call: str, action: str, error: ClientError) -> CloudError:
    code = str(error.response.get("Error", {}).get("Code", ""))
    operation = action.partition(":")[2]
    if error.operation_name != operation:
        # A call made on the way to get credentials (sts:AssumeRole, for example) failed, not the
        # requested one.
        return MissingCredentials(f"{call}: no credentials: {on_one_line(error)}", _RENEW, code)
    if code in _EXPIRED:
        return MissingCredentials(f"{call}: the credentials have expired ({code})", _RENEW, code)

    if code in _INVALID or (code == "AuthFailure" and operation == "DescribeRegions"):
        return MissingCredentials(
            f"{call}: the credentials are not valid ({code})", _SET_KEYS, code
        )
    if code in _DENIED or code in _NOT_ENABLED:
        cure = (
            f"allow the IAM action {action} in this region" if code in _DENIED else _ENABLE_REGION
        )
        # An encoded message, which EC2 may append, is long and says nothing to people.
        said, *_ = str(error.response["Error"].get("Message", "")).partition(
            "Encoded authorization failure message"
        )
        reason = on_one_line(ValueError(said.strip().rstrip(".")))
        return AccessDenied(f"{call}: denied ({code}){': ' if reason else ''}{reason}", cure, code)

    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    kind: type[CloudError] = NoAnswer
    cure = _LATER
    if code in _NOT_FOUND or code.endswith(".NotFound"):
        kind, cure = UnknownResource, "check the name"
    elif code in _THROTTLED or status == 429:
        kind = RateLimited
    elif 400 <= status < 500:
        kind, cure = RequestRejected, "check the request"

    return kind(f"{call}: {on_one_line(error)}", cure, code)


def _error_of_sdk(call: str, error: BotoCoreError) -> CloudError:
    if isinstance(error, sdk.NoCredentialsError):
        return MissingCredentials(f"{call}: no credentials found", _SET_KEYS)
    if isinstance(
        error, sdk.PartialCredentialsError | sdk.ProfileNotFound | sdk.InvalidConfigError
    ):
        problem = f"{call}: the credentials cannot be used: {on_one_line(error)}"
        return MissingCredentials(problem, _SET_KEYS)

    logins = (
        sdk.SSOError,
        getattr(sdk, "LoginError", sdk.SSOError),
    )  # `aws login` is newer than boto3 1.35

    if isinstance(error, (sdk.CredentialRetrievalError, sdk.TokenRetrievalError, *logins)):
        problem = f"{call}: the credentials cannot be used: {on_one_line(error)}"
        return MissingCredentials(problem, _RENEW)
    if isinstance(error, sdk.MissingDependencyException):
        return MissingExtra(f"{call}: this profile needs another package: {on_one_line(error)}")
    if isinstance(error, sdk.PaginationError):
        return NoAnswer(f"{call} repeats the same page token", _LATER)

    return NoAnswer(f"{call}: no answer: {on_one_line(error)}", _LATER)


@contextmanager
def s3_client(keys: tuple[str, str, str], region: str, endpoint: str) -> Iterator[Any]:
    """A client of S3 for what obstore does not do. OSError: S3 refuses a call, or does not
    answer."""
    from boto3.exceptions import Boto3Error

    name, secret, token = keys
    session = Session(name, secret, token or None, region)
    config = Config(retries={"mode": "standard", "total_max_attempts": 6})
    try:
        with closing(session.client("s3", endpoint_url=endpoint or None, config=config)) as client:
            yield client
    except (BotoCoreError, ClientError, Boto3Error) as error:
        raise OSError(on_one_line(error)) from None


def transfer_in_parts(size: int) -> Any:  # noqa: ANN401 - boto3's class
    """How S3 copies an object that is larger than `size`, in parts of that size."""
    from boto3.s3.transfer import TransferConfig

    return TransferConfig(multipart_threshold=size, multipart_chunksize=size)
