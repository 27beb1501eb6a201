"""Spot price history of AWS: complete, resumable, with every failure reported."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest

from pricing_data.errors import (
    AccessDenied,
    CloudError,
    IncompleteAnswer,
    MissingCredentials,
    NoAnswer,
    RateLimited,
    RequestRejected,
)
from pricing_data.fetched_rows import PriceEvent
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, HOUR, SECOND, Span, format_time, parse_time, parse_usd
from tests.servers.aws import (
    AwsFault,
    AwsWorld,
    SpotPriceRow,
    ec2_error,
    price_history_of,
    running_aws,
)
from tests.servers.loopback import Reply
from tests.servers.pulling import pulled

EAST, WEST = "us-east-1", "us-west-2"
SINCE = parse_time("2024-01-01T00:00:00Z")
UNTIL = SINCE + 20 * DAY  # two whole slices and a shorter one
PRODUCTS = ("Linux/UNIX", "Windows", "Red Hat Enterprise Linux", "Linux/UNIX (Amazon VPC)")
HISTORY = "DescribeSpotPriceHistory"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        world.cloud.page_limit = 9
        yield world


def random_rows(seed: int, *regions: str) -> list[SpotPriceRow]:
    """A few markets of each region, from before SINCE to after UNTIL, with few or many changes."""
    random = Random(seed)
    rows = []
    for region in regions:
        for zone in "ab":
            for name in ("c5.large", "c5.xlarge", "g5.xlarge", "p3.2xlarge"):
                for product in random.sample(PRODUCTS, 2):
                    seconds = random.sample(range(-5 * 86400, 25 * 86400), random.choice((1, 3, 8)))
                    rows += [
                        SpotPriceRow(
                            region,
                            region + zone,
                            name,
                            product,
                            SINCE + second * SECOND,
                            f"{random.randrange(1, 9**9) / 1e6:.6f}",
                        )
                        for second in seconds
                    ]
    return rows


def event(row: SpotPriceRow) -> PriceEvent:
    market = Market.of("aws", row.region, row.zone, row.instance_type, row.product)
    return PriceEvent(market, row.time, parse_usd(row.price))


def read_directly(rows: list[SpotPriceRow], region: str, since: int, until: int) -> set[PriceEvent]:
    """A region's history, row by row: the changes in the span, and the price in force at its
    start."""
    events = set()
    for row in rows:
        later = [
            o
            for o in rows
            if o.region == region and o.market == row.market and row.time < o.time < since
        ]
        if row.region == region and row.time < until and not later:
            events.add(event(row))
    return events


@pytest.mark.parametrize("seed", range(3))
def test_a_fetch_returns_exactly_the_history_of_aws(aws: AwsWorld, seed: int) -> None:
    aws.cloud.prices = random_rows(seed, EAST, WEST)
    request = FetchRequest(SINCE, UNTIL, (EAST,))
    result = aws.pull("spot prices", request)
    assert result.error is None
    assert set(result.events) == read_directly(aws.cloud.prices, EAST, SINCE, UNTIL)
    assert result.all.covered == {request.history("aws", EAST): Span(SINCE, UNTIL)}
    assert len(result.steps) > 6, "the test must page"


def test_products_of_one_type_are_separate_markets(aws: AwsWorld) -> None:
    aws.cloud.prices = [
        SpotPriceRow(EAST, "us-east-1a", "c5.large", product, SINCE + HOUR, f"0.0{i}1000")
        for i, product in enumerate(PRODUCTS)
    ]
    result = aws.pull("spot prices", FetchRequest(SINCE, UNTIL, (EAST,)))
    assert {(str(e.market), e.price) for e in result.events} == {
        ("aws/us-east-1/us-east-1a/c5.large", 1_000_000),
        ("aws/us-east-1/us-east-1a/c5.large/windows", 11_000_000),
        ("aws/us-east-1/us-east-1a/c5.large/rhel", 21_000_000),
        ("aws/us-east-1/us-east-1a/c5.large/linux-vpc", 31_000_000),
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_failed_fetch_resumes_at_the_last_complete_slice(aws: AwsWorld, seed: int) -> None:
    """A token that expires between pages: earlier rows are kept, and complete slices are not
    fetched again.
    """
    aws.cloud.prices = random_rows(seed, EAST)
    request = FetchRequest(SINCE, UNTIL, (EAST,))
    history = request.history("aws", EAST)
    pages = len(aws.pull("spot prices", request).steps)
    died_at = Random(seed).randrange(1, pages)
    aws.server.requests.clear()
    aws.breaks(AwsFault("/", ec2_error("ExpiredToken"), action=HISTORY, skip=died_at, times=-1))

    broken = aws.pull("spot prices", request)
    assert isinstance(broken.error, MissingCredentials)
    assert "expired" in str(broken.error)
    assert "aws sso login" in str(broken.error)
    assert len(broken.steps) == died_at
    whole = broken.all.covered.get(history, Span(SINCE, SINCE))
    assert whole.end == max(
        [s.end for step in broken.steps for s in step.covered.values()], default=SINCE
    )
    asked_last = parse_time(aws.asked(HISTORY)[-1]["StartTime"])
    assert whole.end == asked_last, "covered ends where the slice that broke begins"

    aws.server.faults.clear()
    aws.server.requests.clear()
    rest = aws.pull("spot prices", FetchRequest(SINCE, UNTIL, (EAST,), covered=broken.all.covered))
    assert rest.error is None
    assert min(parse_time(asked["StartTime"]) for asked in aws.asked(HISTORY)) == whole.end
    assert {*broken.events, *rest.events} == read_directly(aws.cloud.prices, EAST, SINCE, UNTIL)


def test_a_complete_history_is_not_fetched(aws: AwsWorld) -> None:
    request = FetchRequest(
        SINCE, UNTIL, (EAST,), covered={"aws/us-east-1": Span(SINCE - DAY, UNTIL)}
    )
    assert aws.pull("spot prices", request).steps == []
    assert aws.server.requests == []


def test_a_longer_history_than_covered_is_fetched_as_a_whole(aws: AwsWorld) -> None:
    request = FetchRequest(
        SINCE, UNTIL, (EAST,), covered={"aws/us-east-1": Span(SINCE + DAY, UNTIL)}
    )
    assert aws.pull("spot prices", request).all.covered == {"aws/us-east-1": Span(SINCE, UNTIL)}


def test_history_beyond_the_retention_of_aws_is_not_requested(aws: AwsWorld) -> None:
    """A request for a year is complete with 90 days; otherwise each fetch would start from
    scratch."""
    request = FetchRequest(UNTIL - 365 * DAY, UNTIL, (EAST,))
    result = aws.pull("spot prices", request)
    assert parse_time(aws.asked(HISTORY)[0]["StartTime"]) == UNTIL - 90 * DAY
    assert result.all.covered == {"aws/us-east-1": Span(UNTIL - 365 * DAY, UNTIL)}


def test_only_the_requested_types_are_transferred(aws: AwsWorld) -> None:
    """AWS does not support `[cg]`, so it gets a wider pattern, and the result is filtered
    locally."""
    names = ("c5.large", "g5.large", "m5.large", "p3.2xlarge", "t3.nano")
    aws.cloud.prices = [
        SpotPriceRow(EAST, "us-east-1a", n, "Linux/UNIX", SINCE + DAY, "0.1") for n in names
    ]
    request = FetchRequest(SINCE, UNTIL, (EAST,), ("[cg]5.*", "p3.2xlarge"))
    result = aws.pull("spot prices", request)
    assert {e.market.instance_type for e in result.events} == {"c5.large", "g5.large", "p3.2xlarge"}
    assert list(result.all.covered) == ["aws/us-east-1 [cg]5.* p3.2xlarge"]
    asked = aws.asked(HISTORY)[0]
    assert [asked["Filter.1.Value.1"], asked["Filter.1.Value.2"]] == ["?5.*", "p3.2xlarge"]


def test_more_types_than_a_filter_allows_are_filtered_locally(aws: AwsWorld) -> None:
    aws.cloud.prices = random_rows(0, EAST)
    request = FetchRequest(
        SINCE, UNTIL, (EAST,), ("c5.large", *(f"z{i}.large" for i in range(200)))
    )
    result = aws.pull("spot prices", request)
    assert {e.market.instance_type for e in result.events} == {"c5.large"}
    assert not [name for name in aws.asked(HISTORY)[0] if name.startswith("Filter")]


def test_regions_are_fetched_in_parallel_by_one_source(aws: AwsWorld) -> None:
    regions = (EAST, WEST, "eu-west-1", "ap-south-1")
    aws.cloud.prices = random_rows(5, *regions)
    tasks = [
        t
        for t in aws.source().tasks(FetchRequest(SINCE, UNTIL, regions))
        if t.what == "spot prices"
    ]
    with ThreadPoolExecutor(len(tasks)) as threads:
        result = dict(zip(regions, threads.map(pulled, tasks), strict=True))
    for region in regions:
        assert result[region].error is None
        assert set(result[region].events) == read_directly(aws.cloud.prices, region, SINCE, UNTIL)


@pytest.mark.parametrize(
    "fault",
    [
        AwsFault("/", ec2_error("RequestLimitExceeded", status=503), times=2, skip=1),
        AwsFault("/", ec2_error("RequestLimitExceeded", status=503), times=2),
        AwsFault("/", Reply(500, b"<html>oops</html>"), times=2, skip=2),
        AwsFault("/", cut=40, times=2, skip=1),
    ],
    ids=["throttled later", "throttled at once", "internal error", "half a page"],
)
def test_a_temporary_fault_loses_no_row(aws: AwsWorld, fault: AwsFault) -> None:
    aws.cloud.prices = random_rows(1, EAST)
    aws.breaks(
        AwsFault(fault.path, fault.reply, fault.cut, fault.times, fault.skip, action=HISTORY)
    )
    result = aws.pull("spot prices", FetchRequest(SINCE, UNTIL, (EAST,)))
    assert result.error is None
    assert set(result.events) == read_directly(aws.cloud.prices, EAST, SINCE, UNTIL)
    assert len(aws.asked(HISTORY)) == len(result.steps) + 2


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        (
            AwsFault("/", ec2_error("RequestLimitExceeded", "slow down", 503)),
            RateLimited,
            "RequestLimitExceeded",
        ),
        (AwsFault("/", ec2_error("InternalError", "oops", 500)), NoAnswer, "InternalError"),
        (
            AwsFault("/", ec2_error("InvalidParameterValue", "no such token")),
            RequestRejected,
            "InvalidParameterValue",
        ),
        (AwsFault("/", cut=40), NoAnswer, "cannot be read"),
        (AwsFault("/", Reply(200, b"<Describe <<<")), NoAnswer, "cannot be read"),
        (
            AwsFault("/", Reply(200, b"<html><body>Log in</body></html>")),
            NoAnswer,
            "has no SpotPriceHistory",
        ),
    ],
    ids=["throttled", "internal error", "refused", "half a page", "garbage", "another page"],
)
def test_a_permanent_fault_keeps_the_pages_before_it(
    aws: AwsWorld, fault: AwsFault, kind: type[CloudError], reason: str
) -> None:
    aws.cloud.prices = random_rows(2, EAST)
    request = FetchRequest(SINCE, UNTIL, (EAST,))
    before = aws.pull("spot prices", request).steps[:5]
    aws.breaks(AwsFault(fault.path, fault.reply, fault.cut, times=-1, skip=5, action=HISTORY))
    result = aws.pull("spot prices", request)
    assert type(result.error) is kind
    assert str(result.error).startswith("aws/us-east-1: ec2:DescribeSpotPriceHistory: ")
    assert reason in str(result.error)
    assert "\n" not in str(result.error)
    assert [len(step) for step in result.steps] == [len(step) for step in before]
    assert result.all.covered == {name: s for step in before for name, s in step.covered.items()}


def test_a_repeated_page_token_ends_the_task(aws: AwsWorld) -> None:
    page = price_history_of().body.replace(
        b"<requestId>", b"<nextToken>again</nextToken><requestId>"
    )
    aws.breaks(AwsFault("/", Reply(200, page), action=HISTORY, times=-1))
    result = aws.pull("spot prices", FetchRequest(SINCE, UNTIL, (EAST,)))
    assert isinstance(result.error, NoAnswer)
    assert "repeats the same page token" in str(result.error)
    assert result.all.covered == {}
    assert len(aws.asked(HISTORY)) == 2


def test_throttling_is_retried_as_often_as_configured(aws: AwsWorld) -> None:
    aws.breaks(
        AwsFault("/", ec2_error("RequestLimitExceeded", status=503), action=HISTORY, times=-1)
    )
    result = aws.pull(
        "spot prices", FetchRequest(SINCE, UNTIL, (EAST,)), aws.source(max_attempts=4)
    )
    assert isinstance(result.error, RateLimited)
    assert len(aws.asked(HISTORY)) == 4


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        ("UnauthorizedOperation", "allow the IAM action ec2:DescribeSpotPriceHistory"),
        ("AuthFailure", "enable the region"),
        ("OptInRequired", "enable the region"),
    ],
)
def test_a_denied_region_does_not_stop_the_others(aws: AwsWorld, code: str, cure: str) -> None:
    aws.cloud.prices = random_rows(3, EAST, WEST)
    aws.breaks(AwsFault("/", ec2_error(code, status=403), action=HISTORY, region=WEST, times=-1))
    source, request = aws.source(), FetchRequest(SINCE, UNTIL, (WEST, EAST))
    west, east = (pulled(task) for task in source.tasks(request) if task.what == "spot prices")
    assert isinstance(west.error, AccessDenied)
    assert "aws/us-west-2" in str(west.error)
    assert cure in str(west.error)
    assert east.error is None
    assert set(east.events) == read_directly(aws.cloud.prices, EAST, SINCE, UNTIL)


def test_unreadable_records_are_counted_and_the_good_ones_kept(aws: AwsWorld) -> None:
    """The slice with the bad records and those after it are not covered, so the next fetch repeats
    them.
    """
    good = {
        "availabilityZone": "us-east-1a",
        "instanceType": "c5.large",
        "productDescription": "Linux/UNIX",
        "spotPrice": "0.016200",
        "timestamp": format_time(SINCE + 8 * DAY),
    }
    bad = [
        good | {"spotPrice": "0.000000"},
        good | {"spotPrice": "cheap"},
        good | {"timestamp": "yesterday"},
        good | {"instanceType": "c5 large"},
        {name: value for name, value in good.items() if name != "availabilityZone"},
    ]
    page = price_history_of(*bad[:3], good, *bad[3:])
    aws.breaks(AwsFault("/", page, action=HISTORY, skip=1))
    result = aws.pull("spot prices", FetchRequest(SINCE, UNTIL, (EAST,)))
    assert isinstance(result.error, IncompleteAnswer)
    assert ": 5 records left out, the others were kept" in str(result.error)
    assert "'0.000000' is not above 0" in str(result.error)
    market = Market("aws", EAST, "us-east-1a", "c5.large")
    assert result.events == [PriceEvent(market, SINCE + 8 * DAY, 16_200_000)]
    assert result.all.covered == {"aws/us-east-1": Span(SINCE, SINCE + 7 * DAY)}
    assert len(aws.asked(HISTORY)) == 3, "what comes after the bad page is fetched all the same"
