"""Credentials, endpoints and errors of AWS."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.errors import (
    IncompleteAnswer,
    MissingCredentials,
    NoAnswer,
    RequestRejected,
)
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, parse_time
from spotctl.clouds.aws.cloud import AwsSettings
from spotctl.clouds.aws.prices import AwsSource
from tests.servers.aws import (
    ADVISOR_PATH,
    AwsCloud,
    AwsFault,
    AwsWorld,
    action_of,
    ec2_error,
    price_list_error,
    running_aws,
)
from tests.servers.loopback import Reply, serving
from tests.servers.pulling import pulled

NOW = parse_time("2024-03-01T00:00:00Z")
ALL_REGIONS = FetchRequest(NOW - DAY, NOW)
ONE_REGION = FetchRequest(NOW - DAY, NOW, ("us-east-1",))


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        world.cloud.advisor = {
            "spot_advisor": {"us-east-1": {"Linux": {"c5.large": {"s": 70, "r": 0}}}}
        }
        yield world


@pytest.mark.parametrize("request_", [ALL_REGIONS, ONE_REGION], ids=["all regions", "one region"])
def test_without_credentials_one_task_says_how_to_set_them_and_the_public_file_is_fetched(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch, request_: FetchRequest
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    source = aws.source()
    public = ["public price list"] * len(request_.regions) or ["on-demand price pages"]
    assert [task.what for task in source.tasks(request_)] == [
        "interruption buckets",
        *public,
        "account",
    ]
    found = aws.pull("interruption buckets", request_, source).all.interruptions
    assert [one.measure for one in found] == ["monthly-bucket", "saving"]
    error = aws.pull("account", request_, source).error
    assert isinstance(error, MissingCredentials)
    for cure in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "`aws configure`", "AWS_PROFILE"):
        assert cure in str(error)
    assert "\n" not in str(error)
    assert {request.path for request in aws.server.requests} == {ADVISOR_PATH}


@pytest.mark.parametrize(
    ("unset", "set_", "reason"),
    [
        ("AWS_SECRET_ACCESS_KEY", {}, "missing: AWS_SECRET_ACCESS_KEY"),
        ("AWS_ACCESS_KEY_ID", {"AWS_PROFILE": "research"}, "research"),
    ],
    ids=["half a key", "unknown profile"],
)
def test_half_a_key_or_an_unknown_profile_is_reported(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch, unset: str, set_: dict[str, str], reason: str
) -> None:
    monkeypatch.delenv(unset)
    for name, value in set_.items():
        monkeypatch.setenv(name, value)
    error = aws.pull("account", ALL_REGIONS).error
    assert isinstance(error, MissingCredentials)
    assert reason in str(error)
    assert "AWS_PROFILE" in str(error)


def test_an_expired_login_says_how_to_renew_it(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A profile that signs in through SSO, without a stored token."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "research")
    (tmp_path / "config").write_text(
        "[profile research]\nsso_start_url = https://127.0.0.1/start\nsso_region = us-east-1\n"
        "sso_account_id = 111122223333\nsso_role_name = Reader\n"
    )
    error = aws.pull("account", ALL_REGIONS).error
    assert isinstance(error, MissingCredentials)
    assert "aws sso login" in str(error)


def assume_a_role(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A profile that assumes a role with another profile's keys."""
    (tmp_path / "config").write_text(
        "[profile keys]\naws_access_key_id = AKIDLOOPBACK\naws_secret_access_key = loopback\n"
        "[profile research]\nsource_profile = keys\nrole_arn = "
        "arn:aws:iam::111122223333:role/reader\n"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "research")


def test_a_role_is_assumed_once_for_all_tasks(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assume_a_role(monkeypatch, tmp_path)
    tasks = aws.source().tasks(
        FetchRequest(NOW - DAY, NOW, ("us-east-1", "eu-west-1"), ("c5.large",))
    )
    assert [pulled(task).error for task in tasks] == [None] * len(tasks)
    assert len(aws.asked("AssumeRole")) == 1
    signed = [r for r in aws.server.requests if action_of(r) not in ("", "AssumeRole")]
    assert len(signed) >= 8
    assert not [r for r in signed if "AKIDLOOPBACK" in r.headers["authorization"]]


def test_a_role_that_may_not_be_assumed_means_missing_credentials(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assume_a_role(monkeypatch, tmp_path)
    refusal = (
        b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not authorized to assume "
        b"reader</Message></Error>"
        b"</ErrorResponse>"
    )
    aws.breaks(AwsFault("/", Reply(403, refusal), action="AssumeRole", times=-1))
    error = aws.pull("account", ALL_REGIONS).error
    assert isinstance(error, MissingCredentials)
    assert "not authorized to assume reader" in str(error)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("RequestExpired", "aws sso login"),
        ("ExpiredToken", "aws sso login"),
        ("AuthFailure", "`aws configure`"),
        ("InvalidClientTokenId", "`aws configure`"),
    ],
)
def test_credentials_that_aws_rejects_are_missing_credentials(
    aws: AwsWorld, code: str, reason: str
) -> None:
    aws.breaks(AwsFault("/", ec2_error(code, status=401), action="DescribeRegions"))
    error = aws.pull("account", ALL_REGIONS).error
    assert isinstance(error, MissingCredentials)
    assert "ec2:DescribeRegions" in str(error)
    assert code in str(error)
    assert reason in str(error)


