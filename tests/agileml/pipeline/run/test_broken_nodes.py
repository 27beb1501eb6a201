"""Nodes whose link breaks while frames are on it, and nodes that hang: the run goes on, and the result is the same."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pytest

from agileml.pipeline.elastic.controller import ElasticController
from agileml.pipeline.elastic.messages import (
    CONTROLLER,
    INITIAL,
    AreYouThere,
    LeavePipeline,
    NodeReady,
    RunBatches,
    StillThere,
    TakeSeat,
)
from agileml.pipeline.elastic.seats import PipelineLayout, work_orders
from agileml.pipeline.model.base import Array, DrawKey, PipelineModel, Stash, Weights
from agileml.pipeline.model.layers import Dense
from agileml.pipeline.model.optimizers import Optimizer
from agileml.pipeline.run.hung_nodes import HungNodes
from agileml.pipeline.run.local import LocalPipeline
from agileml.pipeline.run.node import PipelineFrame, PipelineTask
from agileml.pipeline.run.training import PipelinePlan, controller_for
from agileml.pipeline.run.wire import Control, message_in, post
from agileml.pipeline.run.worker import PipelineWorker, WorkerBoot, socket_of
from agileml.runtime.own_folder import short_folder
from agileml.transport import Connected, Endpoint, Identity, LinkEvent, Received, TransportSettings
from agileml.transport.settings import PATIENT
from tests.agileml.pipeline.oracle import WIDTH, same, small_model, trained

SGD = Optimizer("sgd", 0.05)
TWO = {2: PipelineLayout((((0, 2), (3, 5)),), (4,))}


@dataclass(frozen=True)
class Faulty(Dense):
    """Once, in the forward pass of a microbatch, it breaks the links of its node, or waits for ever."""

    microbatch: int = 0
    once: str = ""
    hangs: bool = False

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        if self.once and key[1] == self.microbatch and not Path(self.once).exists():
            Path(self.once).touch()
            if self.hangs:
                threading.Event().wait()
            (endpoint,) = [value for value in gc.get_objects() if isinstance(value, Endpoint)]
            for peer in endpoint.peers - {"controller"}:
                endpoint.drop(peer, "the handshake took too long")
        return super().forward(weights, inputs, key)


def run(model: PipelineModel, batches: int, hang_timeout: float = 60.0, stop_at: int | None = None) -> LocalPipeline:
    """Trains on two nodes; may stop the second one's process after an update. The weights are as they should be."""
    controller: ElasticController = controller_for(model, PipelinePlan(batches, 4, layouts=TWO))

    stopped: list[LocalPipeline] = []

    def stop(pipeline: LocalPipeline) -> None:
        if controller.batch == stop_at and pipeline not in stopped:
            stopped.append(pipeline)
            os.kill(pipeline.processes[controller.history[-1].nodes[1]], signal.SIGSTOP)

    with LocalPipeline(PipelineTask(model, SGD, "flush"), controller, hang_timeout=hang_timeout) as pipeline:
        for name in ("n0", "n1"):
            pipeline.join(name)
        weights = pipeline.run(stop)
    assert same(weights, trained(small_model(), SGD, batches, 4, lambda _, t: t)[0])
    assert controller.losses.keys() == set(range(4 * batches))
    return pipeline


def with_fault(tmp_path: Path, hangs: bool) -> PipelineModel:
    """Its second layer, in the first stage, is faulty once, in the second forward pass of update 2."""
    model = small_model()
    faulty = Faulty(WIDTH, WIDTH, microbatch=9, once=str(tmp_path / "once"), hangs=hangs)
    return PipelineModel((model.layers[0], faulty, *model.layers[2:]), model.loss, model.data, model.seed)


@pytest.mark.timeout(600)
def test_frames_on_a_broken_link_are_made_good(tmp_path: Path) -> None:
    """The first forward pass of the update is posted, and is lost with the link before it is sent."""
    pipeline = run(with_fault(tmp_path, hangs=False), 4)
    assert (tmp_path / "once").exists()
    assert len(pipeline.controller.history) >= 2
    assert pipeline.hung == []


