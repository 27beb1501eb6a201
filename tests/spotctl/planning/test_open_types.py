"""What is planned for six jobs that name no machine types, on list prices of each cloud; spot costs 30% of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.machine_types import completed, shipped_types
from pricing_data.market import Market
from pricing_data.units import parse_usd
from spotctl.files.job.reader import loads
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.job import Job
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan_jobs import plan_jobs
from spotctl.planning.values import JobPlan
from tests.spotctl.planning.worlds import BEGIN, NOW, flat, table_of

PLACES = {"aws": ("us-east-1", "us-east-1a"), "gcp": ("us-central1", "-"), "azure": ("eastus", "-")}
LISTED = """
aws   t4g.nano                    0.0042
aws   t3.nano                     0.0052
aws   t3.small                    0.0208
aws   t3.large                    0.0832
aws   m1.small                    0.044
aws   m6g.medium                  0.0385
aws   c7g.large                   0.0725
aws   c7g.4xlarge                 0.58
aws   c6i.large                   0.085
aws   m6i.large                   0.096
aws   c6i.4xlarge                 0.68
aws   g4dn.xlarge                 0.526
aws   g5.xlarge                   1.006
aws   p3.2xlarge                  3.06
aws   p4d.24xlarge               21.957
aws   p5.48xlarge                55.04
gcp   e2-micro       2   1        0.0084
gcp   e2-small       2   2        0.0168
gcp   e2-medium      2   4        0.0335
gcp   t2a-standard-2 2   8        0.077
gcp   e2-standard-2  2   8        0.067
gcp   n2-standard-2  2   8        0.0971
gcp   e2-standard-16 16  64       0.536
gcp   g2-standard-4  4   16       0.7068   L4:1
gcp   a2-highgpu-1g  12  85       3.6735   A100:1
gcp   a3-highgpu-8g  208 1872    88.49     H100:8
gcp   n1-standard-4+1-nvidia-tesla-t4   4 15  0.54  T4:1
gcp   n1-standard-4+1-nvidia-tesla-v100 4 15  2.67  V100:1
azure Standard_B1s   1   1        0.0104
azure Standard_B2s   2   4        0.0416
azure Standard_A1_v2 1   2        0.043
azure Standard_D2_v3 2   8        0.0960
azure Standard_D2ps_v5 2 8        0.077
azure Standard_F2s_v2  2 4        0.0846
azure Standard_D2s_v5  2 8        0.0961
azure Standard_F16s_v2 16 32      0.677
azure Standard_NC4as_T4_v3 4 28   0.526    T4:1
azure Standard_NC6s_v3   6 112    3.06     V100:1
azure Standard_NC6       6 56     0.9      K80:1
azure Standard_NV36ads_A10_v5 36 440 3.2   A10:1
azure Standard_NC24ads_A100_v4 24 220 3.673 A100-80GB:1
azure Standard_NC40ads_H100_v5 40 320 6.98  H100:1
"""

COMMAND = "name: job\nkind: command\nrun: echo\nhours: 4h\nresources: {{clouds: [{cloud}]{more}}}\n"
TRAINING = (
    "name: job\nkind: agileml\napp: mf\nstop: {{minutes: 90}}\nresources: {{clouds: [{cloud}], machines: 8{more}}}\n"
)
JOBS = {
    "a command": (COMMAND, ""),
    "a training of 8 machines": (TRAINING, ""),
    "an A100": (COMMAND, ", types: {accelerators: A100}"),
    "an H100": (COMMAND, ", types: {accelerators: H100}"),
    "a T4": (COMMAND, ", types: {accelerators: 'T4:1'}"),
    "on ARM": (COMMAND, ", arch: arm64"),
}
CHOSEN = {
    "a command": ("c6i.large", "e2-standard-2", "Standard_F2s_v2"),
    # Types that cost the same per vCPU are mixed.
    "a training of 8 machines": ("c6i.large c6i.4xlarge", "e2-standard-2 e2-standard-16", "Standard_F2s_v2"),
    "an A100": ("p4d.24xlarge", "a2-highgpu-1g", "Standard_NC24ads_A100_v4"),
    "an H100": ("p5.48xlarge", "a3-highgpu-8g", "Standard_NC40ads_H100_v5"),
    "a T4": ("g4dn.xlarge", "n1-standard-4+1-nvidia-tesla-t4", "Standard_NC4as_T4_v3"),
    "on ARM": ("c7g.large", "t2a-standard-2", "Standard_D2ps_v5"),
}


def snapshot() -> MarketSnapshot:
    shipped = {machine.name: machine for machine in shipped_types()}
    machines, prices, histories = [], [], []
    for line in LISTED.strip().splitlines():
        cloud, name, *size, usd = line.split() if ":" not in line else line.split()[:-1]
        gpu, _, gpus = line.split()[-1].partition(":") if ":" in line else ("", "", "0")
        given = InstanceType(cloud, name, int(size[0]), float(size[1]), gpu or None, int(gpus)) if size else None
        machines.append(given or shipped.get(name) or InstanceType(cloud, name, 8, 61.0, "V100", 1))
        region, zone = PLACES[cloud]
        prices.append(OnDemandPrice(cloud, region, name, "linux", BEGIN, parse_usd(usd), "a list"))
        histories.append(flat(Market(cloud, region, zone, name), parse_usd(usd) * 3 // 10))
    return MarketSnapshot.of(table_of(histories), Catalog(tuple(completed(machines)), tuple(prices)), NOW)


def planned(text: str, cloud: str, more: str) -> JobPlan:
    spec = loads(text.format(cloud=cloud, more=more), Path(__file__))
    return plan_jobs(PlanningFacts((Job(spec, None),), snapshot()))[0]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("cloud", PLACES)
def test_a_job_without_types_gets_what_a_practitioner_would_take(job: str, cloud: str) -> None:
    text, more = JOBS[job]
    plan = planned(text, cloud, more)
    names = {choice.rent.offer.market.instance_type for choice in plan.choice}
    assert names == set(CHOSEN[job][list(PLACES).index(cloud)].split())


@pytest.mark.parametrize(
    ("cloud", "types", "problem"),
    [
        ("aws", "[t4g.nano]", "us-east-1a/t4g.nano: it is arm64, and the job x86_64"),
        ("aws", "[p3.2xlarge]", "p3.2xlarge: AWS's image has no driver for its V100; name an image that does"),
        ("azure", "[Standard_A1_v2]", "Standard_A1_v2: it boots only images of generation 1"),
        ("azure", "[Standard_NC6s_v3]", "Standard_NC6s_v3: its cloud has retired it"),
        ("gcp", "['*v100']", "tesla-v100: Google's image has no driver for its V100"),
    ],
)
def test_a_named_type_that_does_not_suit_is_refused_in_one_line(cloud: str, types: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refused:
        planned(COMMAND, cloud, f", types: {types}")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_of_several_named_types_those_that_do_not_suit_are_rejected_with_the_reason() -> None:
    plan = planned(COMMAND, "aws", ", types: [t4g.nano, c6i.large]")
    assert plan.choice[0].rent.offer.market.instance_type == "c6i.large"
    rejected = {market.market.instance_type: market.why for market in plan.cost.rejected}
    assert "it is arm64" in rejected["t4g.nano"]


def test_burstable_types_that_a_job_wants_are_compared_by_their_baseline() -> None:
    plan = planned(COMMAND, "aws", ", burstable: true")
    assert plan.choice[0].rent.offer.market.instance_type == "c6i.large"
    plan = planned(COMMAND, "aws", ", types: ['t3.*']")
    (choice,) = plan.choice
    assert (choice.rent.offer.market.instance_type, choice.rent.offer.nu) == ("t3.small", 0.4)


def test_nothing_that_suits_is_an_error_with_a_reason() -> None:
    with pytest.raises(SpotctlError, match="none of the 16 matching markets can be used"):
        planned(COMMAND, "aws", ", memory: 4 TiB")
