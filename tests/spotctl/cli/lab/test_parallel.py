"""`spotctl lab parallel` from its entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agileml.pipeline.profile.model_profile import FORMAT
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl

LAYER = {
    "forward_seconds": 1.0,
    "backward_seconds": 2.0,
    "output_bytes": 10,
    "stash_bytes": 50,
    "weight_bytes": 1e9,
}
PROFILE = {
    "format": FORMAT,
    "model": "blocks",
    "profiles": [
        {
            "microbatch": 4,
            "input_bytes": 10,
            "layers": [{"name": f"block{i}", **LAYER} for i in range(4)],
        },
    ],
}


def plan(folder: Path, *words: str, content: object = PROFILE) -> Ended:
    path = folder / "profile.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    given = ["--devices", "v100:2x2", "--bandwidth", "10GB/s,10Mbit/s", "--batch", "64"]
    return spotctl("lab", "parallel", "plan", path, *given, *words)


@pytest.mark.parametrize(
    "words",
    [
        ["--memory", "1 elephant"],
        ["--memory", "1GB"],
        ["--bandwidth", "10GB/s"],
        ["--bandwidth", "fast,slow"],
        ["--devices", "v100:0"],
        ["--split", "stages=5"],
        ["--microbatch", "3"],
        ["--overlap", "2"],
        ["--split", "stages=0"],
        ["--split", "replicas=-1"],
        ["--split", "chunks=0"],
    ],
)
def test_refused(tmp_path: Path, words: list[str], approved: Approved) -> None:
    refused = plan(tmp_path, *words)
    approved(refused)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "node1 -- x",
        {"format": "theirs"},
        [1],
    ],
)
def test_foreign_profiles(tmp_path: Path, content: object, approved: Approved) -> None:
    refused = plan(tmp_path, content=content)
    approved(refused)


def test_a_missing_file(tmp_path: Path, approved: Approved) -> None:
    refused = spotctl(
        "lab",
        "parallel",
        "plan",
        tmp_path / "x",
        "--devices",
        "2",
        "--bandwidth",
        "1GB/s",
        "--batch",
        "1",
    )
    approved(refused)


def test_a_published_profile(shared_data: Path) -> None:
    """15-1, the split that was published for VGG-16 on 16 devices."""
    path = shared_data / "pipedream_profiles" / "vgg16.txt"
    given = [
        "--devices",
        "v100:4x4",
        "--bandwidth",
        "10GB/s,10Gbit/s",
        "--batch",
        "2048",
        "--split",
        "scheme=pipedream",
    ]
    answer = spotctl("lab", "parallel", "plan", path, "--microbatch", "128", *given, "--json").json
    assert [stage["replicas"] for stage in answer["stages"]] == [15, 1]
    assert answer["noam"] == 2


def test_a_plan_is_played_on_a_recorded_fleet(tmp_path: Path) -> None:
    path, fleet, counts = tmp_path / "plan.json", tmp_path / "fleet.csv", tmp_path / "counts.json"
    path.write_text(plan(tmp_path, "--split", "stages=2", "--json").out)
    names = "|".join(f"n{i}" for i in range(16))
    fleet.write_text(
        f"time_s,event,nodes,n_delta\n0,add,{names},16\n60,migration,,0\n300,remove,n0|n3,2\n600,no-op,,0\n"
    )
    warned, unwarned = (
        spotctl(
            "lab", "parallel", "simulate", path, "--trace", fleet, "--warning", warning, "--json"
        ).json["fleet"]
        for warning in ("2m", "0")
    )
    assert (warned["seconds"], warned["machine_seconds"]) == (600, 16 * 300 + 14 * 300)
    assert 0 < warned["samples"] < warned["bound_samples"]
    assert warned["redone_samples"] == 0 < unwarned["redone_samples"]
    assert "of the bound" in spotctl("lab", "parallel", "simulate", path, "--trace", fleet).out
    # The same as counts of machines.
    counts.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": [16, 14, 14]}))
    counted = spotctl("lab", "parallel", "simulate", path, "--trace", counts, "--json").json[
        "fleet"
    ]
    assert counted["machine_seconds"] == warned["machine_seconds"]
    assert counted["samples"] == pytest.approx(warned["samples"], rel=0.01)


@pytest.mark.parametrize(
    "lines",
    [
        "time_s,event\n0,add,a\n5,remove,b\n",
        "time_s,event\n0,add,a\n",
        "0,add,a\nsoon,remove,a\n",
        "0,add,a\n1000,vanish,a\n",
    ],
)
def test_a_fleet_that_cannot_be_is_refused(tmp_path: Path, lines: str, approved: Approved) -> None:
    path, fleet = tmp_path / "plan.json", tmp_path / "fleet.csv"
    path.write_text(plan(tmp_path, "--json").out)
    fleet.write_text(lines)
    refused = spotctl("lab", "parallel", "simulate", path, "--trace", fleet)
    approved(refused)


@pytest.mark.parametrize("text", ["{}", "["])
def test_not_a_plan(tmp_path: Path, text: str, approved: Approved) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    refused = spotctl("lab", "parallel", "simulate", path)
    approved(refused)


def test_a_model_is_profiled_and_planned(tmp_path: Path, approved: Approved) -> None:
    profile = tmp_path / "profile.json"
    shown = spotctl(
        "lab",
        "parallel",
        "profile",
        "mlp",
        "--microbatch",
        "4,8",
        "--repeats",
        "1",
        "--out",
        profile,
    )
    assert shown.code == 0
    given = ["--devices", "cpu:2", "--bandwidth", "1GB/s", "--batch", "64", "--json"]
    assert spotctl("lab", "parallel", "plan", profile, *given).json["microbatch"] in (4, 8)
    refused = spotctl("lab", "parallel", "profile", "mlp", "--microbatch", "0")
    approved(refused)


def test_the_speed_is_written_into_a_gavel_problem(tmp_path: Path, approved: Approved) -> None:
    problem = tmp_path / "problem.json"
    problem.write_text(
        json.dumps({"workers": {"v100": 8, "k80": 8}, "jobs": [{"id": "a", "throughputs": {}}]})
    )
    answer = plan(tmp_path, "--gavel", str(problem), "--job", "a", "--json").json
    (job,) = json.loads(problem.read_text())["jobs"]
    interval = [one / 64 for one in answer["interval"]]
    estimate = {"v100": {"basis": "profile", "interval": interval}}
    speed = {"v100": answer["samples_per_second"] / 64}
    assert job == {"id": "a", "throughputs": speed, "scale": 4, "estimates": estimate}
    assert (
        "from a profile"
        in spotctl("lab", "gavel", "solve", problem, "--policy", "max-min-fairness").err
    )
    solved = spotctl(
        "lab", "gavel", "solve", problem, "--policy", "max-min-fairness", "--json"
    ).json
    assert solved["estimates"] == {"a": estimate}
    assert solved["effective_throughput_interval"]["a"] == pytest.approx(interval)
    for words, message in (
        (["--job", "b"], "no job 'b': expected one of a"),
        (["--job", "a", "--devices", "t4:2x2"], "no worker type 't4'"),
    ):
        refused = plan(tmp_path, "--gavel", str(problem), *words)
        assert (refused.code, message in refused.error) == (2, True)
    job["throughputs"]["k80"] = 1.0
    problem.write_text(json.dumps({"workers": {"v100": 8, "k80": 8}, "jobs": [job]}))
    refused = plan(
        tmp_path, "--gavel", str(problem), "--job", "a", "--split", "stages=2,replicas=1"
    )
    approved(refused)
