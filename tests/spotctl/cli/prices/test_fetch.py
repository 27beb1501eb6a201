"""`spotctl prices fetch` from its entry point, with each cloud's own SDK talking to servers on this
machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pricing_data.units import DAY, HOUR, format_time
from tests.documented import assert_documented
from tests.servers.aws import ADVISOR_PATH, AwsFault, AwsWorld, SpotPriceRow, ec2_error, running_aws
from tests.servers.azure import RETAIL, AzureWorld, retail_item, running_azure
from tests.servers.gcp import PROJECT, Gcp, history, machine, priced, sku
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl

NOW = time.time_ns() // 1_000_000_000 * 1_000_000
AWS_MARKET = "aws/us-east-1/us-east-1a/c5.large"
GCP_MARKET = "gcp/us-central1/-/n2-standard-4"
AZURE_MARKET = "azure/eastus/-/Standard_D2s_v3"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        world.cloud.advisor = {
            "spot_advisor": {"us-east-1": {"Linux": {"c5.large": {"s": 70, "r": 1}}}}
        }
        for region in ("us-east-1", "eu-west-1"):
            world.cloud.prices += [
                SpotPriceRow(
                    region,
                    f"{region}a",
                    "c5.large",
                    "Linux/UNIX",
                    NOW - days * DAY,
                    f"0.0{30 + days}",
                )
                for days in (9, 6, 3, 1)
            ]
        monkeypatch.setenv("SPOTCTL_AWS_PRICE_LIST_URL", world.server.url)
        monkeypatch.setenv("SPOTCTL_AWS_SPOT_ADVISOR_URL", world.server.url + ADVISOR_PATH)
        yield world


@pytest.fixture
def gcp(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    kind = machine("n2-standard-4", 4, 16)
    past = history("us-central1", kind.name, [priced(format_time(NOW - 5 * DAY), None, 47_000_000)])
    rates = [
        sku("N2 Instance Core running in Americas", 31_611_000, ["us-central1"]),
        sku("N2 Instance Ram running in Americas", 4_237_000, ["us-central1"], "GiBy.h"),
    ]
    cloud = Gcp(
        {"us-central1": {"us-central1-a": [kind]}}, {("us-central1", kind.name): past}, rates
    )
    with serving(cloud) as server:
        monkeypatch.setenv("SPOTCTL_GCP_PROJECT", PROJECT)
        monkeypatch.setenv("SPOTCTL_GCP_COMPUTE_ENDPOINT", server.url)
        monkeypatch.setenv("SPOTCTL_GCP_BILLING_ENDPOINT", server.url)
        yield server


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureWorld]:
    with running_azure(monkeypatch) as world:
        world.cloud.retail += [
            retail_item("eastus", "Standard_D2s_v3", 20_000_000, NOW - 5 * DAY, kind="Spot")
        ]
        monkeypatch.setenv("SPOTCTL_AZURE_RETAIL_PRICES_URL", world.server.url + RETAIL)
        yield world


def failures(ended: Ended) -> dict[tuple[str, str, str], str]:
    tasks = ended.json["tasks"]
    return {
        (task["cloud"], task["region"], task["what"]): task["failure"]
        for task in tasks
        if task["failure"]
    }


def added(ended: Ended) -> int:
    return sum(task["added"] for task in ended.json["tasks"])


def fetch(*words: str) -> Ended:
    return spotctl("prices", "fetch", "--since", "8d", "--json", *words)


@pytest.mark.usefixtures("gcp", "azure")
def test_three_clouds_are_fetched_in_parallel_and_missing_parts_are_reported(aws: AwsWorld) -> None:
    ended = fetch("--region", "us-east-1", "--region", "us-central1", "--region", "eastus")
    assert ended.code == 0
    assert set(failures(ended)) == {("azure", "-", "spot history, eviction rates, machine types")}
    assert_documented("prices fetch", ended.json)
    assert ended.err.count("\n") == 1
    assert "AZURE_SUBSCRIPTION_ID" in ended.err
    assert spotctl("lab", "prices", "ls", "--json").json["markets"] == [
        AWS_MARKET,
        AZURE_MARKET,
        GCP_MARKET,
    ]
    assert spotctl("prices", "show", AWS_MARKET, "--json").json["price_now"] == 0.031
    assert spotctl("prices", "show", AZURE_MARKET, "--json").json["price_now"] == 0.02
    shown = spotctl("prices", "show", GCP_MARKET, "--json").json
    assert (shown["price_now"], shown["on_demand"]) == (
        0.047,
        pytest.approx(4 * 0.031611 + 16 * 0.004237),
    )
    assert len(aws.asked("DescribeSpotPriceHistory")) >= 2


@pytest.mark.slow
def test_a_fetch_continues_where_the_last_one_ended(aws: AwsWorld) -> None:
    one_type = ("--cloud", "aws", "--region", "us-east-1", "--type", "c5.large")
    first = fetch(*one_type)
    assert added(first) == 4
    asked = len(aws.asked("DescribeSpotPriceHistory"))
    aws.cloud.prices.append(
        SpotPriceRow("us-east-1", "us-east-1a", "c5.large", "Linux/UNIX", NOW - HOUR, "0.055")
    )
    second = fetch(*one_type)
    starts = [call["StartTime"] for call in aws.asked("DescribeSpotPriceHistory")[asked:]]
    assert min(starts) >= format_time(NOW - HOUR)
    assert (first.code, second.code) == (0, 0)
    assert fetch(*one_type, "--since", "30d").code == 0
    assert spotctl("prices", "show", AWS_MARKET, "--json").json["events"] == 5


def test_a_denied_region_sets_the_exit_code_and_the_others_are_fetched(
    aws: AwsWorld, approved: Approved
) -> None:
    denied = ec2_error("UnauthorizedOperation", "You are not authorized", 403)
    aws.breaks(
        AwsFault("", denied, times=-1, action="DescribeSpotPriceHistory", region="eu-west-1")
    )
    ended = fetch(
        "--cloud", "aws", "--type", "c5.large", "--region", "us-east-1", "--region", "eu-west-1"
    )
    assert set(failures(ended)) == {("aws", "eu-west-1", "spot prices")}
    approved(ended)
    assert spotctl("lab", "prices", "ls", "--json").json["markets"] == [AWS_MARKET]


def test_a_type_that_the_cloud_rejects_is_reported(gcp: LoopbackServer) -> None:
    gcp.faults.append(
        Fault(
            "capacityHistory",
            Reply.of_json({"error": {"code": 400, "message": "no such"}}, 400),
            times=-1,
        )
    )
    ended = fetch("--cloud", "gcp", "--region", "us-central1", "--type", "n2-standard-4")
    assert ended.code == 1
    assert ("gcp", "us-central1", "spot prices and preemption rates") in failures(ended)


@pytest.mark.usefixtures("aws", "azure")
@pytest.mark.parametrize(
    ("words", "code"),
    [(["--cloud", "aws"], 5), (["--cloud", "aws", "--cloud", "azure"], 5), ([], 0)],
)
def test_missing_credentials_of_a_requested_cloud_are_an_error(
    words: list[str], code: int, monkeypatch: pytest.MonkeyPatch, gcp: LoopbackServer
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    ended = fetch("--region", "us-east-1", "--region", "eastus", "--region", "us-central1", *words)
    assert ended.code == code
    assert "AWS_ACCESS_KEY_ID" in ended.err
    assert "Traceback" not in ended.err
    assert bool(gcp.requests) == (not words)