@pytest.mark.timeout(600)
def test_hung_nodes_are_replaced(tmp_path: Path) -> None:
    """One waits for a lock, the other one is stopped from outside."""
    pipeline = run(with_fault(tmp_path, hangs=True), 6, hang_timeout=4.0, stop_at=4)
    assert (tmp_path / "once").exists()
    assert len(pipeline.hung) >= 2


class Breaking(Endpoint):
    """Breaks a link to each peer before its owner hears that it is open, and a later one before it sees a message."""

    def __init__(self, identity: Identity, secret: bytes, settings: TransportSettings) -> None:
        super().__init__(identity, secret, settings)
        self.broke: set[tuple[type[LinkEvent], str]] = set()

    def poll(self, timeout: float | None = None) -> list[LinkEvent]:
        events = super().poll(timeout)
        for event in events:
            if not isinstance(event, Connected | Received) or event.peer not in self.peers:
                continue
            if (type(event), event.peer) not in self.broke:
                self.broke.add((type(event), event.peer))
                self.drop(event.peer, "the computer is busy")
        return events


@pytest.mark.timeout(600)
def test_a_node_outlives_links_that_break_as_they_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer to the controller, and a frame that waits for a peer, go out on later links."""
    monkeypatch.setattr("agileml.pipeline.run.worker.Endpoint", Breaking)
    folder, secret = short_folder(), b"s" * 32
    task = cloudpickle.dumps(PipelineTask(small_model(), SGD, "flush"))
    node = PipelineWorker(WorkerBoot("n0", folder, secret, task, os.getppid()))
    controller, peer = (Endpoint(Identity(name), secret, PATIENT) for name in (CONTROLLER, "n1"))
    controller.listen(socket_of(folder, CONTROLLER))

    with ThreadPoolExecutor(1) as thread:
        ended = thread.submit(node.run)

        def received(endpoint: Endpoint, wanted: type, greeting: Control | None = None) -> Control | PipelineFrame:
            while not ended.done():
                for event in endpoint.poll(0.1):
                    if isinstance(event, Connected) and greeting is not None and event.peer in endpoint.peers:
                        post(endpoint, event.peer, greeting)
                    if isinstance(event, Received) and isinstance(message := message_in(event), wanted):
                        return message
            ended.result()
            raise AssertionError("the node ended")

        received(controller, StillThere, AreYouThere())
        post(controller, "n0", TakeSeat(1, 0, (0, 1, 2), dict.fromkeys(range(3), INITIAL), (), ("n0", "n1")))
        received(controller, NodeReady)
        work = work_orders(TWO[2], ("n0", "n1"), "flush", 0, 1)["n0"]
        post(controller, "n0", RunBatches(1, 0, 1, work, ()))
        post(controller, "n0", AreYouThere())
        received(controller, StillThere)
        # Its first activation waits by now.
        peer.listen(socket_of(folder, "n1"))
        received(peer, PipelineFrame)
        post(controller, "n0", LeavePipeline(1))
        controller.flush(120.0)
        ended.result(120.0)
    for endpoint in (controller, peer):
        endpoint.close()
    shutil.rmtree(folder)


def test_a_node_hangs_if_it_neither_answers_nor_computes() -> None:
    used = {1: 0.0, 2: 0.0, 3: 0.0}
    watch = HungNodes(10.0, 0.0, used.__getitem__)
    processes = {"answers": 1, "computes": 2, "stopped": 3}
    assert not watch.asks(2.0)
    assert watch.asks(3.0)
    for second in range(1, 12):
        used[2] += 1.0
        watch.heard("answers")
        assert watch.look(float(second), processes) == []
    watch.heard("answers")
    used[2] += 1.0
    assert watch.look(12.0, processes) == ["stopped"]
    # Whatever it computes, in the end it counts as hung; and a watch that was stopped itself blames no node.
    del processes["stopped"]
    assert watch.look(5000.0, processes) == []
    for second in range(5001, 5200):
        used[2] += 1.0
        watch.heard("answers")
        hung = watch.look(float(second), processes)
    assert hung == ["computes"]
