"""How Google's errors, credentials and names become errors that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.api_core import exceptions as api_core
from google.auth import exceptions as google_auth
from google.protobuf.json_format import ParseError
from requests import exceptions as http
from urllib3.exceptions import MaxRetryError, NewConnectionError

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    RequestRejected,
    UnknownResource,
)
from spotctl.clouds.errors import ApiCall, first_line
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.prices.source import (
    capacity_history,
    machine_types,
    price_list,
    project_regions,
)
from spotctl.clouds.gcp.session import GcpSession, RetryPredicate, error_of

# The SDK left the constructors of its errors without annotations.
exceptions: Any = api_core
auth: Any = google_auth

CALL = ApiCall("list of regions", "compute.regions.list (in roles/compute.viewer)")
RATE_LIMIT = exceptions.Forbidden("slow down", errors=[{"reason": "rateLimitExceeded"}])
DENIED = exceptions.Forbidden("no", errors=[{"reason": "forbidden"}])


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (auth.DefaultCredentialsError("none were found"), MissingCredentials),
        (auth.RefreshError("the token has been revoked"), MissingCredentials),
        (exceptions.Unauthorized("expired"), MissingCredentials),
        (DENIED, AccessDenied),
        (exceptions.NotFound("no such project"), UnknownResource),
        (exceptions.BadRequest("no such field"), RequestRejected),
        (RATE_LIMIT, RateLimited),
        (exceptions.TooManyRequests("slow down"), RateLimited),
        (exceptions.RetryError("given up", cause=exceptions.ServiceUnavailable("busy")), NoAnswer),
        (exceptions.RetryError("given up", cause=RATE_LIMIT), RateLimited),
        (auth.TransportError("no route to the token server"), NoAnswer),
        (http.ConnectionError("refused"), NoAnswer),
        (ParseError("no JSON"), NoAnswer),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_each_sdk_error_becomes_the_error_to_handle(
    raised: Exception, kind: type[CloudError]
) -> None:
    failure = error_of(raised, CALL)
    assert type(failure) is kind
    assert str(failure).startswith("gcp: list of regions: ")
    assert "\n" not in str(failure)


def test_missing_credentials_are_named_with_two_ways_to_set_them() -> None:
    message = str(error_of(auth.DefaultCredentialsError("none"), CALL))
    assert "GOOGLE_APPLICATION_CREDENTIALS" in message
    assert "gcloud auth application-default login" in message


def test_a_denial_names_the_permission() -> None:
    assert "compute.regions.list" in str(error_of(DENIED, CALL))


@pytest.mark.parametrize(
    ("raised", "retried"),
    [
        (RATE_LIMIT, True),
        (exceptions.TooManyRequests("x"), True),
        (exceptions.BadGateway("x"), True),
        (http.ChunkedEncodingError("x"), True),
        (http.ReadTimeout("x"), True),
        (ParseError("x"), True),
        (DENIED, False),
        (exceptions.BadRequest("x"), False),
        (exceptions.Unauthorized("x"), False),
        (auth.RefreshError("x"), False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_only_temporary_errors_are_retried(raised: Exception, retried: bool) -> None:
    assert RetryPredicate(3)(raised) is retried


def test_a_page_of_html_is_shortened_to_one_line() -> None:
    assert first_line(Exception("<html>\n" + "<p>" * 1000)) == "<html>"
    assert first_line(Exception("<p>" * 1000)) == "<p>" * 100 + "..."
    assert first_line(http.Timeout()) == "Timeout"


QUERIES: dict[str, Callable[[GcpSession], object]] = {
    "regions": project_regions,
    "machine types": lambda session: list(machine_types(session, "us-central1")),
    "capacity history": lambda session: capacity_history(session, "us-central1", "n2-standard-4"),
    "price list": lambda session: list(price_list(session)),
}


@pytest.mark.usefixtures("logged_out")
@pytest.mark.parametrize("ask", QUERIES.values(), ids=QUERIES.keys())
def test_without_credentials_every_call_fails_before_a_request(
    ask: Callable[[GcpSession], object],
) -> None:
    with (
        GcpSession(GcpSettings()) as session,
        pytest.raises(MissingCredentials, match="GOOGLE_APPLICATION_CREDENTIALS"),
    ):
        ask(session)


# -- no server -------------------------------------------------------------------------------------


def refused_connection() -> http.ConnectionError:
    reason: Any = NewConnectionError(None, "Connection refused")  # type: ignore[arg-type]
    return http.ConnectionError(MaxRetryError(None, "/", reason))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrap", [lambda error: error, auth.TransportError], ids=["a call", "a token"]
)
def test_refused_connections_are_retried_a_few_times_only(
    wrap: Callable[[Exception], Exception],
) -> None:
    policy = RetryPredicate(3)
    assert [policy(wrap(refused_connection())) for _ in range(3)] == [True, True, False]


def test_other_lost_connections_are_retried_until_the_deadline() -> None:
    policy = RetryPredicate(1)
    assert all(policy(http.ConnectionError("reset in the middle of an answer")) for _ in range(9))
