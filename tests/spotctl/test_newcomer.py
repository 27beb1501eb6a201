"""The first minute without any account, against servers that serve the public lists in their real
form.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import NonCallableMock

import pytest
from google.auth.credentials import Credentials

from pricing_data.units import DAY
from spotctl.clouds.errors import ApiCall
from spotctl.clouds.gcp.cloud import GcpSettings
from spotctl.clouds.gcp.session import GcpSession
from tests.pricing_data.sources.catalog_rows import (
    AWS_COLUMNS,
    GCP_COLUMNS,
    aws_row,
    csv_of,
    gcp_gpus,
    gcp_row,
)
from tests.servers.aws import ADVISOR_PATH, AwsWorld, bulk_list, running_aws
from tests.servers.azure import RETAIL, AzureWorld, retail_item, running_azure
from tests.servers.gcp import Gcp, sku
from tests.servers.loopback import LoopbackServer, serving
from tests.servers.price_catalog import PriceCatalog
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

ROOT = Path(__file__).parents[2]
NOW = time.time_ns() // 1_000_000_000 * 1_000_000


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "no-gcloud"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsWorld]:
    with running_aws(monkeypatch) as world:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        monkeypatch.setenv("SPOTCTL_AWS_PRICE_LIST_URL", world.server.url)
        monkeypatch.setenv("SPOTCTL_AWS_SPOT_ADVISOR_URL", world.server.url + ADVISOR_PATH)
        world.cloud.advisor_changed = time.strftime(
            "%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 3600)
        )
        machines = {"p4d.24xlarge": {"s": 62, "r": 3}, "c5.large": {"s": 50, "r": 0}}
        systems = {"Linux": machines, "Windows": {"c5.large": {"s": 10, "r": 0}}}
        world.cloud.advisor = {"spot_advisor": {"us-east-1": systems}}
        world.cloud.bulk["us-east-1"] = bulk_list(
            "us-east-1",
            {"Instance Type": "p4d.24xlarge", "PricePerUnit": "30.0000000000"},
            {"Instance Type": "p4d.24xlarge", "PricePerUnit": "33.0", "Tenancy": "Dedicated"},
            {
                "Instance Type": "p4d.24xlarge",
                "PricePerUnit": "0.0",
                "CapacityStatus": "AllocatedCapacityReservation",
            },
            {"Instance Type": "p4d.24xlarge", "PricePerUnit": "18.0", "TermType": "Reserved"},
            {
                "Instance Type": "p4d.24xlarge",
                "PricePerUnit": "32.0",
                "Pre Installed S/W": "SQL Std",
            },
            {"Instance Type": "c5.large", "PricePerUnit": "0.085"},
            {"Instance Type": "c5.large", "PricePerUnit": "0.177", "Operating System": "Windows"},
        )
        yield world


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureWorld]:
    with running_azure(monkeypatch) as world:
        size, start = "Standard_ND96asr_v4", NOW - 40 * DAY
        world.cloud.retail += [
            retail_item("eastus", size, 27_197_000_000, start),
            retail_item("eastus", size, 10_878_800_000, start, kind="Spot"),
        ]
        monkeypatch.setenv("SPOTCTL_AZURE_RETAIL_PRICES_URL", world.server.url + RETAIL)
        yield world


@pytest.mark.usefixtures("aws", "azure")
def test_from_nothing_to_the_cheapest_place_for_8_a100() -> None:
    fetched = spotctl("prices", "fetch", "--region", "us-east-1", "--region", "eastus")
    assert fetched.code == 0, fetched.err
    announced = fetched.err.splitlines()[0]
    assert announced.startswith("asks aws (1 region), azure (1 region): about ")
    for word in ("requests", "MB to download", "rows", "MB of disk", "minutes"):
        assert word in announced
    assert announced.endswith("(narrow it with --type)")
    every = spotctl("prices", "best", "--gpu", "A100:8", "--json").json["offers"]
    offers = [one for one in every if not one["market"].startswith("gcp/")]
    assert len(every) > len(offers), "machines of Google Cloud are estimated by shipped lists"
    assert [(one["market"], one["usd_per_hour"], one["estimated"]) for one in offers] == [
        ("azure/eastus/-/Standard_ND96asr_v4", 10.8788, False),
        ("aws/us-east-1/-/p4d.24xlarge", pytest.approx(30 * 0.38), True),
    ]
    assert offers[1]["on_demand"] == 30
    assert offers[1]["band"] == "15-20%"
    assert offers[1]["eviction"] is not None
    assert "(estimated)" in spotctl("prices", "best", "--gpu", "A100:8").out


def test_an_api_key_brings_google_clouds_prices_of_shipped_machines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    iowa = ["us-central1"]
    rates = [
        sku("A2 Instance Core running in Americas", 31_611_000, iowa),
        sku("A2 Instance Ram running in Americas", 4_237_000, iowa, "GiBy.h"),
        sku("Nvidia Tesla A100 GPU running in Americas", 2_933_908_000, iowa),
        sku("Spot Preemptible A2 Instance Core running in Americas", 10_000_000, iowa),
        sku("Spot Preemptible A2 Instance Ram running in Americas", 1_000_000, iowa, "GiBy.h"),
        sku(
            "Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas",
            1_000_000_000,
            iowa,
        ),
    ]
    monkeypatch.setenv("GOOGLE_API_KEY", "a-key")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    with serving(Gcp(skus=rates)) as server:
        monkeypatch.setenv("SPOTCTL_GCP_BILLING_ENDPOINT", server.url)
        fetched = spotctl("prices", "fetch", "--cloud", "gcp", "--json")
        assert (fetched.code, len(fetched.json["tasks"])) == (0, 1), fetched.err
        assert all("a-key" not in str(request) for request in server.requests), "a key in clear"
    offers = spotctl("prices", "best", "--cloud", "gcp", "--gpu", "A100:8", "--json").json["offers"]
    (offer,) = offers
    assert offer["market"] == "gcp/us-central1/-/a2-highgpu-8g"
    assert offer["usd_per_hour"] == pytest.approx(96 * 0.01 + 680 * 0.001 + 8)
    assert offer["on_demand"] == pytest.approx(96 * 0.031611 + 680 * 0.004237 + 8 * 2.933908)
    assert not offer["estimated"]


def test_the_api_key_is_sent_to_google_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the SDK's client would send, without a network."""
    monkeypatch.setenv("GOOGLE_API_KEY", "a-key")
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    given: list[dict[str, str]] = []

    def client(credentials: Credentials, **_: object) -> nullcontext[NonCallableMock]:
        headers: dict[str, str] = {}
        credentials.apply(headers)  # type: ignore[no-untyped-call]
        given.append(headers)
        return nullcontext(NonCallableMock(list_skus=lambda **_: []))

    monkeypatch.setattr("google.cloud.billing_v1.CloudCatalogClient", client)
    with GcpSession(GcpSettings()) as session:
        assert list(session.price_list(ApiCall("price list", ""), "services/x")) == []
    assert given == [{"x-goog-api-key": "a-key"}]


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    gcp = csv_of(GCP_COLUMNS, [gcp_row(), gcp_gpus(), gcp_row("n2-standard-8", "8.0,32.0")])
    aws = csv_of(AWS_COLUMNS, [aws_row(), aws_row("c5.large", ",", "2.0,4.0", "0.085", "")])
    with serving(PriceCatalog({(9, "aws"): aws, (9, "gcp"): gcp, (4, "azure"): aws})) as server:
        monkeypatch.setenv("SPOTCTL_PRICE_CATALOG_URL", server.url)
        yield server


