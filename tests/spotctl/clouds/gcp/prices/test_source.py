"""Fetching from Google Cloud: the real SDK against a strict server on this machine."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random

import pytest
from google.auth.transport.requests import AuthorizedSession

from pricing_data.catalog import NO_TRAITS, InstanceType, OnDemandPrice
from pricing_data.errors import IncompleteAnswer, RequestRejected
from pricing_data.fetched_rows import PriceEvent
from pricing_data.units import DAY, Span, parse_time
from spotctl.clouds.gcp.prices.source import LATE
from tests.servers.gcp import Gcp, history, machine
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
    held_rates,
    market,
    pulled,
    random_world,
    rate,
    source_at,
    task,
    whole,
)
from tests.servers.loopback import LoopbackServer, serving


@pytest.fixture
def gcp(request: pytest.FixtureRequest) -> Gcp:
    """Random histories and rates, the same in each run of a test."""
    return random_world(Random(request.node.name))


@pytest.fixture
def server(gcp: Gcp) -> Iterator[LoopbackServer]:
    with serving(gcp) as running:
        yield running


def test_every_price_and_rate_of_the_cloud_is_fetched_and_nothing_else(
    gcp: Gcp, server: LoopbackServer
) -> None:
    fetched = whole(task(source_at(server), SPOT))
    assert events_of(fetched) == set().union(
        *(held_events(gcp, name, REQUEST.since) for name in NAMES)
    )
    assert set(fetched.interruptions) == set().union(*(held_rates(gcp, name) for name in NAMES))
    assert fetched.covered == {"gcp/us-central1": Span(REQUEST.since, NOW)}


def test_every_machine_type_is_fetched_once_over_all_pages_and_zones(
    server: LoopbackServer,
) -> None:
    fetched = whole(task(source_at(server), TYPES))
    assert [replace(kind, traits=NO_TRAITS) for kind in sorted(fetched.types)] == [
        InstanceType("gcp", "a2-ultragpu-1g", 12, 170.0, "A100-80GB", 1),
        InstanceType("gcp", "e2-micro", 2, 1.0),
        InstanceType("gcp", "n1-standard-4", 4, 15.0),
        InstanceType("gcp", "n2-standard-4", 4, 16.0),
        InstanceType("gcp", "t2d-standard-8", 8, 32.0),
    ]
    assert sum("pageToken" in request.query for request in server.requests) == 3


def test_on_demand_prices_are_computed_from_the_price_list(
    gcp: Gcp, server: LoopbackServer
) -> None:
    prices = {
        price.instance_type: price for price in whole(task(source_at(server), ON_DEMAND)).on_demand
    }
    assert sorted(prices) == sorted(NAMES)
    core, ram = (
        rate(gcp, "N2 Instance Core running in Americas"),
        rate(gcp, "N2 Instance Ram running in Americas"),
    )
    as_of = parse_time("2026-09-20T06:00:00Z")
    assert prices["n2-standard-4"] == OnDemandPrice(
        "gcp", IOWA, "n2-standard-4", "linux", as_of, 4 * core + 16 * ram, "gcp price list"
    )
    a2 = (
        12 * rate(gcp, "A2 Instance Core running in Americas")
        + 170 * rate(gcp, "A2 Instance Ram running in Americas")
        + rate(gcp, "Nvidia Tesla A100 80GB GPU running in Americas")
        + round(375 * 80_000_000 / 730)
    )
    assert prices["a2-ultragpu-1g"].price == a2


def test_without_named_regions_all_are_fetched_and_the_price_list_is_read_once(
    gcp: Gcp, server: LoopbackServer
) -> None:
    gcp.page_size = 1
    tasks = source_at(server).tasks(REQUEST)
    assert [(one.region, one.what) for one in tasks] == [
        (region, what) for region in (TAIWAN, IOWA) for what in (TYPES, SPOT, ON_DEMAND)
    ]
    gcp.page_size = 100
    with ThreadPoolExecutor(len(tasks)) as pool:
        steps = list(pool.map(whole, tasks))
    for one, fetched in zip(tasks, steps, strict=True):
        assert len(fetched) > 0
        assert {price.region for price in fetched.on_demand} | {
            m.region for m in fetched.prices.markets
        } <= {one.region}
    assert sum(request.path.endswith("/skus") for request in server.requests) == 1


def test_a_named_region_is_not_looked_up_before_its_task_runs(server: LoopbackServer) -> None:
    source_at(server).tasks(replace(REQUEST, regions=(IOWA,)))
    assert server.requests == []


def test_only_the_requested_types_are_queried(server: LoopbackServer) -> None:
    request = replace(REQUEST, types=("n?-standard-*", "e2-micro"))
    wanted = {"n1-standard-4", "n2-standard-4", "e2-micro"}
    source = source_at(server)
    spot = whole(task(source, SPOT, request))
    assert {one.instance_type for one in spot.prices.markets} == wanted
    assert spot.covered == {"gcp/us-central1 e2-micro n?-standard-*": Span(REQUEST.since, NOW)}
    assert sum(request.path.endswith("/capacityHistory") for request in server.requests) == 3
    assert {one.name for one in whole(task(source, TYPES, request)).types} == wanted
    assert {
        one.instance_type for one in whole(task(source, ON_DEMAND, request)).on_demand
    } == wanted


def test_a_later_fetch_continues_where_the_earlier_one_ended(
    gcp: Gcp, server: LoopbackServer
) -> None:
    earlier = NOW - 20 * DAY
    request = replace(REQUEST, covered={"gcp/us-central1": Span(REQUEST.since, earlier)})
    fetched = whole(task(source_at(server), SPOT, request))
    assert events_of(fetched) == set().union(
        *(held_events(gcp, name, earlier - LATE) for name in NAMES)
    )
    assert {one.as_of for one in fetched.interruptions} == {
        one.as_of for one in held_rates(gcp, NAMES[0]) if one.as_of > earlier - LATE
    }
    assert fetched.covered == {"gcp/us-central1": Span(earlier, NOW)}


def test_a_longer_history_is_fetched_as_a_whole(gcp: Gcp, server: LoopbackServer) -> None:
    request = replace(REQUEST, covered={"gcp/us-central1": Span(NOW - 30 * DAY, NOW - DAY)})
    fetched = whole(task(source_at(server), SPOT, request))
    assert events_of(fetched) == set().union(
        *(held_events(gcp, name, REQUEST.since) for name in NAMES)
    )
    assert fetched.covered == {"gcp/us-central1": Span(REQUEST.since, NOW)}


def test_figures_of_a_zone_belong_to_that_zone(gcp: Gcp, server: LoopbackServer) -> None:
    for name in NAMES:
        gcp.histories[
            IOWA, name
        ].location = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b"
    fetched = whole(task(source_at(server), SPOT))
    assert {one.zone for one in fetched.prices.markets} == {"us-central1-b"}
    assert {one.market.zone for one in fetched.interruptions} == {"us-central1-b"}


def spot_price(gcp: Gcp, series: str, vcpus: int, gib: int) -> int:
    core, ram = (
        rate(gcp, f"Spot Preemptible {series} {part} running in Americas")
        for part in ("Core", "Ram")
    )
    return vcpus * core + gib * ram


@pytest.mark.parametrize("silence", ["unsupported", "empty"])
def test_types_without_history_are_priced_from_the_price_list(
    gcp: Gcp, server: LoopbackServer, silence: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    if silence == "unsupported":
        del gcp.histories[IOWA, "t2d-standard-8"]
    else:
        gcp.histories[IOWA, "t2d-standard-8"] = history(IOWA, "t2d-standard-8")
    fetched = whole(task(source_at(server), SPOT))
    price = spot_price(gcp, "T2D AMD Instance", 8, 32)
    t2d = market("t2d-standard-8")
    assert {event for event in events_of(fetched) if event.market == t2d} == {
        PriceEvent(t2d, parse_time("2026-09-20T06:00:00Z"), price),
        PriceEvent(t2d, NOW, price),
    }
    assert fetched.covered == {"gcp/us-central1": Span(REQUEST.since, NOW)}
    noted = [
        record.message
        for record in caplog.records
        if record.name == "spotctl.clouds.gcp.prices.source"
    ]
    assert len(noted) == (1 if silence == "unsupported" else 0)
    assert all(
        "of 5 machine types: 1, first" in message and "t2d-standard-8" in message
        for message in noted
    )


def test_the_price_list_says_nothing_about_the_past(gcp: Gcp, server: LoopbackServer) -> None:
    del gcp.histories[IOWA, "t2d-standard-8"]
    past = replace(REQUEST, until=parse_time("2026-09-19T00:00:00Z"))
    assert market("t2d-standard-8") not in whole(task(source_at(server), SPOT, past)).prices.markets


def test_a_machine_without_history_and_rate_is_sold_on_demand_only(
    gcp: Gcp, server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    del gcp.histories[IOWA, "t2d-standard-8"]
    gcp.skus = [
        one
        for one in gcp.skus
        if not one.description.startswith("Spot Preemptible T2D AMD Instance Ram")
    ]
    fetched = whole(task(source_at(server), SPOT))
    prices = {one.price for one in events_of(fetched) if one.market == market("t2d-standard-8")}
    listed = whole(task(source_at(server), ON_DEMAND)).on_demand
    (known,) = {one.price for one in listed if one.instance_type == "t2d-standard-8"}
    assert prices == {known + 1}
    assert (
        "t2d-standard-8: spot ram of T2D AMD Instance in us-central1 is not on the price list"
        in caplog.text
    )


def test_if_every_type_is_rejected_nothing_is_covered(gcp: Gcp, server: LoopbackServer) -> None:
    gcp.histories.clear()
    fetched, failure = pulled(task(source_at(server), SPOT))
    assert isinstance(failure, RequestRejected)
    assert "no history of any of 5 machine types" in str(failure)
    assert fetched.covered == {}
    assert {one.instance_type for one in fetched.prices.markets} == set(
        NAMES
    )  # from the price list


def test_a_region_that_rents_none_of_the_types_is_covered(server: LoopbackServer) -> None:
    request = replace(REQUEST, types=("m9-*",))
    fetched = whole(task(source_at(server), SPOT, request))
    assert (len(fetched), fetched.covered) == (
        0,
        {"gcp/us-central1 m9-*": Span(REQUEST.since, NOW)},
    )


def test_an_on_demand_price_with_a_missing_part_is_reported_and_never_zero(
    gcp: Gcp, server: LoopbackServer
) -> None:
    gcp.skus = [
        one
        for one in gcp.skus
        if one.description != "Nvidia Tesla A100 80GB GPU running in Americas"
    ]
    fetched, failure = pulled(task(source_at(server), ON_DEMAND))
    assert {one.instance_type for one in fetched.on_demand} == set(NAMES) - {"a2-ultragpu-1g"}
    assert isinstance(failure, IncompleteAnswer)
    assert ": 1 record left out, the others were kept" in str(failure)
    assert "a2-ultragpu-1g: on-demand gpu of Nvidia Tesla A100 80GB in us-central1" in str(failure)


def test_a_machine_with_unknown_price_components_is_logged_and_no_failure(
    gcp: Gcp, server: LoopbackServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gcp.zones[IOWA]["us-central1-a"].append(machine("m2-ultramem-208", 208, 5888))
    fetched = whole(task(source_at(server), ON_DEMAND))
    assert {one.instance_type for one in fetched.on_demand} == set(NAMES)
    assert "components are unknown: 1, first m2-ultramem-208" in caplog.text


def test_a_task_that_is_abandoned_closes_its_connections(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[AuthorizedSession] = []
    close: Callable[[AuthorizedSession], None] = AuthorizedSession.close

    def noting(session: AuthorizedSession) -> None:
        closed.append(session)
        close(session)

    monkeypatch.setattr(AuthorizedSession, "close", noting)
    pull = task(source_at(server), SPOT).pull()
    next(pull)
    assert len(closed) == 2  # of the regions, and of the machine types
    assert isinstance(pull, Generator)
    pull.close()
    assert len(closed) == 3


def test_importing_and_building_the_source_imports_no_sdk() -> None:
    script = (
        "import sys; from spotctl.clouds.gcp.prices import GcpSource;"
        "from spotctl.clouds.gcp.cloud import GcpSettings;"
        "GcpSource(GcpSettings()); assert not {'google.auth', 'google.cloud', 'requests', "
        "'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
