"""`spotctl lab backtest regions` from its entry point."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.regions import published_windows
from bidbrain.lab.regions.policies import NAMES, played
from tests.spotctl.command_line import spotctl


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
