"""Scenario files of regions."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.bidbrain.lab.regions.worlds import ZONES
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.backtest.conftest import written


@pytest.mark.parametrize(
    "changes",
    [
        {"policies": ["best"]},
        {
            "job": {"work_hours": 8, "deadline_hours": 11, "machines": 4, "at_least": 1},
            "policies": ["optimal"],
        },
        {"zones": ["mars-1a"]},
        {"job": {"work_hours": 10, "deadline_hours": 10}},
        {"job": {"work_hours": 10, "deadline_hours": 99}},
        {"starts": [30]},
        {"traces": ["none.csv"]},
        {"moving": {"pairs": {"us-east-1": 1}}},
        {"speed": 1},
    ],
)
def test_a_wrong_scenario_is_one_line(
    scenario: Path, changes: dict[str, object], approved: Approved
) -> None:
    ended = spotctl("lab", "backtest", "regions", written(scenario.parent, changes))
    assert ended.code != 0
    approved(ended)


def test_probes_of_many_machines_and_files_without_times(scenario: Path) -> None:
    folder = scenario.parent
    with (folder / "probes.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", "zone", "created", "requested"])
        for hour in range(24):
            for minute in (0, 10, 20, 30, 40, 50):
                if (hour, minute) != (5, 20):  # a round that is missing
                    rows.writerow(
                        [
                            f"2026-01-01T{hour:02}:{minute:02}:00Z",
                            ZONES[0],
                            8 if hour % 2 else 16,
                            16,
                        ]
                    )
    job = {"work_hours": 4, "deadline_hours": 10, "machines": 12}
    found = written(
        folder, {"traces": ["probes.csv"], "job": job, "starts": [0], "policies": ["optimal"]}
    )
    row = spotctl("lab", "backtest", "regions", found, "--json").json["results"][0]
    # 16 machines are there every other hour, and on-demand machines cost three times as much.
    assert (row["spot_hours"], row["on_demand_hours"]) == (5.0, 0.0)
    (folder / f"x__{ZONES[1]}_v100_1.json").write_text(
        json.dumps({"metadata": {"gap_seconds": 600}, "data": [1] * 200})
    )
    plain = written(
        folder, {"traces": ["x__*.json"], "policies": ["optimal", "skynomad"], "starts": [0]}
    )
    assert spotctl("lab", "backtest", "regions", plain).code == 0
