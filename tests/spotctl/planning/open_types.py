"""Plans six jobs that name no machine types, and keeps the table of docs/internals/benchmarks.md:
`python -m tests.spotctl.planning.open_types` prints it and writes it there.

On-demand prices are list prices of 2025 (us-east-1, us-central1, eastus), of a few types that a
choice by price alone could fall for. Spot prices are made up: 30% of these everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice, completed, shipped_types
from pricing_data.market import Market
from pricing_data.units import parse_usd
from spotctl.files.job.reader import loads
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job, JobPlan
from tests.spotctl.planning.worlds import BEGIN, NOW, flat, table_of

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "benchmarks.md"
_BEGIN, _END = "| job | AWS | Google Cloud | Azure |", "\n\n"
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
    "name: job\nkind: agileml\napp: mf\nstop: {{minutes: 90}}\nresources: {{clouds: [{cloud}], "
    "machines: 8{more}}}\n"
)
JOBS = {
    "a command": (COMMAND, ""),
    "a training of 8 machines": (TRAINING, ""),
    "an A100": (COMMAND, ", types: {accelerators: A100}"),
    "an H100": (COMMAND, ", types: {accelerators: H100}"),
    "a T4": (COMMAND, ", types: {accelerators: 'T4:1'}"),
    "on ARM": (COMMAND, ", arch: arm64"),
}


@cache
def snapshot() -> MarketSnapshot:
    """The types of the list with their prices."""
    shipped = {machine.name: machine for machine in shipped_types()}
    machines, prices, histories = [], [], []
    for line in LISTED.strip().splitlines():
        cloud, name, *size, usd = line.split() if ":" not in line else line.split()[:-1]
        gpu, _, gpus = line.split()[-1].partition(":") if ":" in line else ("", "", "0")
        given = (
            InstanceType(cloud, name, int(size[0]), float(size[1]), gpu or None, int(gpus))
            if size
            else None
        )
        machines.append(given or shipped.get(name) or InstanceType(cloud, name, 8, 61.0, "V100", 1))
        region, zone = PLACES[cloud]
        prices.append(OnDemandPrice(cloud, region, name, "linux", BEGIN, parse_usd(usd), "a list"))
        histories.append(flat(Market(cloud, region, zone, name), parse_usd(usd) * 3 // 10))
    return MarketSnapshot.of(
        table_of(histories), Catalog(tuple(completed(machines)), tuple(prices)), NOW
    )


@cache
def planned(text: str, cloud: str, more: str) -> JobPlan:
    """The plan of a job on one cloud; the tests and the page ask for the same ones."""
    spec = loads(text.format(cloud=cloud, more=more), Path(__file__))
    return plan_jobs(PlanningFacts((Job(spec, None),), snapshot()))[0]


def table() -> str:
    """The choices, with what each machine has."""
    return "\n".join([_BEGIN, "| --- | --- | --- | --- |", *_rows()])


def _rows() -> Iterator[str]:
    for job, (text, more) in JOBS.items():
        choices = [_described(planned(text, cloud, more)) for cloud in PLACES]
        yield f"| {job} | {' | '.join(choices)} |"


def _described(plan: JobPlan) -> str:
    known = {machine.name: machine for machine in snapshot().machine if machine is not None}
    rents = [choice.rent for choice in plan.cost.choice]
    return "; ".join(
        f"{rent.machines} {_machine(known[rent.offer.market.instance_type])}" for rent in rents
    )


def _machine(machine: InstanceType) -> str:
    accelerator = f", {machine.accelerators} {machine.accelerator}" if machine.accelerator else ""
    return f"`{machine.name}` ({machine.vcpus} vCPUs, {machine.memory_gib:g} GiB{accelerator})"


def written(page: str) -> str:
    """The page with the table as it is now."""
    before, _, rest = page.partition(_BEGIN)
    return before + table() + _END + rest.partition(_END)[2]


def main() -> None:
    PAGE.write_text(written(PAGE.read_text()))
    print(table())


if __name__ == "__main__":
    main()
