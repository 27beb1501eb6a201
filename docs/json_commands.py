"""The commands whose `--json` the reference lists, what they read, and where the tables of those
without one are.

Each runs in a clone without an account. What needs a cloud is in `json_of_clouds.json`: an answer
of each such command, which the tests compare with what the command prints on a simulated cloud.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

JSON_COMMANDS = {
    "init first.yaml": "spotctl.cli.script_job:WRITTEN",
    "plan examples/quickstart.yaml --explain": "spotctl.show.plans.plan_answers:ANSWER",
    "launch examples/pytorch/job.yaml --dry-run": "spotctl.show.plans.plan_answers:ANSWER",
    "launch job.yaml --yes": "spotctl.show.runs.run_answers:RUN_END",
    "launch job.yaml --yes --fresh --json-lines": "spotctl.show.runs.run_answers:EVENT_LINE",
    "status": "spotctl.show.runs.status:ANSWER",
    "logs greeting": "spotctl.show.runs.run_answers:OUTPUT_LINE",
    "exec napping -- true": "spotctl.show.runs.run_answers:EXECUTED",
    "ssh napping": "spotctl.show.runs.run_answers:SSH",
    "resume napping --budget 9": "spotctl.show.runs.run_answers:RESUMED",
    "stop napping": "spotctl.show.runs.run_answers:STOPPED",
    "gc": "spotctl.show.runs.run_answers:ORPHANED",
    "report cost": "spotctl.show.costs.answers:REPORT",
    "report reconcile --bill bill.csv": "spotctl.show.costs.bills.views:AGREEMENT",
    "log check": "spotctl.show.runs.run_answers:LOG",
    "log repair": "spotctl.show.runs.run_answers:LOG",
    "nightly install job.yaml --at 02:00 --deadline 06:00 --scheduler cron": "spotctl.nightly.health:INSTALL",
    "nightly run greeting": "spotctl.nightly.reporting:NIGHT",
    "nightly ls": "spotctl.nightly.health:JOBS",
    "nightly rm greeting": "spotctl.nightly.health:REMOVED",
    "doctor": "spotctl.cli.doctor_checks:FINDINGS",
    "prices fetch --sources": "spotctl.show.prices.price_answers:SOURCES",
    "lab prices ls local/sim-east/*/c4.*": "spotctl.show.prices.price_answers:MARKETS",
    "prices show local/sim-east/sim-east-b/c4.2xlarge": "spotctl.show.prices.price_answers:MARKET",
    "lab prices ls local/sim-east/*/c4.* --stats": "spotctl.show.prices.price_answers:STATISTICS",
    "lab prices plot local/sim-east/*/c4.2xlarge --last 7d"
    " --out prices.svg": "spotctl.show.prices.price_answers:PICTURE",
    "lab prices ls --gaps": "spotctl.show.prices.price_answers:GAPS",
    "prices best --vcpus 8": "spotctl.lab.best.results:BEST",
    "lab prices egress aws/us-east-1 gcp/us-central1 --gb 500": "spotctl.show.prices.price_answers:EGRESS",
    "lab prices sql 'select market, max(usd_per_hour) as highest from prices group by 1"
    " limit 2'": "spotctl.show.prices.price_answers:QUERY",
    "lab prices export local/sim-east/*/c4.* --out prices.csv": "spotctl.show.prices.price_answers:EXPORTED",
    "prices import prices.csv history.csv": "spotctl.show.prices.price_answers:FILES",
    "lab prices correct aws/us-east-1/us-east-1a/c5.large 2025-03-01T05:00:00Z 0.93"
    " --reason typo": "spotctl.show.prices.price_answers:CORRECTION",
    "lab prices correct --list": "spotctl.show.prices.price_answers:CORRECTIONS",
    "lab prices ls --check": "spotctl.show.prices.price_answers:CHECKED",
    "lab prices backup prices-backup": "spotctl.show.prices.price_answers:BACKUP",
    "prices best aws/us-east-1 --below 99 --no-fetch": "spotctl.lab.best.results:WATCH",
    "lab prices snapshot --cloud aws --day 2025-03-01 --out shared": "spotctl.show.prices.price_answers:SNAPSHOTS",
    "lab beta show local/sim-east/sim-east-b/c4.2xlarge --bid-delta 0.001": "spotctl.lab.beta.results:ESTIMATE",
    "lab beta show local/sim-east/sim-east-b/c4.2xlarge --plot beta.svg": "spotctl.lab.beta.results:ESTIMATE_AND_CURVE",
    "lab beta calibrate local/sim-east/sim-east-b/c4.2xlarge": "spotctl.lab.beta.results:CALIBRATION",
    "lab backtest run examples/backtest_local.yaml --workers 1": "spotctl.lab.backtest.strategies:RESULTS",
    "lab backtest run examples/backtest_local.yaml --schemes proteus --against standard+agileml"
    " --workers 1": "spotctl.lab.backtest.strategies:RESULTS_AND_DIFFERENCES",
    "lab backtest run examples/backtest_local.yaml --frontier --schemes on-demand,lookahead --cuts "
    "1"
    " --workers 1": "spotctl.lab.backtest.frontier:FRONTIER",
    "lab backtest run bids.yaml --workers 1": "spotctl.lab.backtest.bids:BIDS_ANSWER",
    "lab backtest deadline --traces trace.json --hours 4 --slack 1.5"
    " --starts 2": "spotctl.lab.backtest.deadline:DEADLINE",
    "lab backtest regions regions.yaml": "spotctl.lab.backtest.regions:REGIONS",
    "lab train mf --engine sim --nodes 1+3 --clocks 3": "spotctl.lab.train.progress:ANSWER",
    "lab gavel solve problem.json --policy min-cost": "spotctl.lab.gavel.solution:SOLUTION",
    "lab gavel simulate --arrivals poisson:900 --jobs 2:6 --throughputs throughputs.json"
    " --cluster v100=1,k80=2 --policy max-min-fairness": "spotctl.lab.gavel.simulate:SIMULATION",
    "lab gavel analyze prices.yaml": "spotctl.lab.gavel.price_results:ANALYSIS",
    "lab reproduce pricing-reductions": "spotctl.lab.papers.page:ANSWER",
    "lab reproduce --list": "spotctl.lab.papers.page:LIST",
    "lab parallel profile mlp --microbatch 8,16": "spotctl.lab.parallel:PROFILES",
    "lab parallel plan profile.json --devices cpu:4 --bandwidth 1GB/s --batch 64": "spotctl.lab.parallel:PLAN",
    "lab parallel simulate plan.json --batches 2 --trace trace.json": "spotctl.lab.parallel:PLAYED",
    "lab parallel train mlp --engine sim --batches 3": "spotctl.lab.parallel:TRAINED",
    "lab parallel transformer --layers 24 --hidden 2048 --vocabulary 51200 --sequence 2048"
    " --devices 32": "spotctl.lab.parallel:TRANSFORMER",
}
"""Commands of a clone without any account, in this order, and what writes the JSON that they print.
These functions say what its fields mean."""

OTHER_ANSWERS = (
    *(
        "--dry-run",
        "--json-lines",
        "--admit",
        "--below",
        "--stats",
        "--gaps",
        "--check",
        "--list",
        "--sources",
    ),
    *("--plot", "--against", "--frontier", "bids.yaml"),
)
"""Options and files with which a command prints something else."""

RECORDED = Path(__file__).with_name("json_of_clouds.json")
"""Answers of the commands that need a cloud."""

SAME = {"resume": "launch"}
"""Commands that print what others print."""

JOB = """\
name: greeting
kind: command
run: echo hello
hours: 1h
resources: {clouds: [local], types: [c4.2xlarge]}
"""

NAPPING = JOB.replace("greeting", "napping").replace("echo hello", "sleep 600")
"""A job that runs while other commands ask about it."""

REGIONS = """\
traces: [up.csv]
prices: zones.csv
job: {work_hours: 2, deadline_hours: 4}
starts: {every: 4h}
policies: [on-demand, up-switch, optimal]
"""

BILL = {
    "identity/LineItemId": "1",
    "identity/TimeInterval": "2026-06-01T00:00:00Z/2026-06-01T01:00:00Z",
    "bill/BillingPeriodStartDate": "2026-06-01T00:00:00Z",
    "bill/BillingPeriodEndDate": "2026-07-01T00:00:00Z",
    "lineItem/LineItemType": "Usage",
    "lineItem/UsageStartDate": "2026-06-01T00:00:00Z",
    "lineItem/UsageEndDate": "2026-06-01T01:00:00Z",
    "lineItem/ProductCode": "AmazonEC2",
    "lineItem/UsageType": "SpotUsage:c6i.2xlarge",
    "lineItem/ResourceId": "i-0123456789abcdef0",
    "lineItem/CurrencyCode": "USD",
    "lineItem/UnblendedCost": "0.1",
    "resourceTags/user:spotctl-run": "greeting-1a2b3c",
}
"""A machine of a run that the ledger does not know."""

CRONTAB = """\
#!/bin/sh
case $1 in
-l) [ -f "$0.table" ] && cat "$0.table" || { echo "no crontab for me" >&2; exit 1; };;
-r) rm "$0.table";;
-) cat > "$0.table";;
esac
"""
"""Stands for the user's own crontab, which a build of the site must not change."""


