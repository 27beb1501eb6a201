"""Reservations in a job file: each wrong one is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.market import Market
from pricing_data.units import parse_time
from spotctl.files.job.reader import loads, restored, written
from spotctl.files.job.resources import clouds_with_reservations
from spotctl.home.errors import BadRequest

GOOD = (
    "id: cr-0abc, cloud: aws, zone: us-east-1a, type: p5.48xlarge, machines: 2, price: 0, until: "
    "2026-12-01T11:30Z"
)
JOB = "name: job\nkind: command\n{nodes}run: echo\n" + (
    "resources: {{clouds: [{cloud}]{more}, reservations: [{{{named}}}{second}]}}\n"
)
SHARED = "projects/capacity/reservations/night"
GROUP = (
    "/subscriptions/0f1e2d3c-0000-4000-8000-000000000000/resourceGroups/company/providers/Microsoft.Compute"
    "/capacityReservationGroups/night"
)


def of(cloud: str, id_: str, zone: str, type_: str = "any.type") -> str:
    """A reservation of a cloud, as a job file names it."""
    return (
        f"id: {id_}, cloud: {cloud}, zone: {zone}, type: {type_}, machines: 2, price: 0, until: "
        "2026-12-01T11:30Z"
    )


def job(
    named: str = GOOD, more: str = "", second: str = "", cloud: str = "aws", nodes: str = ""
) -> str:
    return JOB.format(named=named, more=more, second=second, cloud=cloud, nodes=nodes)


def test_one_is_a_market_with_a_price_and_an_end() -> None:
    spec = loads(job(GOOD.replace("price: 0", "price: 2.50 USD/h")), Path(__file__))
    (found,) = spec.resources.reservations
    assert str(found.market) == "aws/us-east-1/us-east-1a/p5.48xlarge/linux/cr-0abc"
    assert Market.parse(str(found.market)) == found.market
    assert (found.price, found.until, found.leave) == (
        2_500_000_000,
        parse_time("2026-12-01T11:30Z"),
        parse_time("2026-12-01T11:28Z"),
    )
    assert restored(written(spec), Path(__file__)).resources.reservations == (found,)


@pytest.mark.parametrize(
    ("cloud", "id_", "zone", "market"),
    [
        ("gcp", "night", "us-central1-a", "gcp/us-central1/us-central1-a/any.type/linux/night"),
        ("gcp", SHARED, "us-central1-a", "gcp/us-central1/us-central1-a/any.type/linux/night"),
        ("azure", GROUP, "eastus-1", "azure/eastus/eastus-1/any.type/linux/night"),
        ("azure", GROUP, "eastus", "azure/eastus/-/any.type/linux/night"),
    ],
)
def test_each_cloud_names_them_in_its_own_way(cloud: str, id_: str, zone: str, market: str) -> None:
    spec = loads(job(of(cloud, id_, zone), cloud=cloud), Path(__file__))
    (reservation,) = spec.resources.reservations
    assert (str(reservation.market), reservation.id) == (market, id_)
    assert Market.parse(market) == reservation.market
    assert restored(written(spec), Path(__file__)).resources.reservations == (reservation,)


@pytest.mark.parametrize(
    ("cloud", "id_", "zone", "problem"),
    [
        (
            "aws",
            "night",
            "us-east-1a",
            "has the id night, which is none of aws; write one such as cr-0123456789abcdef0",
        ),
        (
            "gcp",
            "Night",
            "us-central1-a",
            "has the id Night, which is none of gcp; write one such as my-reservation or",
        ),
        (
            "gcp",
            "projects/p/zones/us-central1-a/reservations/night",
            "us-central1-a",
            "which is none of gcp",
        ),
        (
            "azure",
            "night",
            "eastus-1",
            "has the id night, which is none of azure; write one such as /subscriptions/",
        ),
        ("azure", f"{GROUP}/capacityReservations/one", "eastus-1", "which is none of azure"),
        (
            "gcp",
            "night",
            "us-central1",
            "the zone us-central1, which is none of gcp; write one such as us-central1-a",
        ),
        (
            "azure",
            GROUP,
            "'1'",
            "the zone 1, which is none of azure; write one such as eastus-1, or eastus for one",
        ),
        (
            "gcp",
            "night",
            "us-central1-a, block: true",
            "has block: true, which is for aws only; remove it",
        ),
        (
            "azure",
            GROUP,
            "eastus-1, block: true",
            "has block: true, which is for aws only; remove it",
        ),
    ],
)
def test_what_a_cloud_does_not_have_is_refused(
    cloud: str, id_: str, zone: str, problem: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        loads(job(of(cloud, id_, zone), cloud=cloud), Path(__file__))
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("cloud", "id_", "zone"), [("gcp", "night", "us-central1-a"), ("azure", GROUP, "eastus-1")]
)
def test_only_machines_of_some_clouds_are_reserved_and_close_together(
    cloud: str, id_: str, zone: str
) -> None:
    loads(job(more=", placement: close", nodes="nodes: 2\n"), Path(__file__))
    with pytest.raises(
        BadRequest,
        match=f"{cloud} places no reserved machines close together; remove it, or placement",
    ):
        loads(
            job(of(cloud, id_, zone), ", placement: close", cloud=cloud, nodes="nodes: 2\n"),
            Path(__file__),
        )


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        (
            "price: 0",
            "price: 2.5",
            "has price 2.5, which is not an amount per hour such as 2.50 USD/h, or 0",
        ),
        ("machines: 2", "machines: 0", "has machines 0, which is too small"),
        (", until: 2026-12-01T11:30Z", "", "has no until"),
        (
            "cloud: aws",
            "cloud: local",
            "has the cloud local, but reservations are for aws, gcp, azure",
        ),
        ("zone: us-east-1a", "zone: us-east-1", "has the zone us-east-1, which is none of aws"),
        ("zone: us-east-1a", "zones: us-east-1a", "has the unknown key zones"),
        ("until: 2026-12-01T11:30Z", "until: tomorrow", "which is not a time"),
    ],
)
def test_a_wrong_one_is_refused(before: str, after: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        loads(job(GOOD.replace(before, after)), Path(__file__))
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("more", "second", "problem"),
    [
        (
            ", types: [c5.large]",
            "",
            "has the type p5.48xlarge, which types does not name; add it there",
        ),
        ("", f", {{{GOOD}}}", "cr-0abc is listed twice; keep one"),
        (
            "",
            f", {{{GOOD.replace('us-east-1a', 'us-west-2a').replace('0abc', '0def')}}}",
            "name those of one region",
        ),
    ],
)
def test_one_that_does_not_fit_the_job_is_refused(more: str, second: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        loads(job(more=more, second=second), Path(__file__))
    assert problem in str(refused.value)


def test_a_block_loses_its_machines_before_its_end() -> None:
    """Only AWS has blocks."""
    assert clouds_with_reservations() == ("aws", "gcp", "azure")
    (block,) = loads(job(f"{GOOD}, block: true"), Path(__file__)).resources.reservations
    assert block.leave == parse_time("2026-12-01T10:58Z")
