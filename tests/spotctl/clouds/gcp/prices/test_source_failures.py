"""Faults of Google Cloud: rows that arrived are kept, and the error says what to do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import google.cloud
import pytest

from pricing_data.errors import (
    AccessDenied,
    IncompleteAnswer,
    MissingCredentials,
    MissingExtra,
    NoAnswer,
    RateLimited,
    UnknownResource,
)
from pricing_data.units import Span
from tests.servers.gcp import PROJECT, Gcp, machine, priced, refusal
from tests.servers.gcp_world import (
    IOWA,
    NAMES,
    NOW,
    ON_DEMAND,
    REQUEST,
    SPOT,
    TAIWAN,
    TYPES,
    events_of,
    held_events,
    market,
    pulled,
    random_world,
    source_at,
    task,
    whole,
)
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving

FOREVER = 10**6
EXPIRED = refusal(401, "Request had invalid authentication credentials.", "authError")


@pytest.fixture
def gcp(request: pytest.FixtureRequest) -> Gcp:
    """Random histories and rates, the same in each run of a test."""
    return random_world(Random(request.node.name))


@pytest.fixture
def server(gcp: Gcp) -> Iterator[LoopbackServer]:
    with serving(gcp) as running:
        yield running


def test_without_the_billing_sdk_the_extra_is_named_and_the_rest_is_fetched(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.billing_v1", None)
    monkeypatch.delattr(google.cloud, "billing_v1", raising=False)
    source = source_at(server)
    fetched, failure = pulled(task(source, ON_DEMAND))
    assert isinstance(failure, MissingExtra)
    assert "pip install 'spotctl[gcp-pricing]'" in str(failure)
    assert len(fetched) == 0
    assert len(whole(task(source, TYPES)).types) == 5
    assert len(whole(task(source, SPOT)).prices) > 0


def test_without_the_billing_sdk_the_history_is_fetched_and_the_missing_price_is_reported(
    gcp: Gcp, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google.cloud.billing_v1", None)
    monkeypatch.delattr(google.cloud, "billing_v1", raising=False)
    del gcp.histories[IOWA, "t2d-standard-8"]
    fetched, failure = pulled(task(source_at(server), SPOT))
    assert isinstance(failure, MissingExtra)
    assert fetched.covered == {"gcp/us-central1": Span(REQUEST.since, NOW)}
    assert len(fetched.prices.markets) == 4


def test_a_malformed_record_is_reported_and_the_others_are_kept(
    gcp: Gcp, server: LoopbackServer
) -> None:
    broken = gcp.histories[IOWA, "e2-micro"].price_history
    broken.append(priced("2026-06-31T07:00:00Z", None, 5))
    expected = set().union(
        *(held_events(gcp, name, REQUEST.since) for name in NAMES if name != "e2-micro")
    )
    fetched, failure = pulled(task(source_at(server), SPOT))
    assert expected < events_of(fetched)
    assert market("e2-micro") in fetched.prices.markets
    assert isinstance(failure, IncompleteAnswer)
    assert ": 1 record left out, the others were kept" in str(failure)
    assert "2026-06-31" in str(failure)
    assert fetched.covered == {}


def test_an_answer_about_another_machine_type_is_reported_and_left_out(
    gcp: Gcp, server: LoopbackServer
) -> None:
    gcp.histories[IOWA, "e2-micro"].machine_type = "n2-standard-4"
    fetched, failure = pulled(task(source_at(server), SPOT))
    assert events_of(fetched) == set().union(
        *(held_events(gcp, name, REQUEST.since) for name in NAMES if name != "e2-micro")
    )
    assert "the answer is about n2-standard-4" in str(failure)
    assert fetched.covered == {}


def test_a_malformed_machine_type_is_reported_once_and_the_others_are_kept(
    gcp: Gcp, server: LoopbackServer
) -> None:
    gcp.zones[IOWA]["us-central1-c"].append(machine("n9-broken-1", 0, 4))
    source = source_at(server)
    fetched, failure = pulled(task(source, TYPES))
    assert {one.name for one in fetched.types} == set(NAMES)
    assert "n9-broken-1" in str(failure)
    assert len(whole(task(source, SPOT)).prices.markets) == 5
    assert len(whole(task(source, ON_DEMAND)).on_demand) == 5


PASSING = {
    "throttled": {"reply": refusal(429, reason="rateLimitExceeded")},
    "throttled as forbidden": {"reply": refusal(403, reason="rateLimitExceeded")},
    "unavailable": {"reply": refusal(503)},
    "half an answer": {"cut": 7},
    "no JSON": {"reply": Reply(body=b"{", headers={"Content-Type": "application/json"})},
    "no text": {"reply": Reply(body=b"\xff\xfe")},
    "no object": {"reply": Reply.of_json(7)},
    "a proxy's page": {"reply": Reply(502, b"<html>\n<p>Bad gateway\n</html>")},
    "an error without a message": {"reply": Reply.of_json({"error": None}, 500)},
}
THROTTLING = {"throttled", "throttled as forbidden"}
PATHS = {TYPES: "/machineTypes", SPOT: "/capacityHistory", ON_DEMAND: "/skus"}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING.keys())
@pytest.mark.parametrize(("what", "path"), PATHS.items(), ids=["types", "spot", "on-demand"])
def test_a_temporary_fault_loses_no_rows(
    server: LoopbackServer, what: str, path: str, fault: dict[str, Reply | int]
) -> None:
    undisturbed = whole(task(source_at(server), what))
    server.faults.append(Fault(path, times=2, skip=1, **fault))  # type: ignore[arg-type]
    disturbed = whole(task(source_at(server), what))
    assert server.faults[0].times == 0
    assert events_of(disturbed) == events_of(undisturbed)
    assert replace(disturbed, prices=undisturbed.prices) == undisturbed


@pytest.mark.parametrize("name", PASSING)
def test_a_permanent_fault_ends_the_task_and_keeps_the_rows_before_it(
    gcp: Gcp, server: LoopbackServer, name: str
) -> None:
    server.faults.append(Fault("/capacityHistory", times=FOREVER, skip=3, **PASSING[name]))  # type: ignore[arg-type]
    fetched, failure = pulled(task(source_at(server, deadline=0.05), SPOT))
    assert type(failure) is (RateLimited if name in THROTTLING else NoAnswer)
    assert "capacity history of a2-ultragpu-1g in us-central1" in str(failure)
    assert events_of(fetched) == set().union(
        *(held_events(gcp, name, REQUEST.since) for name in NAMES[:3])
    )
    assert fetched.covered == {}


def test_a_server_that_does_not_run_is_reported() -> None:
    with serving(Gcp()) as server:
        pass
    _, failure = pulled(task(source_at(server, deadline=0.05), TYPES))
    assert type(failure) is NoAnswer
    assert "zones of region us-central1" in str(failure)


def test_credentials_that_expire_between_calls_keep_the_rows_and_cover_nothing(
    gcp: Gcp, server: LoopbackServer
) -> None:
    server.faults.append(Fault("/capacityHistory", EXPIRED, times=FOREVER, skip=2))
    fetched, failure = pulled(task(source_at(server), SPOT))
    assert isinstance(failure, MissingCredentials)
    assert "gcloud auth application-default login" in str(failure)
    assert events_of(fetched) == set().union(
        *(held_events(gcp, name, REQUEST.since) for name in NAMES[:2])
    )
    assert fetched.covered == {}


def test_pages_of_machine_types_before_a_failure_are_kept(server: LoopbackServer) -> None:
    server.faults.append(Fault("/machineTypes", EXPIRED, times=FOREVER, skip=1))
    fetched, failure = pulled(task(source_at(server), TYPES))
    assert isinstance(failure, MissingCredentials)
    assert [one.name for one in fetched.types] == NAMES[:2]


@pytest.mark.parametrize(
    ("what", "permission"),
    [(TYPES, "compute.regions.get"), (SPOT, "compute.regions.get")],
    ids=["types", "spot"],
)
def test_a_denied_region_leaves_the_other_unaffected(
    gcp: Gcp, server: LoopbackServer, what: str, permission: str
) -> None:
    gcp.denied.add(TAIWAN)
    source = source_at(server)
    request = replace(REQUEST, regions=(IOWA, TAIWAN))
    fetched, failure = pulled(task(source, what, request, TAIWAN))
    assert isinstance(failure, AccessDenied)
    assert permission in str(failure)
    assert TAIWAN in str(failure)
    assert PROJECT in str(failure)
    assert (len(fetched), fetched.covered) == (0, {})
    assert len(whole(task(source, what, request, IOWA))) > 0


@pytest.mark.parametrize(
    ("path", "permission"),
    [
        ("/capacityHistory", "compute.advice.capacityHistory"),
        ("/machineTypes", "compute.machineTypes.list"),
    ],
)
def test_a_denied_call_names_its_permission(
    server: LoopbackServer, path: str, permission: str
) -> None:
    server.faults.append(Fault(path, refusal(403, "not for you", "forbidden")))
    _, failure = pulled(task(source_at(server), SPOT))
    assert isinstance(failure, AccessDenied)
    assert f"it needs {permission}" in str(failure)


def test_a_denied_price_list_names_its_api(server: LoopbackServer) -> None:
    server.faults.append(
        Fault("/skus", refusal(403, "Cloud Billing API has not been used", "accessNotConfigured"))
    )
    _, failure = pulled(task(source_at(server), ON_DEMAND))
    assert isinstance(failure, AccessDenied)
    assert "Cloud Billing API (cloudbilling.googleapis.com), enabled" in str(failure)


def test_a_failed_list_of_regions_fails_the_source(server: LoopbackServer) -> None:
    server.faults.append(Fault("/regions", refusal(403, "not for you", "forbidden")))
    with pytest.raises(AccessDenied, match=r"compute\.regions\.list"):
        source_at(server).tasks(REQUEST)


def test_an_unknown_region_says_what_to_check(server: LoopbackServer) -> None:
    _, failure = pulled(task(source_at(server), TYPES, region="us-nowhere1"))
    assert isinstance(failure, UnknownResource)
    assert "us-nowhere1" in str(failure)
    assert "check the names" in str(failure)


def test_a_failed_price_list_is_requested_once_for_all_regions(server: LoopbackServer) -> None:
    server.faults.append(Fault("/skus", EXPIRED, times=FOREVER))
    request = replace(REQUEST, regions=(IOWA, TAIWAN))
    failures = [pulled(one)[1] for one in source_at(server).tasks(request) if one.what == ON_DEMAND]
    assert [type(failure) for failure in failures] == [MissingCredentials, MissingCredentials]
    assert sum(one.path.endswith("/skus") for one in server.requests) == 1
