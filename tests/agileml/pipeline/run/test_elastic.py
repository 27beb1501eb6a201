"""Elastic pipelines: random schedules in virtual time, and processes that are really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from agileml.errors import BadArgument, JobFailed
from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.layers import Dense, cross_entropy, squared_error
from agileml.pipeline.model.base import PipelineModel, Weights
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.plan.parallel_plan import SplitRequest, Topology
from agileml.pipeline.plan.planner import plan as best_plan
from agileml.pipeline.profile.model_profile import LayerCost, ModelProfile
from agileml.pipeline.run.local import PipelineStopped, parse_faults, train_local, train_simulated
from agileml.pipeline.run.training import PipelinePlan, planned_training
from tests.agileml.pipeline.oracle import Waves, same, small_model, trained
from tests.agileml.pipeline.run.elastic_schedules import problem
from tests.samples import PIPELINE_PROCESSES
from tests.waiting import eventually

MODEL = small_model()
MOMENTUM = Optimizer("momentum", 0.05)
STRAIGHT = {
    n: PipelineLayout((spans,), (4,)) for n, spans in [(1, ((0, 5),)), (2, ((0, 2), (3, 5)))]
}
STRAIGHT[3] = PipelineLayout((((0, 1), (2, 3), (4, 5)),), (4,))
TWICE = PipelineLayout((((0, 2), (3, 5)),) * 2, (2, 2))


# In 840, the links of a node are cut while frames of one that is gone are still on their way to it.
@pytest.mark.parametrize("seed", [*range(25), 840])
def test_random_schedules_change_nothing(seed: int) -> None:
    assert problem(seed) is None


def undisturbed(batches: int, late: int = 0) -> dict[int, Weights]:
    return trained(MODEL, MOMENTUM, batches, 4, lambda _, t: max(t - late, 0))[0]


@PIPELINE_PROCESSES
def test_evictions_with_and_without_warning_and_joins() -> None:
    """Real processes: kills with and without another replica, a warned node, and new nodes for all
    of them.
    """
    plan = PipelinePlan(60, 4, "flush", every=3, layouts={3: STRAIGHT[3], 4: TWICE})
    faults = parse_faults("kill 2, join 2, warn 20, join 20, kill 40, join 40")
    result = train_local(MODEL, MOMENTUM, plan, 4, faults=faults)
    assert same(result.weights, undisturbed(60))
    assert result.losses.keys() == set(range(240))
    assert faults.faults == []
    assert len(result.history) >= 4


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
from tests.agileml.pipeline.run.test_elastic import MODEL, MOMENTUM, STRAIGHT
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


def test_two_one_one_equals_one_process_with_its_rounds() -> None:
    """Stage 1 on two nodes: input k on node k mod 2, one update per round of 2."""
    spans, counts, inputs = ((0, 2), (3, 3), (4, 5)), (2, 1, 1), 12
    layout = PipelineLayout((spans,), (1,), replicas=counts, extra=1)
    plan = PipelinePlan(inputs, 1, "pipedream", every=inputs, layouts={4: layout})
    result = train_simulated(MODEL, MOMENTUM, plan, 4)
    warm = (2, 2, 0)
    count = len(MODEL.layers)
    stage = [next(s for s, (a, b) in enumerate(spans) if a <= i <= b) for i in range(count)]
    history = [[MODEL.initial(i)] for i in range(count)]
    states = [MOMENTUM.initial(versions[0]) for versions in history]
    rounds: list[list[Weights]] = [[] for _ in range(count)]
    for k in range(inputs):
        used = [history[i][max(k // counts[stage[i]] - warm[stage[i]], 0)] for i in range(count)]
        values, targets = MODEL.data(k)
        stashes = []
        for i, layer in enumerate(MODEL.layers):
            values, stash = layer.forward(used[i], values, (MODEL.seed, k, i))
            stashes.append(stash)
        _, gradient = MODEL.loss(values, targets)
        for i in reversed(range(count)):
            gradient, part = MODEL.layers[i].backward(used[i], stashes[i], gradient)
            rounds[i].append(part)
            if len(rounds[i]) == counts[stage[i]]:
                mean = tuple(np.mean(parts, axis=0) for parts in zip(*rounds[i], strict=True))
                weights, states[i] = MOMENTUM.step(history[i][-1], states[i], mean, len(history[i]))
                history[i].append(weights)
                rounds[i] = []
    for i in range(count):
        for weight, other in zip(result.weights[i], history[i][-1], strict=True):
            np.testing.assert_allclose(weight, other, rtol=0, atol=1e-12)


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


def test_a_diverging_run_names_the_node_and_the_microbatch() -> None:
    model = PipelineModel(
        (Dense(5, 5, squash=False), Dense(5, 1, squash=False)), squared_error, Waves()
    )
    with (
        pytest.raises(JobFailed, match=r"t\d: microbatch \d+: the loss is (inf|nan)"),
        np.errstate(all="ignore"),
    ):
        train_simulated(model, Optimizer("sgd", 1e80), PipelinePlan(20, 2), 2)


def test_cross_entropy_of_known_shares() -> None:
    loss, gradient = cross_entropy(np.log(np.array([[1.0, 3.0]])), np.array([1]))
    assert loss == pytest.approx(-np.log(0.75))
    np.testing.assert_allclose(gradient, [[0.25, -0.25]])


def test_a_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npz"
    file.write_bytes(b"nonsense")
    with pytest.raises(BadArgument, match="cannot be read"):
        train_local(MODEL, MOMENTUM, PipelinePlan(1, 4), 1, checkpoint=file)