@pytest.mark.usefixtures("aws", "azure")
def test_todays_prices_of_all_clouds_need_no_account(catalog: LoopbackServer) -> None:
    fetched = spotctl(
        "prices", "fetch", "--region", "us-east-1", "--region", "eastus", "--region", "us-central1"
    )
    assert fetched.code == 0, fetched.err
    assert "aws: SkyPilot catalog v9 of 20" in fetched.err
    assert "Z: 1 spot price; 1 row without a spot price\n" in fetched.err
    assert "gcp: SkyPilot catalog v9 of 20" in fetched.err
    assert "300 MB" not in fetched.err

    offers = spotctl("prices", "best", "--gpu", "A100:8", "--json").json["offers"]
    assert [(one["market"], one["usd_per_hour"], one["on_demand"]) for one in offers] == [
        ("azure/eastus/-/Standard_ND96asr_v4", 10.8788, 27.197),
        ("aws/us-east-1/use1-az1/p4d.24xlarge", 11.25, 30.5),
        ("gcp/us-central1/-/a2-highgpu-8g", 12.0, 30.0),
    ]
    assert [one["source"] for one in offers] == [
        "spot price",
        "SkyPilot catalog",
        "SkyPilot catalog",
    ]
    asked = len(catalog.requests)
    again = spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1")
    assert (again.code, "has not changed" in again.err) == (0, True), again.err
    assert len(catalog.requests) > asked


def written(folder: Path, clouds: str, gpu: str) -> str:
    """A job for a GPU, whose path is returned."""
    file = folder / "job.yaml"
    (folder / "train.py").write_text("print()")
    file.write_text(
        "name: big\nkind: command\nrun: python train.py\nhours: 20h\n"
        f"resources: {{clouds: [{clouds}], gpu: '{gpu}'}}\n"
    )
    return str(file)


