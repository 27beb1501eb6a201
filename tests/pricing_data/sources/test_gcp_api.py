"""How Google's failures, credentials and names become what a person can act on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions as api_core
from google.auth import exceptions as google_auth
from google.protobuf.json_format import ParseError
from requests import exceptions as http

from pricing_data.errors import AccessDenied, MissingCredentials, SourceError, SourceUnavailable
from pricing_data.sources.gcp.api import Call, GcpApi, failure_of, first_line, is_transient
from pricing_data.sources.gcp.settings import GcpSettings
from tests.servers.gcp import PROJECT, Gcp, machine
from tests.servers.loopback import serving

# The SDK left the constructors of its errors without annotations.
exceptions: Any = api_core
auth: Any = google_auth

CALL = Call("list of regions", "compute.regions.list (in roles/compute.viewer)")
RATE_LIMIT = exceptions.Forbidden("slow down", errors=[{"reason": "rateLimitExceeded"}])
DENIED = exceptions.Forbidden("no", errors=[{"reason": "forbidden"}])


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (auth.DefaultCredentialsError("none were found"), MissingCredentials),
        (auth.RefreshError("the token has been revoked"), MissingCredentials),
        (exceptions.Unauthorized("expired"), MissingCredentials),
        (DENIED, AccessDenied),
        (exceptions.NotFound("no such project"), SourceUnavailable),
        (exceptions.RetryError("given up", cause=exceptions.ServiceUnavailable("busy")), SourceUnavailable),
        (exceptions.RetryError("given up", cause=RATE_LIMIT), SourceUnavailable),
        (auth.TransportError("no route to the token server"), SourceUnavailable),
        (http.ConnectionError("refused"), SourceUnavailable),
        (ParseError("no JSON"), SourceUnavailable),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.__name__,
)
def test_each_failure_is_of_the_kind_that_says_what_to_do(raised: Exception, kind: type[SourceError]) -> None:
    failure = failure_of(raised, CALL)
    assert type(failure) is kind
    assert str(failure).startswith("gcp: list of regions: ")
    assert "\n" not in str(failure)


def test_missing_credentials_are_named_with_two_ways_to_set_them() -> None:
    message = str(failure_of(auth.DefaultCredentialsError("none"), CALL))
    assert "GOOGLE_APPLICATION_CREDENTIALS" in message
    assert "gcloud auth application-default login" in message


def test_a_denial_names_the_permission() -> None:
    assert "compute.regions.list" in str(failure_of(DENIED, CALL))


@pytest.mark.parametrize(
    ("raised", "worth_it"),
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
def test_only_what_may_pass_is_tried_again(raised: Exception, worth_it: bool) -> None:
    assert is_transient(raised) is worth_it


def test_a_page_of_html_becomes_a_line() -> None:
    assert first_line(Exception("<html>\n" + "<p>" * 1000)) == "<html>"
    assert len(first_line(Exception("<p>" * 1000))) == 300
    assert first_line(http.Timeout()) == "Timeout"


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which nobody has logged in to Google Cloud, and which is none of Google's."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


ASKING: dict[str, Callable[[GcpApi], object]] = {
    "regions": GcpApi.regions,
    "machine types": lambda api: list(api.machine_types("us-central1")),
    "capacity history": lambda api: api.capacity_history("us-central1", "n2-standard-4"),
    "price list": lambda api: list(api.skus()),
}


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING.keys())
def test_without_credentials_every_call_says_so_before_anything_is_contacted(ask: Callable[[GcpApi], object]) -> None:
    with GcpApi(GcpSettings()) as api, pytest.raises(MissingCredentials, match="GOOGLE_APPLICATION_CREDENTIALS"):
        ask(api)


@pytest.mark.usefixtures("nobody")
def test_without_a_project_the_variable_and_the_setting_are_named() -> None:
    settings = GcpSettings(compute_endpoint="http://127.0.0.1:9")
    with GcpApi(settings) as api, pytest.raises(MissingCredentials, match="GOOGLE_CLOUD_PROJECT") as caught:
        api.regions()
    assert "settings" in str(caught.value)


def test_the_project_is_the_one_of_the_environment_where_settings_name_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    with serving(Gcp(zones={"us-central1": {}})) as server, GcpApi(GcpSettings(compute_endpoint=server.url)) as api:
        assert api.regions() == ["us-central1"]


def test_credentials_at_hand_are_not_sent_over_plain_http(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text('{"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    gcp = Gcp(zones={"us-central1": {"us-central1-a": [machine("n2-standard-4", 4, 16)]}})
    with serving(gcp) as server:
        settings = GcpSettings(project=PROJECT, compute_endpoint=server.url, billing_endpoint=server.url)
        with GcpApi(settings) as api:
            api.regions()
            list(api.machine_types("us-central1"))
            list(api.skus())
    assert len(server.requests) == 4
    assert not any("authorization" in request.headers for request in server.requests)


@pytest.mark.parametrize("name", ["us central1", "us-central1/zones", "", "-", "us-central1\n"])
def test_a_region_that_fits_into_no_url_is_refused_without_asking(name: str) -> None:
    refused = pytest.raises(SourceUnavailable, match="cannot be the name of a region")
    with serving(Gcp()) as server, GcpApi(GcpSettings(PROJECT, server.url)) as api, refused:
        list(api.machine_types(name))
    assert server.requests == []


def test_a_project_that_fits_into_no_url_is_refused_without_asking() -> None:
    refused = pytest.raises(SourceUnavailable, match="cannot be the name of a project")
    with serving(Gcp()) as server, GcpApi(GcpSettings("my project", server.url)) as api, refused:
        api.regions()
    assert server.requests == []
