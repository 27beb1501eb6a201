"""Spot Advisor's bands and placement scores."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from pricing_data.availability import Interruption
from pricing_data.errors import AccessDenied, IncompleteAnswer, NoAnswer, RequestRejected
from pricing_data.market import Market
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, parse_time
from tests.servers.aws import ADVISOR_PATH, AwsFault, AwsWorld, ec2_error, running_aws
from tests.servers.loopback import Fault, Reply
from tests.servers.pulling import Pulled

NOW = parse_time("2024-03-01T00:00:00Z")
CHANGED = parse_time("2024-01-01T06:00:00Z")
RANGES = [
    {"index": 0, "label": "<5%", "dots": 0, "max": 5},
    {"index": 1, "label": "5-10%", "dots": 1, "max": 11},
    {"index": 2, "label": "10-15%", "dots": 2, "max": 16},
    {"index": 3, "label": "15-20%", "dots": 3, "max": 22},
    {"index": 4, "label": ">20%", "dots": 4, "max": 100},
]
BANDS = {0: (0.0, 0.05), 1: (0.05, 0.1), 2: (0.1, 0.15), 3: (0.15, 0.2), 4: (0.2, 1.0)}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        world.cloud.advisor = {
            "global_rate": "<10%",
            "instance_types": {"c5.large": {"cores": 2, "emr": True, "ram_gb": 4.0}},
            "ranges": RANGES,
            "spot_advisor": {
                "us-east-1": {
                    "Linux": {"c5.large": {"s": 70, "r": 0}, "p3.2xlarge": {"s": 60, "r": 4}},
                    "Windows": {"c5.large": {"s": 40, "r": 2}},
                },
                "eu-west-1": {"Linux": {"c5.large": {"s": 65, "r": 3}}},
            },
        }
        yield world


def bucket(text: str, band: int, as_of: int = CHANGED) -> Interruption:
    low, high = BANDS[band]
    return Interruption(Market.parse(text), "monthly-bucket", as_of, low, high, "aws spot advisor")


def bands(result: Pulled) -> tuple[Interruption, ...]:
    return tuple(one for one in result.all.interruptions if one.measure == "monthly-bucket")


def test_the_spot_advisors_savings_are_kept(aws: AwsWorld) -> None:
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ()))
    savings = {
        str(one.market): one.low for one in result.all.interruptions if one.measure == "saving"
    }
    assert savings["aws/us-east-1/-/p3.2xlarge"] == 0.6
    assert len(savings) == len(bands(result))


def test_the_spot_advisor_is_read_whole_and_dated_by_its_last_change(aws: AwsWorld) -> None:
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ()))
    assert result.error is None
    assert set(bands(result)) == {
        bucket("aws/us-east-1/-/c5.large", 0),
        bucket("aws/us-east-1/-/p3.2xlarge", 4),
        bucket("aws/us-east-1/-/c5.large/windows", 2),
        bucket("aws/eu-west-1/-/c5.large", 3),
    }


def test_only_the_requested_regions_and_types_are_kept(aws: AwsWorld) -> None:
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ("us-east-1",), ("p*",)))
    assert bands(result) == (bucket("aws/us-east-1/-/p3.2xlarge", 4),)


def test_an_undated_file_is_as_of_the_fetch(aws: AwsWorld) -> None:
    aws.breaks(Fault(ADVISOR_PATH, Reply(200, json.dumps(aws.cloud.advisor).encode())))
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ("eu-west-1",)))
    assert bands(result) == (bucket("aws/eu-west-1/-/c5.large", 3, NOW),)


def test_unreadable_entries_are_counted_and_the_good_ones_kept(aws: AwsWorld) -> None:
    aws.cloud.advisor["spot_advisor"]["us-east-1"]["Linux"] |= {
        "m5.large": {"s": 1, "r": 9},
        "m5.xlarge": {"s": 1},
        "m5.2xlarge": None,
        "m5 xlarge": {"s": 1, "r": 1},
    }
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ()))
    assert isinstance(result.error, IncompleteAnswer)
    assert ": 4 records left out, the others were kept" in str(result.error)
    assert len(bands(result)) == 4


@pytest.mark.parametrize(
    "fault",
    [
        Fault(ADVISOR_PATH, Reply(503), times=2),
        Fault(ADVISOR_PATH, Reply(429), times=2),
        Fault(ADVISOR_PATH, cut=20, times=2),
    ],
    ids=["unavailable", "throttled", "half a file"],
)
def test_a_temporary_fault_is_retried(aws: AwsWorld, fault: Fault) -> None:
    aws.breaks(Fault(fault.path, fault.reply, fault.cut, fault.times))
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ()))
    assert result.error is None
    assert len(bands(result)) == 4
    assert len([r for r in aws.server.requests if r.path == ADVISOR_PATH]) == 3


@pytest.mark.parametrize(
    ("reply", "reason", "asked"),
    [
        (Reply(503), "503", 3),
        (Reply(403), "403", 1),
        (Reply(200, b"<html>Log in</html>"), "has another format", 1),
        (Reply(200, b"[]"), "has another format", 1),
        (Reply(200, b'{"spot_advisor": {"us-east-1": []}}'), "has another format", 1),
        (
            Reply(200, b'{"ranges": [{"index": 0, "label": "?"}], "spot_advisor": {}}'),
            "interruption band",
            1,
        ),
    ],
)
def test_a_permanent_fault_reports_the_address(
    aws: AwsWorld, reply: Reply, reason: str, asked: int
) -> None:
    aws.breaks(Fault(ADVISOR_PATH, reply, times=-1))
    result = aws.pull("interruption buckets", FetchRequest(NOW - DAY, NOW, ()))
    assert isinstance(result.error, NoAnswer)
    assert f"{aws.server.url}{ADVISOR_PATH}" in str(result.error)
    assert reason in str(result.error)
    assert len([r for r in aws.server.requests if r.path == ADVISOR_PATH]) == asked


def test_placement_scores_use_the_zone_names_of_the_account(aws: AwsWorld) -> None:
    """The API returns zone ids, whose names differ between accounts."""
    aws.cloud.scores = {
        ("us-east-1", "c5.large"): {"use1-az6": 3, "use1-az4": 9},
        ("us-east-1", "p3.2xlarge"): {"use1-az6": 1},
        ("eu-west-1", "c5.large"): {"euw1-az1": 7},
    }
    request = FetchRequest(NOW - DAY, NOW, ("us-east-1",), ("c5.large", "g5.*", "p3.2xlarge"))
    result = aws.pull("placement scores", request)
    assert result.error is None
    zones = {zone_id: name for name, zone_id in zone_names(aws).items()}
    assert {
        (str(i.market), i.measure, i.as_of, i.low, i.high) for i in result.all.interruptions
    } == {
        (f"aws/us-east-1/{zones['use1-az6']}/c5.large", "placement-score", NOW, 3, 3),
        (f"aws/us-east-1/{zones['use1-az4']}/c5.large", "placement-score", NOW, 9, 9),
        (f"aws/us-east-1/{zones['use1-az6']}/p3.2xlarge", "placement-score", NOW, 1, 1),
    }
    asked = aws.asked("GetSpotPlacementScores")
    assert [a["InstanceType.1"] for a in asked] == ["c5.large", "p3.2xlarge"], (
        "patterns cannot be scored"
    )


def zone_names(aws: AwsWorld) -> dict[str, str]:
    """The server's own zone ids by zone name."""
    import boto3

    client = boto3.Session().client("ec2", "us-east-1", endpoint_url=aws.server.url)
    try:
        zones = client.describe_availability_zones()["AvailabilityZones"]
    finally:
        client.close()
    return {zone["ZoneName"]: zone["ZoneId"] for zone in zones}


