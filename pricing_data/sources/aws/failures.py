"""botocore's errors as this package's, split by what the caller can do; each message is one line with the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pricing_data.errors import AccessDenied, MissingCredentials, MissingExtra, SourceError, SourceUnavailable

if TYPE_CHECKING:
    from botocore.exceptions import BotoCoreError, ClientError

_SET_KEYS = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, run `aws configure`, or name a configured profile in AWS_PROFILE"
)
_RENEW = "run `aws sso login` (or `aws login`), or renew the keys and AWS_SESSION_TOKEN"

# EC2 says RequestExpired where other services say ExpiredToken; a clock that is wrong looks the same to it.
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
# In a region that the account has not enabled, good credentials are answered with AuthFailure.
_NOT_ENABLED = {"AuthFailure", "OptInRequired"}


@contextmanager
def failures_of(region: str, action: str) -> Iterator[None]:
    """Raise what the SDK raises within as a `SourceError` about this action, spelt as in IAM: `ec2:DescribeRegions`."""
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    call = f"aws/{region}: {action}"
    try:
        yield
    except ClientError as error:
        raise _of_answer(call, action, error) from error
    except BotoCoreError as error:
        raise _of_sdk(call, error) from error
    except (ResponseParserError, ValueError) as error:  # ValueError: a number or a flag that is none
        raise SourceUnavailable(f"{call} answered something broken ({_line(error)}); fetch again later") from error


def _of_answer(call: str, action: str, error: ClientError) -> SourceError:
    code = error.response.get("Error", {}).get("Code", "no error code")
    asked = action.partition(":")[2]
    if error.operation_name != asked:
        # Signing in (sts:AssumeRole and the like) happens on the way and is what failed.
        return MissingCredentials(f"{call} got no credentials: {_line(error)}; {_RENEW}")
    if code in _EXPIRED:
        return MissingCredentials(f"{call} was refused, the credentials have expired ({code}): {_RENEW}")
    if code in _INVALID or (code == "AuthFailure" and asked == "DescribeRegions"):
        return MissingCredentials(f"{call} was refused, the credentials are not valid ({code}): {_SET_KEYS}")
    if code in _DENIED:
        return AccessDenied(f"{call} was refused ({code}): allow the IAM action {action} in this region")
    if code in _NOT_ENABLED:
        return AccessDenied(
            f"{call} was refused ({code}): enable the region for the account, fetch only others (--region),"
            " or check the keys with `aws sts get-caller-identity`"
        )
    return SourceUnavailable(f"{call} failed after all retries: {_line(error)}; fetch again later")


def _of_sdk(call: str, error: BotoCoreError) -> SourceError:
    from botocore import exceptions as sdk

    if isinstance(error, sdk.NoCredentialsError):
        return MissingCredentials(f"{call} needs credentials and none were found: {_SET_KEYS}")
    if isinstance(error, sdk.PartialCredentialsError | sdk.ProfileNotFound | sdk.InvalidConfigError):
        return MissingCredentials(f"{call} needs credentials: {_line(error)}; {_SET_KEYS}")
    logins = (sdk.SSOError, getattr(sdk, "LoginError", sdk.SSOError))  # `aws login` is younger than boto3 1.35
    if isinstance(error, (sdk.CredentialRetrievalError, sdk.TokenRetrievalError, *logins)):
        return MissingCredentials(f"{call} needs credentials: {_line(error)}; {_RENEW}")
    if isinstance(error, sdk.MissingDependencyException):
        return MissingExtra(f"{call} cannot use this profile: {_line(error)}")
    return SourceUnavailable(f"{call} could not be asked: {_line(error)}; fetch again later")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
