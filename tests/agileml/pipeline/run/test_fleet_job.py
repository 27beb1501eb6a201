"""Pipelines as jobs of fleets: processes of this computer and nodes that attach over TLS, with
losses of every kind.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agileml.core.events import Iteration
from agileml.engines.attached import AttachEngine
from agileml.engines.chaos import QUIET
from agileml.errors import AgileMLError, BadArgument
from agileml.job import Stopping, TrainingJob
from agileml.pipeline.builtin import Dense, squared_error
from agileml.pipeline.model.base import PipelineModel
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import ModelSource, copied_source, load_model, prepare_pipeline
from agileml.pipeline.run.training import PipelinePlan
from agileml.runtime.folders import read_secret
from agileml.transport import TcpAddress
from tests.agileml.pipeline.oracle import Waves, small_model, trained
from tests.agileml.pipeline.run.fleet_jobs import (
    BATCH,
    MOMENTUM,
    NODES,
    Faults,
    check,
    prepared,
    problem,
    run,
    same,
)
from tests.samples import PIPELINE_PROCESSES


@PIPELINE_PROCESSES
@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "late"), [("flush", 0), ("2bw", 1)])
def test_losses_of_nodes_and_of_the_controller_change_nothing(scheme: str, late: int) -> None:
    script = Faults({3: "kill", 6: "warn", 9: "kill", 12: "controller"})
    result, iterations = run(prepared(16, scheme), script)
    assert script.left == {}
    check(result, iterations, 16, late)
    assert result.failures >= 2


@PIPELINE_PROCESSES
@pytest.mark.slow
def test_a_job_survives_the_loss_of_all_nodes() -> None:
    """They return to the newest state in the store, and the updates after it are done again."""
    result, iterations = run(prepared(60, save_every=3), Faults({8: "all"}))
    check(result, iterations, 60)
    begun = [
        event
        for iteration in iterations[8:]
        for event in iteration.events
        if " from update " in event
    ]
    # Nodes that are killed a moment later may begin an epoch from what they hold.
    assert any(int(event.split(" from update ")[1].split()[0]) % 3 == 0 for event in begun)


@PIPELINE_PROCESSES
def test_a_neighbor_has_the_copy_that_an_unwarned_loss_needs() -> None:
    """Nothing is in the store, and the work of one update at most is done again."""
    result, iterations = run(prepared(60, save_every=100), Faults({6: "kill"}))
    check(result, iterations, 60)
    begun = [
        event
        for iteration in iterations[5:]
        for event in iteration.events
        if " from update " in event
    ]
    assert begun
    assert all(int(event.split(" from update ")[1].split()[0]) >= 4 for event in begun)


def test_a_model_that_diverges_ends_the_job() -> None:
    model = PipelineModel(
        (Dense(5, 5, squash=False), Dense(5, 1, squash=False)), squared_error, Waves()
    )
    job = TrainingJob(copied_source(model), 2, 0, Stopping(clocks=40))
    task = ModelSource(Optimizer("sgd", 1e80), "flush", BATCH)
    plan = prepare_pipeline(job, task, PipelinePlan(1, BATCH, most_nodes=2))
    with pytest.raises(AgileMLError, match=r"r\d: microbatch \d+: the loss is (inf|nan)"):
        run(plan, Faults({}))


@PIPELINE_PROCESSES
def test_a_job_that_stops_at_a_loss_ends_with_its_model() -> None:
    _, losses = trained(small_model(), MOMENTUM, 8, BATCH, lambda _, t: t)
    means = [sum(losses[k] for k in range(BATCH * t, BATCH * (t + 1))) / BATCH for t in range(8)]
    job = TrainingJob(copied_source(small_model()), 2, 0, Stopping(loss=means[4]))
    plan = prepare_pipeline(
        job, ModelSource(MOMENTUM, "flush", BATCH), PipelinePlan(1, BATCH, most_nodes=2)
    )
    result, iterations = run(plan, Faults({}))
    first = next(t for t, mean in enumerate(means) if mean <= means[4]) + 1
    assert result.clocks in (first + 1, first + 2)
    assert same(result, trained(small_model(), MOMENTUM, result.clocks, BATCH, lambda _, t: t)[0])
    assert len(iterations) == result.clocks


def test_a_profile_of_another_model_is_refused() -> None:
    job = TrainingJob(copied_source(small_model()), 2, 0, Stopping(clocks=1))
    task = ModelSource(MOMENTUM, "flush", BATCH)
    with pytest.raises(BadArgument, match="the profile has 3 layers, and the model 6"):
        prepare_pipeline(job, task, PipelinePlan(1, BATCH), [1.0, 1.0, 1.0])
    assert len(load_model(job.source).layers) == 6


def join(port: int, secret: Path, name: str) -> subprocess.Popen[bytes]:
    command = [
        "-m",
        "agileml.join",
        f"127.0.0.1:{port}",
        "--secret-file",
        str(secret),
        "--name",
        name,
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *command], env=environment, stderr=subprocess.DEVNULL)


@PIPELINE_PROCESSES
@pytest.mark.slow
def test_nodes_that_attach_over_tls(tmp_path: Path) -> None:
    """One is killed and another one joins; then one is warned, hands over its stage and leaves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    secret = tmp_path / "secret"
    secret.write_text("a secret of at least sixteen bytes")
    secret.chmod(0o600)
    nodes = {f"n{i}": join(port, secret, f"n{i}") for i in range(NODES)}
    iterations: list[Iteration] = []

    def listen(iteration: Iteration) -> None:
        iterations.append(iteration)
        if iteration.clock == 4:
            nodes["n1"].kill()
            nodes["n4"] = join(port, secret, "n4")
        elif iteration.clock == 8:
            nodes["n2"].terminate()

    engine = AttachEngine(TcpAddress("127.0.0.1", port), read_secret(secret))
    try:
        result = engine.run(prepared(40, heartbeat_timeout=10.0), QUIET, listen)
        assert nodes["n2"].wait() == 0
    finally:
        # One that started too late for the job would look for it for a while.
        for node in nodes.values():
            node.kill()
            node.wait()
    check(result, iterations, 40)
    assert (result.evictions, result.failures) == (1, 1)


@PIPELINE_PROCESSES
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_cut_connections_and_lost_nodes_change_nothing(seed: int) -> None:
    assert problem(seed) is None
