"""Plans and refusals: random job files over all that decides a plan, drawn from fixed seeds."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.golden.scenario import Scenario, Step

PLANS = 190
BEGIN = datetime(2026, 6, 1, tzinfo=UTC)
DAYS = 10

ZONES = {
    "aws": (
        "us-east-1/us-east-1a",
        "us-east-1/us-east-1b",
        "us-west-2/us-west-2a",
        "eu-west-1/eu-west-1a",
    ),
    "gcp": (
        "us-central1/us-central1-a",
        "us-central1/us-central1-b",
        "europe-west4/europe-west4-a",
    ),
    "azure": ("eastus/eastus-1", "westus2/westus2-1"),
}
ON_DEMAND = {
    "aws": {
        "c5.2xlarge": 0.34,
        "c5.4xlarge": 0.68,
        "c4.8xlarge": 1.6,
        "p3.2xlarge": 3.06,
        "g4dn.2xlarge": 0.75,
    },
    "gcp": {
        "n2-standard-8": 0.39,
        "e2-standard-8": 0.27,
        "e2-standard-16": 0.54,
        "a2-highgpu-1g": 3.67,
    },
    "azure": {"Standard_D8s_v5": 0.38, "Standard_D16s_v5": 0.77, "Standard_D32s_v5": 1.54},
}
"""The dollars per hour around which the spot prices are drawn."""
REGIONS = {cloud: sorted({zone.split("/")[0] for zone in zones}) for cloud, zones in ZONES.items()}
LOCAL = ("c4.xlarge", "c4.2xlarge", "m4.4xlarge", "r3.2xlarge", "g2.2xlarge", "p2.xlarge")
STRATEGIES = (
    *(
        "auto",
        "on-demand",
        "standard+checkpoint",
        "standard+agileml",
        "fixed-bid:0.2",
        "price-capacity",
    ),
    *(
        "price-capacity:3",
        "lookahead",
        "lookahead:2",
        "proteus",
        "tierml",
        "deadline",
        "regions",
        "up-switch",
    ),
)


def price_files() -> dict[str, str]:
    """A history of ten days of spot prices on three clouds: calm at night, with spikes that
    evict."""
    draw = random.Random(57)
    rows = ["timestamp,cloud,region,zone,instance_type,product,spot_price"]
    for cloud, zones in ZONES.items():
        for zone in zones:
            region, name = zone.split("/")
            for kind, on_demand in ON_DEMAND[cloud].items():
                share = draw.uniform(0.2, 0.45)
                for hour in range(DAYS * 24 + 1):
                    spike = cloud == "aws" and draw.random() < 0.04
                    price = on_demand * (
                        draw.uniform(1.1, 2) if spike else share * draw.uniform(0.97, 1.04)
                    )
                    at = (BEGIN + timedelta(hours=hour)).strftime("%Y-%m-%dT%H:%M:%SZ")
                    rows.append(f"{at},{cloud},{region},{name},{kind},Linux/UNIX,{price:.4f}")
    return {"history.csv": "\n".join(rows) + "\n"}


def plan_scenarios() -> list[Scenario]:
    """Each plan as JSON, some as a text, and some as that of a launch."""
    return [_scenario(number) for number in range(PLANS)]


def _scenario(number: int) -> Scenario:
    draw = random.Random(number)
    together = draw.choice([1, 1, 1, 1, 2, 3])
    local = draw.random() < 0.4
    objective = draw.choice(
        ["", "", "min-cost", "max-throughput", "min-cost-slo", "makespan-within-budget"]
    )
    jobs = {f"job{i}.yaml": _job(draw, f"job{i}", local, objective) for i in range(together)}
    at = []
    if draw.random() < 0.6:
        first = datetime(2026, 1, 8, tzinfo=UTC) if local else BEGIN + timedelta(days=4)
        at = [
            "--at",
            (first + timedelta(minutes=draw.randrange(6 * 24 * 60))).strftime("%Y-%m-%dT%H:%M:%SZ"),
        ]
    words = [
        *jobs,
        *at,
        *(["--hours", draw.choice(["3h", "30m", "2d"])] if draw.random() < 0.15 else []),
    ]
    steps = [Step(("plan", *words, "--json"), name="as JSON")]
    if number % 3 == 0:
        steps.append(Step(("plan", *words, *draw.choice([(), ("--explain",)])), name="as a text"))
    if number % 10 == 0 and not at and "--hours" not in words:
        steps.append(Step(("launch", *words, "--dry-run", "--json"), name="of a launch"))
    files = {name: json.dumps(job, indent=1) + "\n" for name, job in jobs.items()}
    return Scenario(
        f"plans {number:03}", steps, files=files, home="" if local else "prices", together=True
    )


def _job(draw: random.Random, name: str, local: bool, objective: str) -> Mapping[str, Any]:
    clouds = ["local"] if local else draw.sample(sorted(ZONES), draw.choice([1, 1, 2, 3]))
    types = (
        sorted(LOCAL) if local else sorted(kind for cloud in clouds for kind in ON_DEMAND[cloud])
    )
    job: dict[str, Any] = {"name": name}
    resources: dict[str, Any] = {"clouds": clouds}
    if draw.random() < 0.45:
        _training(draw, job, resources, types)
    else:
        _command(draw, job, resources)
    if draw.random() < 0.6:
        resources["types"] = draw.choice(
            [
                draw.sample(types, draw.randint(1, min(3, len(types)))),
                {"vcpus": draw.choice(["4..16", "8", "..8"])},
                {"memory_gib": "30.."},
                {"accelerators": draw.choice(["K80", "V100", "A100:1", "T4"])},
            ]
        )
    if not local and draw.random() < 0.4:
        resources["regions"] = [draw.choice(REGIONS[cloud]) for cloud in clouds]
    if not local and "aws" in clouds and draw.random() < 0.25:
        resources["reservations"] = [
            {
                "id": "cr-0abc", "cloud": "aws", "zone": "us-east-1a", "type": "c5.4xlarge",
                "machines": draw.randint(1, 4), "price": draw.choice([0, "0.30 USD/h"]),
                "until": f"2026-06-{draw.randint(8, 25):02}T11:30Z",
            }
        ]  # fmt: skip
        if "regions" in resources and "us-east-1" not in resources["regions"]:
            resources["regions"].append("us-east-1")
    job["resources"] = resources
    _constraints(draw, job, objective)
    if local and draw.random() < 0.6:
        job["local"] = {"start": f"2026-01-{draw.randint(8, 26):02}T{draw.randrange(24):02}:10:00Z"}
        if draw.random() < 0.5:
            job["local"] |= {
                "warning": draw.choice(["2m", "10m"]),
                "unwarned": draw.choice([0, 0.34, 1]),
            }
    return job


def _training(
    draw: random.Random, job: dict[str, Any], resources: dict[str, Any], types: list[str]
) -> None:
    stop = draw.choice([{"clocks": 500}, {"minutes": 90}, {"clocks": 3000}, {"loss": 0.1}])
    job |= {"kind": "agileml", "app": draw.choice(["mf", "mlr", "lda"]), "stop": stop}
    resources["machines"] = draw.choice(["4..16", "1..8", "2..2", "..6", "8..64"])
    if draw.random() < 0.5:
        resources["reliable"] = draw.choice([{"machines": 1}, {"machines": 2}, {"machines": 0}])
    if draw.random() < 0.7:
        job["throughputs"] = {kind: round(draw.uniform(5, 90), 1) for kind in draw.sample(types, 2)}
    if draw.random() < 0.3:
        job["hours"] = draw.choice(["2h", "8h"])


def _command(draw: random.Random, job: dict[str, Any], resources: dict[str, Any]) -> None:
    job |= {"kind": "command", "run": "python train.py"}
    nodes = draw.choice([1, 1, 1, 2, 4, "2..4", "3..8"])
    if nodes != 1:
        job["nodes"] = nodes
        if draw.random() < 0.3 and resources["clouds"] == ["aws"]:
            resources["placement"] = "close"
    if isinstance(nodes, str) or draw.random() < 0.5:
        job["checkpoint"] = {
            "path": "s3://bucket/ckpt/" if "aws" in resources["clouds"] else "ckpt"
        }
        if draw.random() < 0.4:
            job["checkpoint"]["every"] = draw.choice(["auto", "15m", "2h"])
    if draw.random() < 0.85:
        job["hours"] = draw.choice(["20m", "2h", "5h", "10h"])


def _constraints(draw: random.Random, job: dict[str, Any], objective: str) -> None:
    if objective:
        job["objective"] = objective
    if objective == "min-cost-slo" or draw.random() < 0.35:
        job["deadline"] = draw.choice(["20m", "3h", "12h", "1d", "22:00", "30h"])
    if objective == "makespan-within-budget" or draw.random() < 0.35:
        job["budget"] = draw.choice(["0.05 USD", "1 USD", "8 USD", "25 USD", "400 USD"])
    if draw.random() < 0.7:
        strategy = draw.choice(STRATEGIES)
        if strategy not in ("deadline", "regions") or "deadline" in job or draw.random() < 0.2:
            job["strategy"] = strategy
    if draw.random() < 0.15 and job.get("strategy", "auto") in (
        "auto",
        "lookahead",
        "price-capacity",
    ):
        job["value_of_time"] = draw.choice(["1 USD/h", "20 USD/h"])
    if draw.random() < 0.2:
        job["most"] = draw.choice(["0.30 USD/h", "2 USD/h"])