@pytest.mark.usefixtures("aws", "azure", "catalog", "few_windows")
def test_a_plan_for_any_gpu_names_the_accounts_that_its_offers_need(folder: Path) -> None:
    job = written(folder, "aws, gcp, azure", "A100:8")
    refused = spotctl("plan", job)
    assert (refused.code, "prices fetch" in refused.err) == (2, True)

    places = ("--region", "us-east-1", "--region", "us-central1", "--region", "eastus")
    assert spotctl("prices", "fetch", *places).code == 0
    planned = spotctl("plan", job, "--json")
    assert planned.code == 0, planned.err
    plan = planned.json
    # An eviction would lose all work of this job: the cheapest machine on demand of all clouds.
    (choice,) = plan["choice"]
    cheapest = "azure/eastus/-/Standard_ND96asr_v4", 27.197
    assert (choice["market"], choice["price"]) == cheapest
    accounts = {one["cloud"]: one for one in plan["accounts"]}
    assert accounts.keys() == {"aws", "gcp", "azure"}
    assert accounts["aws"]["markets"] == ["aws/us-east-1/use1-az1/p4d.24xlarge"]
    assert not any(one["set_up"] for one in accounts.values())
    assert "az login" in accounts["azure"]["setup"]
    for one in accounts.values():
        page, _, part = one["guide"].partition("#")
        headings = re.findall("^## (.*)$", (ROOT / page).read_text(), re.M)
        assert part in [heading.lower().replace(" ", "-") for heading in headings]

    said = spotctl("plan", job)
    for words in ("an account of AWS", "an account of Google Cloud", "an account of Azure"):
        assert words in said.err
    shown = " ".join(said.out.split())
    assert "on spot machines, one would lose all work, as the job names no checkpoint" in shown
    assert "less by this estimate" not in shown


@pytest.mark.usefixtures("aws", "azure", "few_windows")
@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
@pytest.mark.parametrize("strategy", ["auto", "lookahead"])
def test_machines_without_a_spot_price_are_planned_on_demand(
    folder: Path, monkeypatch: pytest.MonkeyPatch, azure: AzureWorld, cloud: str, strategy: str
) -> None:
    """Nothing is bid for what is not sold as spot, and nothing evicts it."""
    rows = {
        (9, "aws"): csv_of(
            AWS_COLUMNS, [aws_row(spot=""), aws_row(spot="", place="us-east-1,use1-az2")]
        ),
        (9, "gcp"): csv_of(GCP_COLUMNS, [gcp_row(), gcp_gpus(spot="")]),
    }
    azure.cloud.retail[:] = [one for one in azure.cloud.retail if "Spot" not in one["meterName"]]
    with serving(PriceCatalog(rows)) as server:
        monkeypatch.setenv("SPOTCTL_PRICE_CATALOG_URL", server.url)
        places = ("--region", "us-east-1", "--region", "us-central1", "--region", "eastus")
        assert spotctl("prices", "fetch", "--cloud", cloud, *places).code == 0
        job = Path(written(folder, cloud, "A100:8"))
        job.write_text(f"{job.read_text()}strategy: {strategy}\n")
        planned = spotctl("plan", str(job), "--json")
        assert planned.code == 0, planned.err
        (choice,) = planned.json["choice"]
        assert (choice["bid"], choice["beta"]) == (None, 0)
        listed = {"aws": 30.5, "gcp": 30.0, "azure": 27.197}
        assert choice["price"] == listed[cloud]


