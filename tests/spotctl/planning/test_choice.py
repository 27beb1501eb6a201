"""`auto` keeps a job's limits at the lowest median cost that it knows of, and a refusal names what
was tried.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pricing_data.units import HOUR, MINUTE, format_time, parse_time
from spotctl.files.job.reader import loads
from spotctl.home.config import Settings
from spotctl.planning.errors import NotInTime
from spotctl.planning.forecast import forecast_of, merits_of
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import stored_plans

JOB = """\
name: job
kind: command
run: sh prog.sh
checkpoint: {path: ck}
resources: {clouds: [local], types: [c4.2xlarge, m4.2xlarge]}
"""
FIRST = parse_time("2026-01-13T00:00:00Z")
RANDOM = [
    format_time(FIRST + int(hours) * HOUR)
    for hours in np.random.default_rng(59).integers(0, 21 * 24, 4)
]


def plan_of(folder: Path, more: str, start: str, strategy: str = "auto") -> JobPlan:
    spec = loads(f"{JOB}local: {{speed: 60, start: {start}}}\n{more}", folder / "job.yaml")
    (plan,) = stored_plans([replace(spec, strategy=strategy)], Settings(home=folder)).plans
    return plan


def test_auto_plans_no_spot_above_on_demand(tmp_path: Path) -> None:
    """At this moment its default expects more than twice the cost on demand, if a checkpoint takes
    two minutes.
    """
    job = JOB.replace("path: ck", "path: ck, size: 400MB") + "hours: 0.5h\ndeadline: 1h\n"
    spec = loads(f"{job}local: {{speed: 60, start: 2026-01-13T12:22:00Z}}\n", tmp_path / "job.yaml")
    (plan,) = stored_plans([spec], Settings(home=tmp_path)).plans
    assert plan.demand.save_time == 2 * MINUTE
    assert forecast_of(plan).usd.median <= plan.cost.on_demand.usd * 1.001


@pytest.mark.parametrize("more", ["hours: 3h\n", "hours: 6h\ndeadline: 7h\n"])
@pytest.mark.parametrize("start", RANDOM)
def test_auto_is_no_worse_than_any_plan_that_it_knows(
    tmp_path: Path, start: str, more: str
) -> None:
    chosen = merits_of(plan_of(tmp_path, more, start))
    for strategy in ("lookahead", "price-capacity", "on-demand"):
        assert chosen <= merits_of(plan_of(tmp_path, more, start, strategy)), strategy


@pytest.mark.parametrize("strategy", ["auto", "on-demand", "lookahead"])
def test_a_deadline_is_likely_to_be_kept_or_refused_with_a_time_that_is_accepted(
    tmp_path: Path, strategy: str
) -> None:
    start = "2026-01-25T10:40:00Z"
    plan = plan_of(tmp_path, "hours: 10h\ndeadline: 11h\nbudget: 5 USD\n", start, strategy)
    assert forecast_of(plan).deadline_met(11.0) >= 0.9
    with pytest.raises(NotInTime, match=r"accepted with (\d+)m more time") as refused:
        plan_of(tmp_path, "hours: 10h\ndeadline: 600m\n", start, strategy)
    more = re.search(
        r"accepted with (?:`strategy: auto`, or with )?(\d+)m more time", str(refused.value)
    )
    assert more is not None
    plan_of(tmp_path, f"hours: 10h\ndeadline: {600 + int(more[1])}m\n", start, strategy)