def test_regions_not_enabled_for_the_account_are_left_out(aws: AwsWorld) -> None:
    regions = "".join(
        f"<item><regionName>{name}</regionName><optInStatus>{status}</optInStatus></item>"
        for name, status in [
            ("eu-west-1", "opted-in"),
            ("af-south-1", "not-opted-in"),
            ("us-east-1", ""),
        ]
    )
    body = f"<DescribeRegionsResponse><regionInfo>{regions}</regionInfo></DescribeRegionsResponse>"
    aws.breaks(AwsFault("/", Reply(200, body.encode()), action="DescribeRegions"))
    tasks = aws.source().tasks(ALL_REGIONS)
    assert list(dict.fromkeys(task.region for task in tasks)) == ["-", "eu-west-1", "us-east-1"]


def test_regions_are_listed_in_the_configured_region(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-gov-west-1")
    aws.source().tasks(ALL_REGIONS)
    assert "/us-gov-west-1/ec2/" in aws.server.requests[0].headers["authorization"]


def test_each_service_can_have_its_own_endpoint(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """boto3's variable for one service takes precedence over the one for all services."""
    with serving(AwsCloud()) as price_list:
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", price_list.url)
        for task in aws.source().tasks(FetchRequest(NOW - DAY, NOW, ("us-east-1",), ("c5.*",))):
            assert pulled(task).error is None
        assert {action_of(request) for request in price_list.requests} == {"GetProducts"}
    assert {action_of(r) for r in aws.server.requests} == {
        "",
        "DescribeSpotPriceHistory",
        "DescribeInstanceTypes",
    }


def test_an_invalid_endpoint_is_reported_with_its_variable(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", "not an address")
    error = aws.pull("spot prices", ONE_REGION).error
    assert isinstance(error, RequestRejected)
    assert "AWS_ENDPOINT_URL_EC2" in str(error)
    assert "not an address" in str(error)


@pytest.mark.usefixtures("aws")
def test_a_server_that_does_not_run_fails_every_task(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(AwsCloud()) as gone:
        pass
    monkeypatch.setenv("AWS_ENDPOINT_URL", gone.url)
    source = AwsSource(
        AwsSettings(
            spot_advisor_url=gone.url, max_attempts=2, timeout_seconds=5, backoff_seconds=0.001
        )
    )
    for task in source.tasks(ONE_REGION):
        error = pulled(task).error
        assert isinstance(error, NoAnswer), task.what
        assert gone.url in str(error)


def test_no_secret_is_printed(aws: AwsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "open-sesame")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-sesame")
    reason = "the string to sign was open-sesame token-sesame"
    aws.breaks(
        AwsFault(
            "/",
            price_list_error("InvalidSignatureException", reason),
            action="GetProducts",
            times=-1,
        ),
        AwsFault("/", ec2_error("SignatureDoesNotMatch", reason), times=-1),
    )
    tasks = [task for task in aws.source().tasks(ONE_REGION) if task.region != "-"]
    errors = [str(pulled(task).error) for task in tasks]
    assert len(errors) == 3
    assert not [error for error in errors if "sesame" in error]


def test_importing_and_constructing_loads_no_sdk() -> None:
    code = (
        "import sys; from spotctl.clouds.aws.prices import AwsSource; AwsSource();"
        "print(*sorted({'boto3', 'botocore', 'httpx', 'stamina', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("\n", "")


def test_without_credentials_prices_on_demand_are_from_the_pages_of_the_larger_regions(
    aws: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    aws.cloud.pages = {
        "US East (N. Virginia)": {
            "p5.48xlarge": "55.0400000000",
            "c5.large": "0.0850000000",
            "x.none": "0.0",
        },
        "EU (Frankfurt)": {"c5.large": "0.0970000000", "broken": "?"},
    }

    (pages,) = (
        task for task in aws.source().tasks(ALL_REGIONS) if task.what == "on-demand price pages"
    )
    answer = pulled(pages)
    assert {(price.region, price.instance_type): price.price for price in answer.all.on_demand} == {
        ("us-east-1", "p5.48xlarge"): 55_040_000_000,
        ("us-east-1", "c5.large"): 85_000_000,
        ("eu-central-1", "c5.large"): 97_000_000,
    }
    assert isinstance(answer.error, IncompleteAnswer)
    monkeypatch.setattr(sys.modules["spotctl.clouds.aws.prices.source"], "_MAX_PAGE_BYTES", 30)
    assert "has more than 0 MB" in str(pulled(pages).error)
    monkeypatch.undo()
    monkeypatch.setattr(AwsCloud, "answer", lambda *_: Reply(200, b'{"regions": []}'))
    assert "has another format" in str(pulled(pages).error)
    monkeypatch.setattr(AwsCloud, "answer", lambda *_: Reply(404, b""))
    assert "has no price page of any region" in str(pulled(pages).error)