def files(now: float) -> dict[str, str]:
    """What these commands read. `now` is in seconds since 1970: what is watched must have been seen
    lately.
    """
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now - 3600))
    return {
        "job.yaml": JOB,
        "napping.yaml": NAPPING,
        "bill.csv": _csv(BILL, BILL.values(), {**BILL, "lineItem/LineItemType": "Credit"}.values()),
        "history.csv": _prices(
            *(
                f"2025-03-01T{hour:02}:00:00Z,aws,us-east-1,us-east-1a,c5.large"
                for hour in range(24)
            ),
            f"{at},aws,us-east-1,us-east-1a,c5.large",
        ),
        "gpus.csv": _prices(
            *(f"2025-03-{day},aws,us-east-1,us-east-1a,p3.2xlarge" for day in ("01", "11"))
        ),
        "regions.yaml": REGIONS,
        "bids.yaml": "{hours: 2, starts: 2, schemes: [minimum], tried_bids: 2, markets: {calm: {hosts: 3}}}\n",
        "prices.yaml": "{throughputs: throughputs.json, prices: [gpus.csv], days: [0.5], starts: 1}\n",
        "up.csv": "zone,start,gap_seconds,up\n"
        + "".join(
            f"us-east-1{zone},2025-03-01,600,{up * 36}\n" for zone, up in (("a", "10"), ("b", "01"))
        ),
        "zones.csv": "zone,spot_usd_per_hour,on_demand_usd_per_hour\nus-east-1a,1,3\nus-east-1b,1.1,3\n",
        "trace.json": json.dumps({"metadata": {"gap_seconds": 600}, "data": [1, 1, 1, 0] * 36}),
        "problem.json": json.dumps(
            {
                "workers": {"v100": 8},
                "prices": {"v100": 2.48},
                "jobs": [{"id": "a", "throughputs": {"v100": 40}}],
            }
        ),
        "throughputs.json": json.dumps(
            {name: {"('ResNet-50', 1)": {"null": 10.0}} for name in ("v100", "k80")}
        ),
    }


WRITTEN = (
    *("first.yaml", "prices.csv", "prices.svg", "beta.svg", "profile.json", "plan.json"),
    *("shared", "shared/aws-2025-03-01.parquet", "prices-backup"),
)
"""What they write."""


def _prices(*rows: str) -> str:
    header = "timestamp,cloud,region,zone,instance_type,product,spot_price"
    return (
        "\n".join([header, *(f"{row},Linux/UNIX,{1 + i % 3}" for i, row in enumerate(rows))]) + "\n"
    )


def _csv(*rows: Iterable[str]) -> str:
    return "".join(",".join(row) + "\n" for row in rows)
