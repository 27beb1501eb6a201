"""First steps on simulated clouds: `spotctl try`, which leaves nothing, and the job of the
tutorial's cloud part.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from tests.cloud import tutorial
from tests.cloud.clouds import WHOLE_RUN, sampled, simulated
from tests.cloud.laptop import Laptop
from tests.documented import assert_documented
from tests.servers.azure import SUBSCRIPTION
from tests.servers.gcp import PROJECT

STEPS = "account orders machines eviction checkpoint left".split()

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@WHOLE_RUN
@pytest.mark.parametrize("name", sampled("azure"))
def test_a_first_launch_ends_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    with simulated(name) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        refused = laptop.run("try", name, "--yes")
        assert refused.returncode == 2
        assert f"spotctl prices fetch --cloud {name}" in refused.stderr
        laptop.run(
            "prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", f"{cloud.type}*"
        )
        ended = laptop.run("try", name, "--region", cloud.region, "--yes", "--json")
        assert ended.returncode == 0, ended.stderr
        answer = json.loads(ended.stdout)
        assert_documented("try", answer)
        assert (answer["outcome"], answer["left"]) == ("done", [])
        assert 0 < answer["cost_usd"] < 1
        assert len(cloud.server.machines()) == 1
        assert cloud.server.resources() == ()
        assert f"spotctl works on {name}" in laptop.run("logs", f"try-{name}").stdout


@WHOLE_RUN
@pytest.mark.parametrize("name", sampled("gcp"))
def test_three_steps_end_with_one_file_that_names_nothing_of_the_account(
    tmp_path: Path, name: str
) -> None:
    with simulated(name) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", cloud.type
        )
        ended = laptop.run(
            "try", name, "--share", "--region", cloud.region, "--type", cloud.type, "--yes"
        )
        assert ended.returncode == 0, ended.stderr + ended.stdout
        path = Path(ended.stderr.strip().rpartition(" ")[2])
        record = json.loads(path.read_text())
        assert [step["name"] for step in record["steps"]] == STEPS
        assert {step["outcome"] for step in record["steps"]} == {"passed", "skipped"}
        assert 0 < record["most_usd"] < 0.2
        for private in (
            PROJECT,
            SUBSCRIPTION,
            str(tmp_path),
            *(one.id for one in cloud.server.machines()),
        ):
            assert private not in path.read_text()
        # One that boots, and two of the job with the eviction.
        assert len(cloud.server.machines()) == 3
        assert cloud.server.resources() == ()


def test_the_walk_of_the_tutorial_changes_only_what_a_simulated_cloud_lacks(tmp_path: Path) -> None:
    example = load(tutorial.ROOT / tutorial.JOB)
    (tmp_path / "job.yaml").write_text(tutorial.job_for("s3://results", "runner"))
    walked = load(tmp_path / "job.yaml")
    assert (example.name, example.resources, example.budget) == (
        walked.name,
        walked.resources,
        walked.budget,
    )
    assert (example.identity, walked.identity) == ({"aws": "spotctl"}, {"aws": "runner"})
    assert [words[0] for words in tutorial.commands()].count("launch") == 1
