"""A model that is split over the machines of a simulated cloud: evictions change neither losses nor
weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agileml.pipeline.builtin import model_factory
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, sampled, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.pipelines import STAGES, job_text, launch_through

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]

UPDATES, MICROBATCHES = 40, 4
MODEL = '''\
"""Layers that take their time on the machines, so that there are evictions meanwhile."""

import os
import time
from functools import partial

import numpy as np

from agileml.pipeline.builtin import Dense, squared_error
from agileml.pipeline.model import PipelineModel

PAUSE = float(os.environ.get("PAUSE", "0"))


class Slow(Dense):
    def forward(self, weights, inputs, key):
        time.sleep(PAUSE)
        return super().forward(weights, inputs, key)


def samples(microbatch, number):
    inputs = np.random.default_rng(number).standard_normal((microbatch, 4))
    return inputs, np.sin(inputs.sum(axis=1, keepdims=True))


def build(microbatch):
    layers = (*(Slow(4, 4) for _ in range(5)), Slow(4, 1, squash=False))
    return PipelineModel(layers, squared_error, partial(samples, microbatch), seed=5)
'''
LAYER = {
    "forward_seconds": 0.1,
    "backward_seconds": 0.01,
    "output_bytes": 64,
    "stash_bytes": 128,
    "weight_bytes": 160,
}


@pytest.fixture(params=sampled("aws"))
def cloud(request: pytest.FixtureRequest) -> Iterator[SimulatedCloud]:
    with simulated(request.param) as served:
        yield served


@pytest.fixture
def laptop(cloud: SimulatedCloud, tmp_path: Path) -> Laptop:
    laptop = Laptop(tmp_path, cloud.environment)
    laptop.run(
        "prices",
        "fetch",
        "--cloud",
        cloud.name,
        "--region",
        cloud.region,
        "--type",
        f"{cloud.type}*",
    )
    (tmp_path / "work" / "net.py").write_text(MODEL)
    layers = [{"name": f"l{i}", **LAYER} for i in range(6)]
    profile = {"microbatch": 2, "input_bytes": 64, "layers": layers}
    content = {"format": "spotctl-profile-1", "model": "net", "profiles": [profile]}
    (tmp_path / "work" / "net.json").write_text(json.dumps(content))
    return laptop


def test_evictions_change_nothing(cloud: SimulatedCloud, laptop: Laptop) -> None:
    """One comes with a notice, and one without."""
    parallel = {"profile": "net.json", "batch": 2 * MICROBATCHES, "stages": STAGES}
    text = job_text(cloud, "net.py:build", parallel, UPDATES, PAUSE="0.1")
    answer = launch_through(cloud, laptop, laptop.job(text), (10.0, None))
    assert (answer["clocks"], answer["updates_lost"], answer["evictions"]) == (UPDATES, 0, 2)
    assert cloud.server.resources() == ()
    model = model_factory(f"{laptop.folder / 'work' / 'net.py'}:build")(2)
    alone = train_simulated(model, Optimizer("adam", 0.003), PipelinePlan(UPDATES, MICROBATCHES), 1)
    with np.load(answer["model"]) as trained:
        assert all(
            np.array_equal(trained[f"{layer}/{i}"], array)
            for layer, weights in alone.weights.items()
            for i, array in enumerate(weights)
        )
    lines = map(
        json.loads, Path(answer["model"]).with_name("iterations.jsonl").read_text().splitlines()
    )
    losses = [line["loss"] for line in lines if "clock" in line]
    size = MICROBATCHES
    assert losses == [
        sum(alone.losses[k] for k in range(size * t, size * (t + 1))) / size for t in range(UPDATES)
    ]
