"""The table of nightly jobs: on a narrow terminal, names and times stay whole."""

from __future__ import annotations

from typing import Any

from spotctl.nightly.health import jobs_table
from tests.spotctl.show.runs.made_up_run import text

JOBS: list[dict[str, Any]] = [
    {
        "name": "spirals-with-a-long-name",
        "at": "02:00",
        "deadline": "06:00",
        "scheduler": "systemd",
        "next": "Mon 2026-11-23 02:00",
        "last_night": {"night": "2026-11-22", "outcome": "not in time", "cost_usd": 0.4},
    },
    {
        "name": "new",
        "at": "03:00",
        "deadline": None,
        "scheduler": "cron",
        "next": "Mon 2026-11-23 03:00",
        "last_night": None,
    },
]


def test_a_row_per_job_on_a_wide_terminal() -> None:
    assert [line.split() for line in text(jobs_table(JOBS, 120), 120)] == [
        "name hours by next last night cost".split(),
        "spirals-with-a-long-name 02:00-06:00 systemd Mon 2026-11-23 02:00 2026-11-22 not in time $0.40".split(),
        "new 03:00 cron Mon 2026-11-23 03:00".split(),
    ]


def test_a_narrow_terminal_leaves_out_columns_and_breaks_nothing() -> None:
    assert [line.split() for line in text(jobs_table(JOBS, 80), 80)] == [
        "name next last night cost".split(),
        "spirals-with-a-long-name Mon 2026-11-23 02:00 2026-11-22 not in time $0.40".split(),
        "new Mon 2026-11-23 03:00".split(),
    ]
