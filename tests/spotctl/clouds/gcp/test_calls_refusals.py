"""Refused calls say what to do."""

from __future__ import annotations

from typing import Any

import pytest

from pricing_data.market import Market
from spotctl.clouds.errors import (
    NotFound,
    NotPermitted,
    ProviderError,
    QuotaReached,
    Refusal,
    Throttled,
    Unanswered,
    UnknownRefusal,
)
from spotctl.clouds.gcp.calls import GET_PROJECT, METHODS, REFUSALS, Method, NameTaken, of_operation
from spotctl.clouds.gcp.provider import GcpProvider
from spotctl.clouds.link import MachineSupplies
from spotctl.home.errors import BadRequest
from tests.servers.gcp import refusal
from tests.servers.loopback import Fault
from tests.spotctl.clouds.gcp.world import ANYWHERE, RUN, A, B, StandIn, World, body, order


@pytest.mark.parametrize(
    "market",
    [
        Market("gcp", "us-central1", "us-central1-b", "n9-standard-4"),
        Market("gcp", "us-central1", "-", "n9-standard-4"),
        Market("gcp", "us-central1", "us-central1-z", "n2-standard-4"),
        Market("gcp", "nowhere-east7", "-", "n2-standard-4"),
        Market("gcp", "us-central1", "us-central1-b", "n2-standard-4", "windows"),
        Market("aws", "us-east-1", "us-east-1a", "c4.xlarge"),
    ],
)
def test_a_market_that_does_not_exist_is_not_found(made: World, market: Market) -> None:
    with pytest.raises(NotFound, match=str(market)):
        made.provider().create(order(market=market))
    assert made.server.resources() == ()


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"image": "projects/nobody/global/images/none"}, {}),
        ({}, {"network": "none"}),
        ({"network": "none"}, {}),
        ({"subnetwork": "none"}, {}),
    ],
)
def test_a_setting_that_google_does_not_know_is_a_bad_request(
    made: World, settings: dict[str, Any], changes: dict[str, Any]
) -> None:
    with pytest.raises(
        BadRequest,
        match=r"cannot be found|was not found|there is no subnetwork none in us-central1",
    ):
        made.provider(**settings).create(order(**changes))
    assert made.server.machines() == ()


@pytest.mark.parametrize(
    ("status", "reason", "kind", "words"),
    [
        (403, "quotaExceeded", QuotaReached, "quotas"),
        (403, "rateLimitExceeded", Throttled, "Google"),
        (429, "rateLimitExceeded", Throttled, "Google"),
        (403, "forbidden", NotPermitted, "compute.instances.create"),
        (403, "accessNotConfigured", NotPermitted, "enable the API"),
        (412, "conditionNotMet", NotPermitted, "organization policy"),
        (503, "backendError", Unanswered, "Google"),
        (500, "internalError", Unanswered, "Google"),
        (400, "somethingNew", BadRequest, "In Google's words"),
    ],
)
def test_a_refused_call_says_what_to_do(
    made: World, status: int, reason: str, kind: type[Exception], words: str
) -> None:
    message = "In Google's words: Required 'compute.instances.create' permission"
    made.server.http.faults += [
        Fault(f"{B}/instances", refusal(status, message, reason), times=1000)
    ]
    with pytest.raises(kind, match=words) as caught:
        made.provider().create(order())
    assert "In Google's words" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert made.server.machines() == ()


def test_credentials_that_have_expired_are_one_line(made: World) -> None:
    made.server.http.faults += [
        Fault("", refusal(401, "Invalid credentials", "authError"), times=1000)
    ]
    provider = made.provider()
    for call in (
        lambda: provider.create(order()),
        lambda: provider.list({}),
        lambda: provider.resources({}),
    ):
        with pytest.raises(NotPermitted, match="gcloud auth application-default login"):
            call()


@pytest.mark.parametrize(
    "one", [one for one in REFUSALS if one.kind is not NameTaken], ids=lambda one: one.code
)
def test_every_code_of_the_table_means_what_it_says(made: World, one: Refusal) -> None:
    made.server.project.refuse(B, one.code)
    with pytest.raises(one.kind, match=one.code):
        made.provider().create(order(machines=1))
    assert one.source.startswith("https://")
    assert [left.kind for left in made.server.resources()] == ["firewall rule"] * 2


def test_an_unknown_code_ends_cleanly(made: World) -> None:
    error = of_operation("creation", "BRAND_NEW", "The moon is in the way.")
    assert type(error) is UnknownRefusal
    assert str(error) == "gcp: creation: The moon is in the way. (BRAND_NEW)"
    # Operations have codes of their own, which are written like those of calls, but for their case.
    assert type(of_operation("creation", "FORBIDDEN", "HTTP 403")) is UnknownRefusal
    made.server.project.refuse(B, "BRAND_NEW")
    with pytest.raises(ProviderError, match="BRAND_NEW"):
        made.provider().create(order(machines=1))


# Quotas of the whole project are read by doctor and for plans, which do without them.
OF_PROVIDER = [method for method in METHODS if method != GET_PROJECT]


@pytest.mark.parametrize(
    "method", OF_PROVIDER, ids=lambda method: f"{method.service}.{method.name}"
)
def test_a_missing_permission_is_named(made: World, method: Method) -> None:
    """The permissions that `doctor --policy` prints are those without which the calls fail."""
    provider = made.provider(subnetwork="inner", ssh_from=("203.0.113.7/32",))
    made.server.denied = {method.permissions[0]}
    with pytest.raises(NotPermitted, match=method.permissions[0]):
        everything(made, provider)


def everything(made: World, provider: GcpProvider) -> None:
    """Every call that the provider knows."""
    agents = StandIn(made.folder)
    made.server.networks["inner"] = "global/networks/default"
    (machine,) = provider.create(order(machines=1, market=ANYWHERE, close=True))
    made.provider(agents).prepare(machine, MachineSupplies())
    agents.prepared[-1].console()
    provider.list(RUN)
    provider.admit_ssh(RUN, ("203.0.113.9/32",))
    labels = dict(body(made).labels)
    made.server.leave_disk(A, "half-made", labels)
    made.server.leave_address("us-central1", "left", labels)
    provider.remove(provider.resources(RUN))
