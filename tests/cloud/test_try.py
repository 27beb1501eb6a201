"""`spotctl try` on simulated clouds: one command on the smallest machine, and nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cloud.clouds import sampled, simulated
from tests.cloud.laptop import Laptop

pytestmark = [pytest.mark.cloud, pytest.mark.slow]


@pytest.mark.parametrize("name", sampled("azure"))
def test_a_first_launch_ends_and_leaves_nothing(tmp_path: Path, name: str) -> None:
    with simulated(name) as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        refused = laptop.run("try", name, "--yes")
        assert refused.returncode == 2
        assert f"spotctl prices fetch --cloud {name}" in refused.stderr
        laptop.run("prices", "fetch", "--cloud", name, "--region", cloud.region, "--type", f"{cloud.type}*")
        ended = laptop.run("try", name, "--region", cloud.region, "--yes", "--json")
        assert ended.returncode == 0, ended.stderr
        answer = json.loads(ended.stdout)
        assert (answer["outcome"], answer["left"]) == ("done", [])
        assert 0 < answer["cost_usd"] < 1
        assert len(cloud.server.machines()) == 1
        assert cloud.server.resources() == ()
        assert f"spotctl works on {name}" in laptop.run("logs", f"try-{name}").stdout