def test_what_is_sold_neither_as_spot_nor_on_demand_is_not_planned(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [gcp_row("a3-ultragpu-8g", "224.0,2952.0"), gcp_gpus("H200,8", "70.0", "")]
    with serving(PriceCatalog({(9, "gcp"): csv_of(GCP_COLUMNS, rows)})) as server:
        monkeypatch.setenv("SPOTCTL_PRICE_CATALOG_URL", server.url)
        spotctl("prices", "fetch", "--cloud", "gcp", "--region", "us-central1")
        refused = spotctl("plan", written(folder, "gcp", "H200:8"))
        assert refused.code == 3
        assert "a3-ultragpu-8g is not sold on demand, and has no spot price there" in refused.err


@pytest.mark.usefixtures("few_windows")
def test_a_plan_says_what_no_order_would_get(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list price at which nothing is sold, and the network between machines."""
    rows = [gcp_row("a3-ultragpu-8g", "224.0,2952.0"), gcp_gpus("H200,8", "70.0", "30.0")]
    with serving(PriceCatalog({(9, "gcp"): csv_of(GCP_COLUMNS, rows)})) as server:
        monkeypatch.setenv("SPOTCTL_PRICE_CATALOG_URL", server.url)
        spotctl("prices", "fetch", "--cloud", "gcp", "--region", "us-central1")
        job = Path(written(folder, "gcp", "H200:8"))
        planned = spotctl("plan", job)
        said = " ".join(planned.out.split())
        assert (
            "a3-ultragpu-8g is not sold on demand, so the job can only wait for spot" in planned.err
        )
        # 20 hours of spot machines, or more: a play that got none in time costs something, too.
        assert "cost between $653.79 if spot holds and" in said
        assert "a3-ultragpu-8g is not sold at that price, only as spot or reserved" in said
        assert "over TCP" not in said
        job.write_text(job.read_text() + "nodes: 2\n")
        said = " ".join(spotctl("plan", job).out.split())
        assert "over TCP: a3-ultragpu-8g has GPUDirect, which is not set up" in said

        # No machine on demand saves a deadline, or does the work in place of spot machines.
        alone = job.read_text()
        for line, cure in (
            ("deadline: 21h", "a3-ultragpu-8g is not sold on demand: allow a type that is"),
            ("strategy: on-demand", "a3-ultragpu-8g is not sold so; allow a type that is"),
        ):
            job.write_text(f"{alone}{line}\n")
            refused = spotctl("plan", job)
            assert (refused.code, cure in refused.err) == (3, True), refused.err


@pytest.mark.usefixtures("aws", "azure", "catalog", "few_windows")
@pytest.mark.parametrize(
    ("cloud", "region", "words"),
    [
        ("aws", "us-east-1", "set up the account (run aws configure, or set AWS_PROFILE"),
        ("gcp", "us-central1", "gcloud auth application-default login"),
        ("azure", "eastus", "AZURE_SUBSCRIPTION_ID"),
    ],
)
def test_a_launch_without_an_account_is_refused_in_one_line(
    folder: Path, cloud: str, region: str, words: str
) -> None:
    job = written(folder, cloud, "A100:8")
    spotctl("prices", "fetch", "--cloud", cloud, "--region", region)
    ended = spotctl("launch", job, "--yes", "--attached")
    (line,) = [line for line in ended.err.splitlines() if line.startswith("spotctl:")]
    assert (ended.code, words in line) == (5, True), ended.err
    assert spotctl("status", "--json").json["jobs"] == []


@pytest.mark.usefixtures("azure")
def test_azures_list_is_complete_without_an_account() -> None:
    ended = spotctl("prices", "fetch", "--cloud", "azure", "--region", "eastus")
    assert ended.code == 0
    assert "AZURE_SUBSCRIPTION_ID" in ended.err
    again = spotctl("prices", "fetch", "--cloud", "azure", "--region", "eastus", "--json").json[
        "tasks"
    ]
    assert sum(task["added"] for task in again) == 0, "an unchanged fetch adds no rows"
    shown = spotctl("prices", "show", "azure/eastus/-/Standard_ND96asr_v4", "--json").json
    assert (shown["events"], shown["coverage"]) == (1, 1.0)
    assert shown["age_seconds"] < 3600


@pytest.mark.usefixtures("aws")
def test_only_linux_is_fetched_unless_others_are_named() -> None:
    spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1")
    linux = spotctl("prices", "best", "--os", "windows", "--json").json["offers"]
    assert linux == []
    spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1", "--os", "windows")
    (windows,) = spotctl("prices", "best", "--os", "windows", "--json").json["offers"]
    assert windows["usd_per_hour"] == pytest.approx(0.177 * 0.9)


def test_a_mistyped_region_is_named(approved: Approved) -> None:
    for mistyped in ("us-est-1", "us-esat-1", "us-wset-2", "us-centrall1", "westeuropa"):
        for command in (("prices", "fetch"), ("lab", "prices", "ls")):
            approved(spotctl(*command, "--region", mistyped))


def test_every_source_says_what_it_needs() -> None:
    listed = spotctl("prices", "fetch", "--sources", "--json").json["sources"]
    free = {one["cloud"] for one in listed if not one["needs"]}
    assert free == {"aws", "azure", "gcp", "runpod", "files"}
    assert "no account" in spotctl("prices", "fetch", "--sources").out


def test_a_list_in_another_form_is_reported_in_one_line(aws: AwsWorld) -> None:
    aws.cloud.bulk["us-east-1"] = b"<html>not a list</html>"
    ended = spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-1", "--json")
    failures = [
        task["failure"] for task in ended.json["tasks"] if task["what"] == "public price list"
    ]
    assert "has another format" in failures[0]
    unknown = spotctl("prices", "fetch", "--cloud", "aws", "--region", "us-east-9", "--json").json[
        "tasks"
    ]
    assert any("does not exist" in (task["failure"] or "") for task in unknown)