def test_a_zone_id_that_the_account_does_not_know_is_reported(aws: AwsWorld) -> None:
    aws.cloud.scores = {("us-east-1", "c5.large"): {"use1-az6": 3, "mars1-az1": 9, "use1-az4": 11}}
    result = aws.pull(
        "placement scores", FetchRequest(NOW - DAY, NOW, ("us-east-1",), ("c5.large",))
    )
    assert isinstance(result.error, IncompleteAnswer)
    assert ": 2 records left out, the others were kept" in str(result.error)
    assert [i.low for i in result.all.interruptions] == [3]


def test_a_score_that_is_not_a_number_is_reported(aws: AwsWorld) -> None:
    score = "<item><availabilityZoneId>use1-az6</availabilityZoneId><score>high</score></item>"
    body = f"<Response><spotPlacementScoreSet>{score}</spotPlacementScoreSet></Response>"
    aws.breaks(AwsFault("/", Reply(200, body.encode()), action="GetSpotPlacementScores", times=-1))
    result = aws.pull(
        "placement scores", FetchRequest(NOW - DAY, NOW, ("us-east-1",), ("c5.large",))
    )
    assert isinstance(result.error, NoAnswer)
    assert "ec2:GetSpotPlacementScores: the answer cannot be read" in str(result.error)


@pytest.mark.parametrize("types", [(), ("c5.*", "g[56].xlarge", "p?.2xlarge")])
def test_placement_scores_are_requested_only_for_exact_names(
    aws: AwsWorld, types: tuple[str, ...]
) -> None:
    tasks = aws.source().tasks(FetchRequest(NOW - DAY, NOW, ("us-east-1",), types))
    assert [task.what for task in tasks] == [
        "interruption buckets",
        "spot prices",
        "instance types",
        "on-demand prices",
    ]


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        ("MaxConfigLimitExceeded", RequestRejected, "MaxConfigLimitExceeded"),
        ("UnauthorizedOperation", AccessDenied, "ec2:GetSpotPlacementScores"),
    ],
)
def test_a_rejected_score_request_reports_the_reason(
    aws: AwsWorld, code: str, kind: type[Exception], reason: str
) -> None:
    aws.cloud.scores = {("us-east-1", "c5.large"): {"use1-az6": 3}}
    aws.breaks(AwsFault("/", ec2_error(code), action="GetSpotPlacementScores", skip=1))
    request = FetchRequest(NOW - DAY, NOW, ("us-east-1",), ("c5.large", "c5.xlarge"))
    result = aws.pull("placement scores", request)
    assert isinstance(result.error, kind)
    assert reason in str(result.error)
    assert [i.low for i in result.all.interruptions] == [3]
