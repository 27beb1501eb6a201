"""A training whose data is a folder of the launcher's computer: each machine has a copy, and so has
its runner.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cloud.clouds import WHOLE_RUN, simulated
from tests.cloud.laptop import TRAINER, Laptop
from tests.cloud.test_launch import running
from tests.cloud.test_remote_matrix import TRAINING, stored

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow, pytest.mark.timeout(900)]

READS = """\
        path = os.environ["DATA_POINTS"]
        self.points = np.loadtxt(path + "/points.csv", delimiter=",")
"""
RELIABLE = "  reliable: {{machines: 1, type: {type}}}\n"
SLOPE = 3.0


def reading_trainer() -> str:
    """A trainer that fits a line to points in a file."""
    text = TRAINER.replace("import time\n", "import os\nimport time\n")
    text = text.replace("        self.pause = pause\n", f"        self.pause = pause\n{READS}")
    before, _, after = text.partition("        x = np.linspace")
    return (
        f"{before}        return np.array_split(self.points, "
        f"8)\n\n{after[after.index('    def step') :]}"
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize("runner", ["launcher", "machine"])
def test_nodes_and_runner_read_a_folder_of_the_launcher(runner: str, tmp_path: Path) -> None:
    with simulated("aws") as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", "aws", "--region", cloud.region, "--type", cloud.type
        )
        (tmp_path / "data").mkdir()
        x = np.linspace(0.0, 1.0, 64)
        np.savetxt(tmp_path / "data" / "points.csv", np.column_stack([x, SLOPE * x]), delimiter=",")
        text = TRAINING if runner == "machine" else TRAINING.replace(RELIABLE, "")
        places = {
            "bucket": cloud.bucket,
            "region": cloud.region,
            "type": cloud.type,
            "identity": cloud.identity,
        }
        job = laptop.job(text.format(cloud="aws", program=60, **places) + "data: {points: data}\n")
        (tmp_path / "work" / "line.py").write_text(reading_trainer())
        words = () if runner == "machine" else ("--attached",)
        with laptop.launched("launch", job, *words, "--yes", "--json") as launched:
            code, out, err = launched.ended()
        assert code == 0, err + out
        assert "data points: 1 file" in err
        assert json.loads(out)["outcome"] == "done"
        assert any(key.startswith("kept-out/model") for key in stored(cloud))
        assert running(cloud.server) == []
        assert cloud.server.resources() == ()
