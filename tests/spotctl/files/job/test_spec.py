"""Whole jobs as files describe them."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from pricing_data.units import HOUR, MINUTE, parse_time
from spotctl.files.job import spec
from spotctl.files.job.programs import Command, Stop, Training
from spotctl.files.job.reader import load, loads
from spotctl.files.job.resources import Needs, Reliable, Resources
from spotctl.files.job.spec import JobSpec, Range
from spotctl.files.job.values import Nodes
from tests.spotctl.files.job.test_reader import EVERYTHING
from tests.spotctl.files.refused_jobs import COMMAND


def test_a_file_with_everything_means_what_it_says(folder: Path) -> None:
    (folder / "job.yaml").write_text(EVERYTHING)
    assert load(folder / "job.yaml") == JobSpec(
        name="nightly-recsys",
        program=Training(
            "apps.recsys:Recsys", Stop(2000, 120_600_000, 0.15, 0.02), {"rank": 64, "start": None}
        ),
        resources=Resources(
            clouds=("aws", "azure"),
            machines=Range(4, 64),
            reliable=Reliable(2, "c6i.large"),
            needs=Needs(Range(8), Range(7.5, 64.0), (spec.Accelerators("V100", Range(1)),)),
            regions=("us-east-1", "eastus"),
            arch="any",
            memory=0.5,
            burstable=True,
        ),
        workdir=folder / "code",
        setup="pip install -r requirements.txt",
        env={
            "LOG_LEVEL": "info",
            "WORKERS": "4",
            "DEBUG": "True",
            "SWITCH": "no",
            "AT": "06:00",
            "SHARE": "1.0",
            "MASK": "0x10",
            "DAY": "2026-01-20",
        },
        secrets=("HF_TOKEN",),
        data={"ratings": "s3://bucket/ratings/", "more": str(folder / "more")},
        outputs={"model": "s3://bucket/models/recsys/"},
        objective=spec.Objective.MIN_COST_SLO,
        deadline=spec.Within(10 * HOUR),
        budget=25_500_000_000,
        throughputs={"c6i.2xlarge": 410.0},
        strategy="lookahead:12.5",
        notify=spec.Notify("https://example.com/hook"),
    )


def test_what_a_command_leaves_out_is_filled_in(tmp_path: Path) -> None:
    found = loads(COMMAND, tmp_path / "job.yaml")
    assert found == JobSpec(
        name="nightly",
        program=Command("python train.py", Nodes(1, 1), None),
        resources=Resources(("aws",), Range(1, 1), Reliable(0)),
        workdir=tmp_path.resolve(),
    )
    assert (found.kind, found.is_local) == (spec.ProgramKind.COMMAND, False)


BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("due", "zone", "now", "moment"),
    [
        (spec.Within(90 * MINUTE), UTC, "2026-01-20T23:00:00Z", "2026-01-21T00:30:00Z"),
        (spec.ByClock(6, 0), UTC, "2026-01-20T05:59:59Z", "2026-01-20T06:00:00Z"),
        # At the very moment it is too late for today.
        (spec.ByClock(6, 0), UTC, "2026-01-20T06:00:00Z", "2026-01-21T06:00:00Z"),
        (
            spec.ByClock(6, 0),
            timezone(timedelta(hours=9)),
            "2026-01-20T20:00:00Z",
            "2026-01-20T21:00:00Z",
        ),
        # The night of a change of time has 23 or 25 hours.
        (spec.ByClock(6, 0), BERLIN, "2026-03-28T12:00:00Z", "2026-03-29T04:00:00Z"),
        (spec.ByClock(6, 0), BERLIN, "2026-10-24T12:00:00Z", "2026-10-25T05:00:00Z"),
    ],
)
def test_a_deadline_is_the_next_such_moment(
    due: spec.Within | spec.ByClock, zone: tzinfo, now: str, moment: str
) -> None:
    assert due.moment(parse_time(now), zone) == parse_time(moment)
