"""Commands that read a home with runs, and commands that change it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import product

from tests.golden.homes import JOBS
from tests.golden.scenario import Scenario, Step

JOB_NAMES = [file.removesuffix(".yaml") for file in JOBS]
BY = (
    "job",
    "run",
    "cloud",
    "region",
    "type",
    "market",
    "pricing",
    "kind",
    "day",
    "month",
    "tag",
    "team",
    "job,run,type",
)
FORMATS = ("table", "json", "csv", "md", "html", "focus", "focus-1.0")

BILL = """\
identity/LineItemId,identity/TimeInterval,bill/BillingPeriodStartDate,bill/BillingPeriodEndDate,lineItem/LineItemType,\
lineItem/UsageStartDate,lineItem/UsageEndDate,lineItem/ProductCode,lineItem/UsageType,lineItem/ResourceId,\
lineItem/CurrencyCode,lineItem/UnblendedCost,resourceTags/user:spotctl-run
1,2026-06-01T00:00:00Z/2026-06-01T01:00:00Z,2026-06-01T00:00:00Z,2026-07-01T00:00:00Z,Usage,2026-06-01T00:00:00Z,\
2026-06-01T01:00:00Z,AmazonEC2,SpotUsage:c6i.2xlarge,i-0123456789abcdef0,USD,0.1,small-1a2b3c
"""

READING = [
    *(
        "status",
        "status --json",
        "gc",
        "gc --json",
        "log check",
        "log check --json",
        "nightly ls",
        "nightly ls --json",
    ),
    *(f"status {job}" for job in (*JOB_NAMES, "none")),
    *(f"status {job} --json" for job in JOB_NAMES),
    *(f"logs {job}{more}" for job in (*JOB_NAMES, "none") for more in ("", " --json")),
    *(f"report cost --by {by}{more}" for by, more in product(BY, ("", " --json"))),
    *(f"report cost --format {name}" for name in FORMATS),
    *(
        f"report cost --format {name} --by run --out costs.{name}"
        for name in ("csv", "html", "focus")
    ),
    *(f"report cost --job {job}" for job in ("small", "killed", "none")),
    *(f"report cost --job {job} --json" for job in JOB_NAMES),
    *("report cost --local --json", "report cost --since 1h", "report cost --since 1h --json"),
    *(
        "report cost --until 2026-01-01 --json",
        "report cost --since soon",
        "report cost --by nothing",
    ),
    *(
        "report cost --tz Europe/Berlin --by day --json",
        "report cost --format xml",
        "report cost --tz Nowhere",
    ),
    *(
        "report reconcile --bill bill.csv",
        "report reconcile --bill bill.csv --json",
        "report reconcile --bill none.csv",
    ),
    *(
        "report reconcile --bill bill.csv --tolerance 1% --provider aws --json",
        "report reconcile --bill job.yaml",
    ),
    *("report reconcile --bill bill.csv --tolerance much", "report reconcile"),
    *(f"plan {job}.yaml --json" for job in ("small", "train", "counting", "gang")),
    *("plan small.yaml --explain", "plan joba.yaml jobb.yaml", "launch train.yaml --dry-run"),
    *(
        "resume small",
        "resume none",
        "resume small --json",
        "stop small",
        "stop small --json",
        "down small",
        "stop none",
    ),
    *(
        "exec small -- true",
        "exec none -- true",
        "ssh small",
        "ssh killed --json",
        "top none --once",
    ),
    *("top train --once", "top train --json", "top killed --json", "top --once"),
]
"""What they write besides files in the folder are answers that they keep for later."""
CHANGING = [
    *(
        f"{command} {job}"
        for command in ("stop", "stop --json")
        for job in ("killed", "longtrain", "going")
    ),
    *(
        "stop --all",
        "stop --all --json",
        "gc --yes",
        "gc --yes --json",
        "log repair",
        "log repair --json",
    ),
    *(
        "gc --data-days 1 --yes",
        "report reconcile --bill bill.csv --accept",
        "launch killed.yaml --yes",
    ),
    *("launch going.yaml --yes --json", "launch small.yaml --json"),
]
RESUMED = [
    "resume killed",
    "resume killed --json",
    "resume longtrain --json",
    "resume killed --metrics metrics.txt --json",
]
LIVE = [
    *(
        "launch small.yaml --yes",
        "launch small.yaml --yes --json-lines",
        "launch train.yaml --yes --json-lines",
    ),
    *("launch train.yaml --yes --metrics metrics.txt --json", "launch joba.yaml jobb.yaml --yes"),
    *(
        "launch failing.yaml --yes --output script",
        "launch unready.yaml --yes --json",
        "launch small.yaml --yes --rehearse",
    ),
    *("launch gang.yaml --yes --json", "launch small.yaml --yes --max-cost 0.01"),
]
"""Launches, by both trees: what they cost depends on how fast the computer is."""


def home_scenarios() -> Iterator[Scenario]:
    """Commands on copies of the home with runs."""
    files = {**JOBS, "bill.csv": BILL, "job.yaml": JOBS["small.yaml"]}
    yield Scenario("home", list(_steps(READING)), files=files, home="runs", now="")
    yield Scenario(
        "home", [Step(("ui", "--json"), pages=True, seconds=1.0)], files=files, home="runs", now=""
    )
    for command in CHANGING:
        after = ["status --json", "report cost --by run --json", "log check"]
        yield Scenario(
            f"home, {command}",
            [*_steps([command], process=True), *_steps(after, exact=False)],
            files=files,
            home="runs",
            now="",
        )
    for number, command in enumerate(RESUMED):
        after = ["status --json", "report cost --by run --json", "logs killed", "log check"]
        steps = [*_steps([command], process=True), *_steps(after, exact=False)]
        yield Scenario(f"resumed {number}", steps, files=files, home="runs", now="")
    for command in LIVE:
        yield Scenario("live", list(_steps([command], process=True)), files=files)


def _steps(
    commands: Iterable[str], process: bool = False, exact: bool | None = None
) -> Iterator[Step]:
    for command in commands:
        yield Step(
            shlex.split(command), process=process, exact=not process if exact is None else exact
        )
