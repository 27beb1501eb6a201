"""What AWS refuses, as the contract says it: every code of the table, and codes that are documented
nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from spotctl.clouds.aws import calls
from spotctl.clouds.aws.calls import ABSENT, REFUSALS, code_of, error_of
from spotctl.clouds.aws.orders import STANDARD, pool_of
from spotctl.clouds.aws.provider import ACCESS, AwsProvider
from spotctl.clouds.aws.session import AwsSession, translated
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    PartlyListed,
    QuotaReached,
    Refusal,
    Throttled,
    TokenTaken,
    Unanswered,
    UnknownRefusal,
    in_contract,
)
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.home.errors import BadRequest, SpotctlError
from tests.servers.aws import AwsFault, ec2_error
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, SETTINGS, provider
from tests.spotctl.clouds.unreached import SteadyPrices, Unreached

ORDER = MachineRequest("t1", MARKET, 2, BID, 4_000_000_000 * 1_000_000, {"run": "a"})
CONTRACT = {
    NoCapacity,
    QuotaReached,
    Throttled,
    NotPermitted,
    LoginNeeded,
    NotFound,
    Unanswered,
    TokenTaken,
    NotHere,
    NotYet,
    BadRequest,
}
EXAMPLES = {
    "free.tier": "The specified instance type is not eligible for Free Tier.",
    "marketplace|accept terms": "In order to use this AWS Marketplace product you need to accept terms and subscribe.",
    "explicit deny": "User: u is not authorized to perform it with an explicit deny in a permissions boundary",
    "explicit deny in a (service|resource) c": "it is denied with an explicit deny in a service control policy",
    "iamInstanceProfile": "Value (p) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile",
}


def refusal(code: str, status: int = 400, words: str = "no") -> SpotctlError:
    """What a provider raises where EC2 answers RunInstances with a code."""
    answer = {
        "Error": {"Code": code, "Message": words},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    with (
        pytest.raises(SpotctlError) as caught,
        in_contract(partial(error_of, about="m")),
        translated("us-east-1", "ec2:RunInstances"),
    ):
        raise ClientError(answer, "RunInstances")  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("meaning", REFUSALS, ids=lambda one: one.code)
def test_every_documented_code_is_an_error_of_the_contract(meaning: Refusal) -> None:
    code = meaning.code
    words = next(
        (text for known, text in EXAMPLES.items() if meaning.text and known == meaning.text), ""
    )
    error = refusal(code, words=words or (EXAMPLES["iamInstanceProfile"] if meaning.text else "no"))
    assert type(error) is meaning.kind
    assert meaning.kind in CONTRACT
    assert str(error).startswith("m: aws/us-east-1: ec2:RunInstances: ")
    assert code in str(error)
    assert str(error).endswith(meaning.cure)
    assert "\n" not in str(error)
    assert code_of(error) == code
    assert meaning.source.startswith("https://")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("Invented", 400, UnknownRefusal),
        ("Invented.NotFound", 400, NotFound),
        ("Invented", 500, Unanswered),
        ("Invented", 503, Unanswered),
        ("Invented", 429, Throttled),
        ("ExpiredToken", 400, LoginNeeded),
        ("AccessDenied", 403, NotPermitted),
        ("InvalidClientTokenId", 403, LoginNeeded),
    ],
)
def test_an_unknown_code_keeps_the_words_of_the_cloud(
    code: str, status: int, kind: type[SpotctlError]
) -> None:
    error = refusal(code, status)
    assert type(error) is kind
    assert code in str(error)
    assert "\n" not in str(error)


def test_errors_without_an_answer() -> None:
    for cause, kind in (
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:9"), Unanswered),
        (NoCredentialsError(), NotPermitted),
    ):
        with (
            pytest.raises(kind),
            in_contract(error_of),
            translated("us-east-1", "ec2:RunInstances"),
        ):
            raise cause


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("InsufficientInstanceCapacity", 500, NoCapacity),
        ("SpotMaxPriceTooLow", 400, NoCapacity),
        ("MaxSpotInstanceCountExceeded", 400, QuotaReached),
        ("VcpuLimitExceeded", 400, QuotaReached),
        ("RequestLimitExceeded", 503, Throttled),
        ("UnauthorizedOperation", 403, NotPermitted),
        ("PendingVerification", 400, NotPermitted),
        ("RequestExpired", 400, NotPermitted),
        ("OptInRequired", 400, NotPermitted),
        ("Unsupported", 400, NotFound),
        ("InternalError", 500, Unanswered),
    ],
)
def test_a_refused_purchase_raises_what_the_contract_says(
    ec2: Ec2, code: str, status: int, kind: type[SpotctlError]
) -> None:
    ec2.server.faults.append(
        AwsFault("/", ec2_error(code, status=status), action="RunInstances", times=9)
    )
    with pytest.raises(kind, match=f"aws/us-east-1/us-east-1a/c5.large: .*{code}"):
        provider().create(ORDER)
    assert not ec2.machines()


@pytest.mark.parametrize(
    ("type_", "bid", "code"),
    [
        ("c5.large", BID, "L-34B43A08"),
        ("c5.large", None, "L-1216C47A"),
        ("m6g.large", None, "L-1216C47A"),
        ("g4dn.xlarge", BID, "L-3819A6DF"),
        ("p5.48xlarge", None, "L-417A185B"),
    ],
)
def test_a_reached_quota_says_which_and_how_to_raise_it(
    ec2: Ec2, type_: str, bid: int | None, code: str
) -> None:
    ec2.market.quotas.update(dict.fromkeys(ec2.market.quotas, 1.0))
    with pytest.raises(
        QuotaReached,
        match=f"request-service-quota-increase --region us-east-1 .*--quota-code {code}",
    ):
        provider().create(replace(ORDER, market=replace(MARKET, instance_type=type_), bid=bid))


def test_quotas_of_spot_machines_are_those_of_their_families(ec2: Ec2) -> None:
    ec2.market.quotas.update({"L-34B43A08": 5.0, "L-1216C47A": 7.0})
    quota, on_demand = provider().quotas("us-east-1", {"c5.large", "m6g.large", "zz9.large"})
    assert (str(quota), quota.covers("aws", "us-east-1", "c6gn")) == (
        "aws/us-east-1/a+c+d+h+i+im+is+m+r+t+z=5 vCPUs",
        True,
    )
    assert (on_demand.amount, on_demand.spot, on_demand.family) == (7, False, quota.family)


def test_the_newest_gpus_have_a_quota_of_spot_machines_of_their_own(ec2: Ec2) -> None:
    ec2.market.quotas.update({"L-7212CCBC": 8.0, "L-C4BD4855": 192.0, "L-417A185B": 96.0})
    # AWS names no quota of spot machines for P6.
    stated = provider().quotas("us-east-1", {"p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge"})
    assert [(quota.name, quota.amount) for quota in stated] == [
        ("aws/us-east-1/p2+p3+p3dn+p4d+p4de", 8),
        ("aws/us-east-1/p on demand", 96),
        ("aws/us-east-1/p5+p5e+p5en", 192),
    ]
    covered = [
        (quota.covers("aws", "us-east-1", "p4d"), quota.covers("aws", "us-east-1", "p5en"))
        for quota in stated
    ]
    assert covered == [(True, False), (True, True), (False, True)]


def test_an_account_without_the_role_of_spot_machines_is_told_once_how_to_make_it(ec2: Ec2) -> None:
    code = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
    ec2.server.faults.append(
        AwsFault("/", ec2_error(code, status=400), action="RunInstances", times=9)
    )
    with pytest.raises(
        NotPermitted, match=r"create-service-linked-role --aws-service-name spot\.amazonaws\.com"
    ):
        provider().create(ORDER)


def test_missing_capacity_is_an_answer_of_the_server_and_asked_for_once(ec2: Ec2) -> None:
    """EC2 answers with status 500, as for its own failures, which the SDK repeats."""
    ec2.market.capacity[MARKET.zone, MARKET.instance_type] = 0
    with pytest.raises(NoCapacity, match="InsufficientInstanceCapacity"):
        provider().create(ORDER)
    assert ec2.calls()["RunInstances"] == 1


def test_a_full_quota_of_one_family_leaves_those_of_others(ec2: Ec2) -> None:
    ec2.market.quotas["L-34B43A08"] = 4.0
    here = provider()
    here.create(ORDER)
    with pytest.raises(QuotaReached):
        here.create(replace(ORDER, token="t2"))
    here.create(replace(ORDER, token="t3", bid=None))
    here.create(
        replace(ORDER, token="t4", count=1, market=replace(MARKET, instance_type="g4dn.xlarge"))
    )


@pytest.mark.parametrize(
    ("type_", "pool"),
    [
        ("p4d.24xlarge", "P2, P3 and P4"),
        ("p5.48xlarge", "P5"),
        ("p5en.48xlarge", "P5"),
        ("inf2.xlarge", "Inf"),
        ("im4gn.large", STANDARD.name),
        ("trn1.2xlarge", "Trn"),
        ("u-6tb1.metal", "High Memory"),
        ("hpc7a.96xlarge", "HPC"),
        ("p6-b200.48xlarge", "P6"),
        ("zz9.large", ""),
    ],
)
def test_families_share_quotas(type_: str, pool: str) -> None:
    found = pool_of(type_)
    assert (found.name if found else "") == pool


def test_a_bid_below_the_price_has_no_machine(ec2: Ec2) -> None:
    ec2.set_spot_price("us-east-1a", "c5.large", 0.2)
    with pytest.raises(NoCapacity, match=r"SpotMaxPriceTooLow.*raise the maximum price"):
        provider().create(ORDER)


def test_a_refused_list_does_not_look_empty(ec2: Ec2) -> None:
    here = provider()
    here.create(ORDER)
    for code, kind in (
        ("RequestLimitExceeded", Throttled),
        ("UnauthorizedOperation", NotPermitted),
    ):
        ec2.server.faults.append(
            AwsFault(
                "/",
                ec2_error(code, status=503 if kind is Throttled else 403),
                0,
                2,
                0,
                "DescribeInstances",
                "us-west-2",
            )
        )
        with pytest.raises(PartlyListed) as listed:
            here.list({})
        assert isinstance(listed.value.__cause__, kind)
        assert (len(listed.value.listed), listed.value.parts) == (2, ("aws:us-west-2:",))
        ec2.server.faults.clear()
    assert len(here.list({})) == 2


def test_a_silent_region_delays_the_others_for_a_while_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(calls, "REGION_SECONDS", 3.0)
    over = Event()

    def listed(region: str) -> Sequence[str]:
        if region == "us-west-2":
            over.wait()
        return (region,)

    with pytest.raises(PartlyListed, match="aws: no answer within 3 s") as found:
        calls.in_each(["eu-west-1", "us-west-2", "us-east-1"], listed)
    over.set()
    assert (found.value.listed, found.value.parts) == (
        ("eu-west-1", "us-east-1"),
        ("aws:us-west-2:",),
    )


def test_codes_of_what_is_gone_are_those_that_say_so() -> None:
    assert all("NotFound" in code or code.endswith((".Malformed", ".Unknown")) for code in ABSENT)


def test_without_credentials_nothing_is_asked(ec2: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    fresh = AwsProvider(
        AwsSession(ACCESS),
        SETTINGS,
        cast("RemoteAgents", Unreached()),
        SteadyPrices((MARKET,), 10**7),
    )
    with pytest.raises(NotPermitted, match=r"no credentials found; set AWS_ACCESS_KEY_ID"):
        fresh.list({})
    assert not ec2.server.requests


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "ExpiredTokenException"])
def test_expired_credentials_are_named(ec2: Ec2, code: str) -> None:
    ec2.server.faults.append(AwsFault("/", ec2_error(code), times=9))
    for call in (
        lambda: provider().list({}),
        lambda: provider().create(ORDER),
        lambda: provider().resources({}),
    ):
        with pytest.raises(LoginNeeded, match=code):
            call()
    assert not ec2.machines()


def test_a_new_login_is_seen_by_the_next_call(
    ec2: Ec2, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`aws sso login` and its like write files; the process that waits for them goes on."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    keys = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))

    def sign_in(key: str) -> None:
        keys.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n")

    sign_in("FIRST")
    here = AwsProvider(
        AwsSession(ACCESS),
        SETTINGS,
        cast("RemoteAgents", Unreached()),
        SteadyPrices((MARKET,), 10**7),
    )
    here.list({})
    ec2.server.faults.append(AwsFault("/", ec2_error("RequestExpired"), times=9))
    with pytest.raises(LoginNeeded):
        here.list({})
    ec2.server.faults.clear()
    sign_in("SECOND")
    before = len(ec2.server.requests)
    here.list({})
    news = ec2.server.requests[before:]
    assert news
    assert all("Credential=SECOND/" in request.headers["authorization"] for request in news)
