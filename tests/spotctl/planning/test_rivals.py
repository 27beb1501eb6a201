"""Which strategy a job gets that leaves the choice to `auto`."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.units import parse_time
from spotctl.files.job.reader import loads, written
from spotctl.home.config import Settings
from spotctl.log.events import RunBegan
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import plan_of_run

JOB = """\
kind: agileml
name: j
app: mf
stop: {{clocks: 1500}}
throughputs: {{c4.2xlarge: 60, c4.xlarge: 30, m4.4xlarge: 120}}
resources: {{clouds: [local], machines: 8, types: [c4.*, m4.*], reliable: {{machines: 1}}}}
strategy: {}
"""
NEVER_BETTER = "kind: command\nname: j\nrun: 'true'\nhours: 4h\nresources: {{clouds: [local]}}\nstrategy: {}\n"


def planned(job: str, strategy: str, home: Path) -> JobPlan:
    spec = loads(job.format(strategy), home / "job.yaml")
    began = RunBegan("j", "local", written(spec), "", 0)
    return plan_of_run(began, Settings(home=home), parse_time("2026-01-15T00:00:00Z"))


@pytest.mark.parametrize(
    ("job", "strategy", "chosen"),
    [
        (JOB, "auto", "price-capacity"),
        (JOB, "lookahead", "lookahead"),
        (NEVER_BETTER, "auto", "lookahead"),
    ],
)
def test_auto_takes_the_rival_where_plays_of_the_past_show_that_it_is_better(
    tmp_path: Path, job: str, strategy: str, chosen: str
) -> None:
    assert planned(job, strategy, tmp_path).decision.strategy.name == chosen


def test_the_rivals_forecast_is_cheaper_and_sooner(tmp_path: Path) -> None:
    auto, default = (forecast_of(planned(JOB, name, tmp_path)) for name in ("auto", "lookahead"))
    assert auto.usd.median < 0.85 * default.usd.median
    assert auto.hours.median < 0.9 * default.hours.median
