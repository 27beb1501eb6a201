"""Trainings whose model is split over their machines: refused, planned and launched on the local
market.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from agileml.pipeline.builtin import BUILT_IN
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.profile.model_profile import LayerCost
from agileml.pipeline.run.local import train_simulated
from agileml.pipeline.run.training import PipelinePlan
from pricing_data.units import DAY, MINUTE, format_time, parse_time
from spotctl.files.job.reader import loads, written
from spotctl.home.errors import BadRequest
from tests.samples import LAUNCH
from tests.spotctl.command_line import spotctl

LAYERS = [
    LayerCost(f"l{i}", 0.001, 0.002, 1e3, 1e3, 1e4) for i in range(len(BUILT_IN["mlp"](8).layers))
]

JOB = """\
name: split
kind: agileml
app: mlp
parallel: {batch: 32, elastic: {every: 2}}
stop: {clocks: 24}
resources: {clouds: [local], types: [c4.2xlarge], machines: 2..4}
strategy: proteus
local: {speed: 600, start: 2026-01-25T00:00:00Z, warning: 5m, unwarned: 0.5}
"""

LONG_JOB = JOB.replace("clocks: 24", "clocks: 240").replace(
    "clouds: [local]", "clouds: [local], regions: [sim-west]"
)


def spiky_prices(path: Path) -> Path:
    """A zone that is the cheapest for an hour at a time, six seconds of a launch, and then costs
    more than any bid.

    So a training that takes longer is evicted however late it starts; after 20 times the price is
    calm.
    """
    start = parse_time("2026-01-25T00:00:00Z")
    spikes = [start + spike * 70 * MINUTE for spike in range(20)]
    changes = [(start - 20 * DAY, "0.05"), *((time, "5") for time in spikes)]
    changes += [*((time + 10 * MINUTE, "0.05") for time in spikes), (start + 10 * DAY, "0.05")]
    rows = [
        f"{format_time(time)},local,sim-west,sim-west-z,c4.2xlarge,Linux/UNIX,{usd}"
        for time, usd in changes
    ]
    path.write_text(
        "\n".join(["timestamp,cloud,region,zone,instance_type,product,spot_price", *rows]) + "\n"
    )
    return path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    layers = [asdict(layer) for layer in LAYERS]
    profile = {"microbatch": 8, "input_bytes": 0, "layers": layers}
    content = {"format": "spotctl-profile-1", "model": "mlp", "profiles": [profile]}
    (tmp_path / "profile.json").write_text(json.dumps(content))
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@LAUNCH
@pytest.mark.slow
def test_a_split_training_goes_through_evictions_and_is_billed(job: Path) -> None:
    """The market takes all machines away several times; the model is that of one undisturbed
    node."""
    assert spotctl("prices", "import", spiky_prices(job.with_name("prices.csv"))).code == 0
    job.write_text(LONG_JOB)
    ended = spotctl("launch", job, "--yes", "--json")
    assert ended.code == 0, ended.err
    answer = ended.json
    assert (answer["outcome"], answer["clocks"], answer["updates_lost"]) == ("done", 240, 0)
    assert answer["evictions"] > 0 < answer["cost_usd"]
    alone = train_simulated(BUILT_IN["mlp"](8), Optimizer("adam", 0.003), PipelinePlan(240, 4), 1)
    with np.load(answer["model"]) as model:
        for layer, weights in alone.weights.items():
            for i, array in enumerate(weights):
                assert np.array_equal(model[f"{layer}/{i}"], array)
    lines = [
        json.loads(line)
        for line in Path(answer["model"]).with_name("iterations.jsonl").read_text().splitlines()
    ]
    means = [sum(alone.losses[k] for k in range(4 * t, 4 * t + 4)) / 4 for t in range(240)]
    assert [line["loss"] for line in lines[:-1]] == means


def test_no_machine_has_to_be_reliable(job: Path) -> None:
    spec = loads(JOB, job)
    assert spec.resources.reliable.machines == 0
    assert written(spec)["parallel"]["batch"] == 32
    trainer = JOB.replace("app: mlp", "app: mf").replace(
        "parallel: {batch: 32, elastic: {every: 2}}\n", ""
    )
    assert loads(trainer, job).resources.reliable.machines is None, "the plan chooses"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("app: mlp", "app: mpl", "'mpl' is no model; expected mlp, transformer"),
        ("app: mlp", "app: net.py:build", "there is no file 'net.py'"),
        ("stop:", "args: {rank: 3}\nstop:", "args: is for trainers"),
        ("batch: 32", "batch: 32, profile: none.json", "there is no file 'none.json'"),
        (
            "batch: 32",
            "device: V100",
            "parallel.device: is not cpu, and the nodes of a training compute on processors",
        ),
        (
            "batch: 32",
            "updates: 60",
            "parallel.updates: is for commands; write stop: {clocks: 500}",
        ),
        ("batch: 32", "replicas: 2", "parallel.replicas: is for commands; the nodes"),
        (
            "batch: 32",
            "allow_delay: 1",
            "parallel.allow_delay: is for scheme: auto of a command; write scheme: 2bw",
        ),
    ],
)
def test_mistakes_are_refused(job: Path, old: str, new: str, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        loads(JOB.replace(old, new), job)
