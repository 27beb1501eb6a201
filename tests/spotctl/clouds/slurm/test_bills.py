"""Jobs that Slurm's accounting lists, read as a bill."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pricing_data.units import HOUR, parse_time
from spotctl.show.costs.bills.read import read_bill

JOBS = """\
JobID,JobName,State,Start,End
7_1,spotctl-6e14@0.5,PREEMPTED,2026-11-30T10:00:00Z,2026-11-30T12:00:00Z
7_2,spotctl-6e14@0.5,RUNNING,2026-11-30T10:00:00Z,Unknown
8,spotctl-7f25@1.25,CANCELLED by 1000,2026-11-30T10:00:00Z,2026-11-30T10:30:00Z
9,spotctl-7f25@1.25,PENDING,Unknown,Unknown
10,somebody-elses,COMPLETED,2026-11-30T10:00:00Z,2026-11-30T12:00:00Z
"""


def test_ended_jobs_of_ours_cost_their_hours_at_the_price_of_their_order(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text(JOBS)
    lines = read_bill(tmp_path / "jobs.csv").lines
    assert [(line.resource, line.amount, line.end - line.begin) for line in lines] == [
        ("slurm:7_1", Decimal(1), 2 * HOUR),
        ("slurm:8", Decimal("0.625"), HOUR // 2),
    ]
    assert {line.begin for line in lines} == {parse_time("2026-11-30T10:00:00Z")}
