"""Reservations in a job file: each wrong one is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.market import Market
from pricing_data.units import MINUTE, parse_time
from spotctl.files.job.reader import loads, restored, written
from spotctl.files.job.reservations import clouds_with_reservations
from spotctl.home.cloud import UsedReservations, cloud_of
from spotctl.home.errors import BadRequest

GOOD = "id: cr-0abc, cloud: aws, zone: us-east-1a, type: p5.48xlarge, machines: 2, price: 0, until: 2026-12-01T11:30Z"
JOB = "name: job\nkind: command\nrun: echo\nresources: {{clouds: [aws]{more}, reservations: [{{{named}}}{second}]}}\n"


def job(named: str = GOOD, more: str = "", second: str = "") -> str:
    return JOB.format(named=named, more=more, second=second)


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
    ("before", "after", "problem"),
    [
        ("price: 0", "price: 2.5", "has price 2.5, which is not an amount per hour such as 2.50 USD/h, or 0"),
        ("machines: 2", "machines: 0", "has machines 0, which is too small"),
        (", until: 2026-12-01T11:30Z", "", "has no until"),
        ("cloud: aws", "cloud: gcp", "has the cloud gcp, but reservations are for aws"),
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
        (", types: [c5.large]", "", "has the type p5.48xlarge, which types does not name; add it there"),
        ("", f", {{{GOOD}}}", "cr-0abc is listed twice; keep one"),
        ("", f", {{{GOOD.replace('us-east-1a', 'us-west-2a').replace('0abc', '0def')}}}", "name those of one region"),
    ],
)
def test_one_that_does_not_fit_the_job_is_refused(more: str, second: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        loads(job(more=more, second=second), Path(__file__))
    assert problem in str(refused.value)


def test_a_cloud_says_that_its_reservations_are_used_and_when_a_block_loses_its_machines() -> None:
    aws = cloud_of("aws").job
    assert aws is not None
    assert aws.reservations == UsedReservations(block_ends_early=30 * MINUTE)
    assert clouds_with_reservations() == ("aws",)
    (block,) = loads(job(f"{GOOD}, block: true"), Path(__file__)).resources.reservations
    assert block.leave == parse_time("2026-12-01T10:58Z")
