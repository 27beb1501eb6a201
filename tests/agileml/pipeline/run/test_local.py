"""Elastic pipelines: random schedules in virtual time, and processes that are really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agileml.errors import BadArgument
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.model.base import Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.plan.parallel_plan import SplitRequest, Topology
from agileml.pipeline.plan.planner import plan as best_plan
from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile
from agileml.pipeline.run.local import PipelineStopped, parse_faults, train_local, train_simulated
from agileml.pipeline.run.training import PipelinePlan, planned_training
from tests.agileml.pipeline.oracle import same, small_model, trained
from tests.samples import PIPELINE_PROCESSES
from tests.waiting import eventually

MODEL = small_model()
MOMENTUM = Optimizer("momentum", 0.05)
STRAIGHT = {
    n: PipelineLayout((spans,), (4,)) for n, spans in [(1, ((0, 5),)), (2, ((0, 2), (3, 5)))]
}
STRAIGHT[3] = PipelineLayout((((0, 1), (2, 3), (4, 5)),), (4,))


def undisturbed(batches: int, late: int = 0) -> dict[int, Weights]:
    return trained(MODEL, MOMENTUM, batches, 4, lambda _, t: max(t - late, 0))[0]


@PIPELINE_PROCESSES
def test_double_buffering_survives_the_loss_of_its_last_copy() -> None:
    """One of two stages is killed, and a spare node takes its place: both go back to the last
    backup.
    """
    plan = PipelinePlan(20, 4, "2bw", every=2, layouts={2: STRAIGHT[2]})
    result = train_local(MODEL, MOMENTUM, plan, 3, faults=parse_faults("kill 4"))
    assert same(result.weights, undisturbed(20, late=1))
    assert result.history[0].nodes[0] not in result.history[-1].nodes


@PIPELINE_PROCESSES
@pytest.mark.parametrize("fault", ["kill", "warn"])
def test_too_few_nodes_end_the_run_with_the_newest_copy(fault: str) -> None:
    """Those that stay save it: the store gets one every 1000 updates only."""
    plan = PipelinePlan(100_000, 4, save_every=1000, layouts={2: STRAIGHT[2]})
    with pytest.raises(
        PipelineStopped, match=r"1 nodes are left in update \d+, and the model needs at least 2"
    ) as ended:
        train_local(MODEL, MOMENTUM, plan, 2, faults=parse_faults(f"{fault} 3"))
    assert 1 <= ended.value.update < 1000
    assert same(ended.value.trained.weights, undisturbed(ended.value.update))
    assert ended.value.trained.losses.keys() == set(range(4 * ended.value.update))
    with pytest.raises(BadArgument, match="nodes is 1: flush needs at least 2"):
        train_local(MODEL, MOMENTUM, plan, 1)


def test_a_plan_is_trained_as_it_says() -> None:
    """Interleaved on two pipelines of two stages, as the planner chooses where links are fast."""
    layers = tuple(LayerCost(str(i), 1.0, 2.0, 1.0, 1.0, 1.0) for i in range(len(MODEL.layers)))
    request = SplitRequest(
        Topology((4,), (1e9,)), 8, scheme="interleaved", stages=2, pipelines=2, chunks=2
    )
    chosen = best_plan([ModelProfile("small", 2, layers)], request)
    planned = planned_training(chosen, MODEL, batches=3)
    assert planned.layouts is not None
    assert [len(spans) for spans in planned.layouts[4].pipelines] == [4, 4]
    result = train_simulated(MODEL, MOMENTUM, planned, 4)
    assert same(result.weights, undisturbed(3))
    with pytest.raises(BadArgument, match="for 5 layers, and the model has 6"):
        planned_training(best_plan([ModelProfile("small", 2, layers[:5])], request), MODEL, 3)


_SCRIPT = """
import sys
from pathlib import Path
from agileml.pipeline.run.local import train_local
from agileml.pipeline.run.training import PipelinePlan
from tests.agileml.pipeline.run.test_local import MODEL, MOMENTUM, STRAIGHT
plan = PipelinePlan(100_000, 4, layouts={2: STRAIGHT[2]})
train_local(MODEL, MOMENTUM, plan, 2, checkpoint=Path(sys.argv[1]))
"""


@PIPELINE_PROCESSES
def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Its processes end by themselves and leave nothing; the next one ends where the first has
    been, or later.
    """
    file, folders = tmp_path / "run.npz", tmp_path / "folders"
    folders.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(folders)}
    with subprocess.Popen([sys.executable, "-c", _SCRIPT, str(file)], env=environment) as first:
        eventually(lambda: file.exists() and kept_batch(file) >= 3)
        first.send_signal(signal.SIGKILL)
    eventually(lambda: not list(folders.iterdir()))
    at = kept_batch(file)
    plan = PipelinePlan(at + 2, 4, layouts={2: STRAIGHT[2]})
    for _ in range(2):
        result = train_local(MODEL, MOMENTUM, plan, 2, checkpoint=file)
        assert [epoch.batch for epoch in result.history] in ([at], [])
        assert same(result.weights, undisturbed(at + 2))
        assert result.losses.keys() == set(range(4 * at + 8))
    assert kept_batch(file) == at + 2
    with pytest.raises(
        BadArgument, match="written by flush with 4 microbatches, and this run is flush with 2"
    ):
        train_local(MODEL, MOMENTUM, PipelinePlan(at + 2, 2), 2, checkpoint=file)


def kept_batch(file: Path) -> int:
    with np.load(file) as saved:
        return int(saved["about"].tobytes().split(b'"batch": ')[1].split(b",")[0])


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (PipelinePlan(1, 4, "pipedream"), "batch is 4: pipedream updates after every microbatch"),
        (
            PipelinePlan(1, 4, least_stages=7),
            "least_stages is 7 with 1 chunks, and the model has 6 layers",
        ),
        (PipelinePlan(1, 4, chunks=2), "chunks is 2: only the interleaved scheme"),
        (PipelinePlan(0, 4), "batches is 0"),
        (PipelinePlan(1, 2, "2bw", least_stages=3), "batch is 2: no layout of 2bw"),
    ],
)
def test_plans_that_cannot_run(plan: PipelinePlan, message: str) -> None:
    with pytest.raises(BadArgument, match=message):
        train_simulated(MODEL, MOMENTUM, plan, 2)


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    file.write_bytes(b"nonsense")
    with pytest.raises(BadArgument, match="cannot be read"):
        train_local(MODEL, MOMENTUM, PipelinePlan(1, 4), 1, checkpoint=file)
