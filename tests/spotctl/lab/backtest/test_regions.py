"""`spotctl lab backtest regions` from its entry point."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from bench.regions import published_windows
from bidbrain.lab.regions.policies import NAMES, played
from tests.bidbrain.lab.regions.worlds import ZONES, flapping
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    rows = ["zone,start,gap_seconds,up"]
    for zone, up in zip(ZONES, flapping(7, 4, 200), strict=True):
        rows.append(f"{zone},2026-01-01T00:00:00Z,600,{''.join(map(str, up.astype(int)))}")
    (tmp_path / "up.csv").write_text("\n".join(rows))
    prices = [
        "zone,spot_usd_per_hour,on_demand_usd_per_hour",
        *(f"{zone},1.{i},3" for i, zone in enumerate(ZONES)),
    ]
    (tmp_path / "prices.csv").write_text("\n".join(prices))
    return written(tmp_path, {})


def written(folder: Path, changes: dict[str, object]) -> Path:
    content = {
        "traces": ["up.csv"],
        "prices": "prices.csv",
        "job": {"work_hours": 8, "deadline_hours": 11},
        "starts": {"every": "9h"},
        **changes,
    }
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def test_json_has_a_row_for_each_policy_and_window(scenario: Path, tmp_path: Path) -> None:
    ended = spotctl("lab", "backtest", "regions", scenario, "--json", "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (0, "")
    rows = ended.json["results"]
    # Starts at 0, 9 and 18 hours; one row for each zone of the policy that stays in one.
    assert len(rows) == 3 * (len(NAMES) - 1 + 4)
    assert [one["policy"] for one in ended.json["policies"]] == list(NAMES)
    for row in rows:
        parts = row["machines_usd"] + row["moving_usd"] + row["probing_usd"]
        assert row["cost_usd"] == pytest.approx(parts)
        assert not row["missed"]
    assert (tmp_path / "out" / "regions.png").stat().st_size > 10_000


def test_a_table_says_what_policies_cost(scenario: Path) -> None:
    ended = spotctl("lab", "backtest", "regions", scenario)
    assert ended.code == 0
    assert "up-switch" in ended.out
    assert "3 windows" in ended.err


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


def test_published_costs_are_reproduced(shared_data: Path) -> None:
    windows = [one for one in published_windows(shared_data) if one.trace == "v100"][:2]
    windows += [one for one in published_windows(shared_data) if one.trace == "h100"][4:6]
    for one in windows:
        for policy, published in (("up-switch", "up-switch"), ("optimal-published", "optimal")):
            usd = played(one.window, policy)[0].bill.total
            assert usd == pytest.approx(one.usd[published, ""], rel=1e-4)
        for result in played(one.window, "up-one-zone"):
            expected = one.usd["up-one-zone", result.window.record.zones[0]]
            assert result.bill.total == pytest.approx(expected, rel=1e-2)
        assert played(one.window, "skynomad")[0].bill.total == pytest.approx(
            one.usd["skynomad", ""], rel=0.05
        )
