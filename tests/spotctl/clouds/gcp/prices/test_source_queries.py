"""Whose prices are asked for, and from where."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import (
    MissingCredentials,
    NoAnswer,
    RequestRejected,
)
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.prices.source import (
    machine_types,
    price_list,
    project_regions,
)
from spotctl.clouds.gcp.session import GcpSession
from tests.servers.gcp import PROJECT, Gcp, machine
from tests.servers.loopback import serving


@pytest.mark.usefixtures("logged_out")
def test_without_a_project_the_variable_and_the_setting_are_named() -> None:
    settings = GcpSettings(compute_endpoint="http://127.0.0.1:9")
    with (
        GcpSession(settings) as session,
        pytest.raises(MissingCredentials, match="GOOGLE_CLOUD_PROJECT") as caught,
    ):
        project_regions(session)
    assert "settings" in str(caught.value)


def test_the_project_defaults_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", PROJECT)
    with (
        serving(Gcp(zones={"us-central1": {}})) as server,
        GcpSession(GcpSettings(compute_endpoint=server.url)) as session,
    ):
        assert project_regions(session) == ["us-central1"]


def test_credentials_are_not_sent_over_plain_http(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / "key.json"
    key.write_text(
        '{"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"}'
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    gcp = Gcp(zones={"us-central1": {"us-central1-a": [machine("n2-standard-4", 4, 16)]}})
    with serving(gcp) as server:
        settings = GcpSettings(
            project=PROJECT, compute_endpoint=server.url, billing_endpoint=server.url
        )
        with GcpSession(settings) as session:
            project_regions(session)
            list(machine_types(session, "us-central1"))
            list(price_list(session))
    assert len(server.requests) == 4
    assert not any("authorization" in request.headers for request in server.requests)


@pytest.mark.parametrize("name", ["us central1", "us-central1/zones", "", "-", "us-central1\n"])
def test_an_invalid_region_name_is_rejected_without_a_request(name: str) -> None:
    refused = pytest.raises(RequestRejected, match="cannot be the name of a region")
    with serving(Gcp()) as server, GcpSession(GcpSettings(PROJECT, server.url)) as session, refused:
        list(machine_types(session, name))
    assert server.requests == []


def test_an_invalid_project_name_is_rejected_without_a_request() -> None:
    refused = pytest.raises(RequestRejected, match="cannot be the name of a project")
    with (
        serving(Gcp()) as server,
        GcpSession(GcpSettings("my project", server.url)) as session,
        refused,
    ):
        project_regions(session)
    assert server.requests == []


def test_a_refused_connection_names_the_address_after_a_few_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With an hour until the deadline: the number of attempts ends it, not the time."""
    delays: list[float] = []
    monkeypatch.setattr("time.sleep", delays.append)
    with serving(Gcp()) as server:
        pass
    settings = GcpSettings(PROJECT, server.url, retry_deadline_seconds=3600.0)
    with GcpSession(settings) as session, pytest.raises(NoAnswer) as caught:
        project_regions(session)
    assert len(delays) == settings.connection_attempts - 1
    address = server.url.removeprefix("http://")
    assert str(caught.value) == (
        f"gcp: list of regions: cannot connect to {address}; check the endpoint and the network"
    )
