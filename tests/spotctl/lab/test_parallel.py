"""Plans as JSON and tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.cli.lab.test_parallel import plan
from tests.spotctl.command_line import spotctl


def test_a_plan_as_json(tmp_path: Path) -> None:
    answer = plan(tmp_path, "--json").json
    assert answer["devices"] == "v100:4"
    assert [stage["layers"] for stage in answer["stages"]] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert answer["interval"][0] < answer["samples_per_second"] < answer["interval"][1]
    assert answer["basis"] == "profiled"
    assert answer["bottleneck"] == "compute of pipeline stage 3"
    assert all(set(one) == {"plan", "reason"} for one in answer["rejected"])


def test_a_plan_as_a_table(tmp_path: Path) -> None:
    shown = plan(tmp_path, "--memory", "16GiB")
    assert shown.code == 0
    assert "limited by" in shown.out
    assert "block3" in shown.out


def test_a_transformer(approved: Approved) -> None:
    shape = ["--layers", "96", "--hidden", "12288", "--vocabulary", "51200", "--sequence", "2048"]
    answer = spotctl(
        "lab", "parallel", "transformer", *shape, "--devices", "1536", "--tflops", "141", "--json"
    ).json
    assert (answer["tensor"], answer["stages"], answer["replicas"]) == (8, 6, 32)
    assert answer["training_days"] == pytest.approx(23.0, abs=0.05)
    assert (
        "23 days"
        in spotctl(
            "lab", "parallel", "transformer", *shape, "--devices", "1536", "--tflops", "141"
        ).out
    )
    refused = spotctl(
        "lab", "parallel", "transformer", *shape, "--devices", "8", "--memory", "16GiB"
    )
    approved(refused)


@pytest.mark.parametrize(
    "scheme", ["flush", "gpipe", "interleaved", "2bw", "pipedream", "vertical-sync"]
)
def test_a_plan_is_simulated(tmp_path: Path, scheme: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan(tmp_path, "--split", f"scheme={scheme}", "--json").out)
    answer = spotctl("lab", "parallel", "simulate", path, "--json").json
    expected = answer["planned_samples_per_second"]
    assert expected * 0.6 < answer["samples_per_second"] <= expected * 1.1
    assert "in flight" in spotctl("lab", "parallel", "simulate", path).out


def test_a_timeline_is_written(tmp_path: Path, approved: Approved) -> None:
    path = tmp_path / "plan.json"
    path.write_text(plan(tmp_path, "--json").out)
    for name, start in (("t.html", "<!doctype html>"), ("t.json", '{"traceEvents"')):
        assert spotctl("lab", "parallel", "simulate", path, "--timeline", tmp_path / name).code == 0
        assert (tmp_path / name).read_text().startswith(start)
    refused = spotctl("lab", "parallel", "simulate", path, "--timeline", tmp_path / "t.png")
    approved(refused)
