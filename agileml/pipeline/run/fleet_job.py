"""A pipeline as a job of any fleet: processes of this computer, nodes that attach over TLS, Ray, rented machines."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, cast, get_args

from agileml.apps.registry import TrainerSource
from agileml.core.events import ControllerSettings
from agileml.job import Counters, GaveUp, Trained, TrainingJob
from agileml.params.layout import Params
from agileml.pipeline.builtin import model_factory
from agileml.pipeline.elastic.control import PipelineControl
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.elastic.messages import (
    CopyLayers,
    FramesLost,
    NodeInstruction,
    NodeReport,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.run.node import PipelineFrame, PipelineNode, PipelineTask
from agileml.pipeline.run.saved_layers import SavedLayers, model_of_layers
from agileml.pipeline.run.stage_program import check_joint_update
from agileml.pipeline.run.training import PipelinePlan, elastic_settings
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Leave, Ready, Version
from agileml.runtime.blob_store import BlobStore
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.node_loop import NodeLoop
from agileml.runtime.prepared_job import RunnableJob
from agileml.runtime.remote_blobs import blobs_of
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Result
from agileml.runtime.role_specs import UNLIMITED, ControllerRole, NodeRole
from agileml.runtime.vitals import Vitals
from agileml.transport import Connected, Lost, Rejected
from agileml.user_code import copy_of, original

PIPELINE_MESSAGES = (*get_args(NodeInstruction), *get_args(NodeReport), PipelineFrame)
"""Messages that only pipelines have."""


_MICROBATCH = "microbatch"


_COPIED = "a model of the caller"


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineControllerRole(ControllerRole):
    """The controller of a pipeline."""

    settings: ElasticSettings

    def control(self, settings: ControllerSettings, record: Mapping[str, Any] | None, now: float) -> PipelineControl:
        return PipelineControl.resumed(settings, self.settings, record, now)


@dataclass(frozen=True)
class ModelSource:
    """How the model of a job's source is trained. A model with an optimizer keeps it."""

    optimizer: UpdateRule
    scheme: str
    batch: int
    recompute: bool = False

    def task(self, source: TrainerSource) -> PipelineTask:
        model = load_model(source)
        return PipelineTask(model, model.optimizer or self.optimizer, self.scheme, self.recompute)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRole(NodeRole):
    """A machine that is a stage of a pipeline, or waits to become one."""

    work: ModelSource

    def process(self, vitals: Vitals) -> PipelineProcess:
        return PipelineProcess(self, vitals)

    def model(self, versions: Sequence[Version]) -> Params:
        return model_of_layers(versions)


@dataclass(frozen=True, slots=True)
class PreparedPipeline(RunnableJob):
    """A pipeline's job. An update is a clock, and a layer is a partition of the model."""

    nodes_are_alike = True

    code: str
    task: ModelSource
    settings: ElasticSettings

    @property
    def least_nodes(self) -> int:
        return min(self.settings.layouts)

    def controller_role(self, rendezvous: Rendezvous, memory: Path) -> ControllerRole:
        return PipelineControllerRole(
            rendezvous=rendezvous,
            memory=memory,
            code=self.code,
            job=self.job,
            model_bytes=round(sum(self.settings.layer_bytes)),
            messages=PIPELINE_MESSAGES,
            settings=self.settings,
        )

    def node_role(self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False) -> PipelineRole:
        return PipelineRole(
            name=name,
            reliable=reliable,
            rendezvous=rendezvous,
            job=self.job,
            work=self.task,
            partitions=len(self.settings.layer_bytes),
        )

    def trained(self, result: Result, blobs: BlobStore | None = None) -> Trained:
        """The result of the whole job, whose model is in the store. GaveUp: the job ended early."""
        assert blobs is not None
        store, layers = ModelCheckpoints(blobs), range(len(self.settings.layer_bytes))
        model = model_of_layers([store.load(layer, result.clock) for layer in layers])
        microbatches, _ = result.tally
        counters = Counters(microbatches, microbatches, 0, 0)
        counts = result.evictions, result.failures, result.interrupted, result.loss
        trained = Trained(result.clock, model, counters, *counts, microbatches)
        if result.failure:
            raise GaveUp(result.failure, trained)
        return trained


def prepare_pipeline(
    job: TrainingJob, task: ModelSource, plan: PipelinePlan, seconds: Sequence[float] | None = None
) -> PreparedPipeline:
    """Loads the model, and computes the layouts for all numbers of nodes. `job` says how many updates there are.

    `seconds` are those of each layer; without them, layers count by their weights.
    """
    model = load_model(job.source)
    steps = replace(plan, batches=job.stopping.last_clock or UNLIMITED)
    rule = model.optimizer or task.optimizer
    check_joint_update(model.layers, rule.clip_norm, steps.scheme, steps.tensor)
    return PreparedPipeline(job, job.source.code(), task, elastic_settings(model, steps, seconds))


def file_source(target: str, microbatch: int) -> TrainerSource:
    """The model of this name with `microbatch` samples per microbatch."""
    return TrainerSource(target, {_MICROBATCH: microbatch})


def copied_source(model: PipelineModel) -> TrainerSource:
    """A copy of a model."""
    return TrainerSource(_COPIED, copy_of(model))


def load_model(source: TrainerSource) -> PipelineModel:
    """The model of a source."""
    if source.target == _COPIED:
        return cast("PipelineModel", original(**cast("dict[str, Any]", source.arguments)))
    microbatch = source.arguments[_MICROBATCH]
    assert isinstance(microbatch, int)
    return model_factory(source.target)(microbatch)


class PipelineProcess(NodeLoop[PipelineNode]):
    """Computes on the thread that handles messages: what it waits for is a message."""

    def __init__(self, role: PipelineRole, vitals: Vitals) -> None:
        super().__init__(role, vitals, PIPELINE_MESSAGES)
        self._task = role.work
        self._code = role.job.source.code()
        self._saved: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._store = SavedLayers(blobs_of(role.rendezvous), self._note_saved)
        self._warm_epoch = 0
        """The latest epoch in which the node has worked: the first work may take longer than later work."""

    def run(self) -> bool:
        try:
            return super().run()
        finally:
            self._store.close()

    def _begin(self) -> None:
        role = self._role
        with self._vitals.step(first=True):
            task = self._task.task(role.job.source)
        self._vitals.note_loaded(f"the model {role.job.source.target}")
        report = partial(self._mailbox.send, CONTROLLER)
        self._node = PipelineNode(role.name, task, self._send, report, self._store)

    def _greet(self) -> None:
        assert self._node is not None
        self._mailbox.send(CONTROLLER, self._node.hello(self._role.reliable, self._code))
        self._mailbox.send(CONTROLLER, Ready(self._role.name))

    def _handle(self, message: object) -> None:
        node = self._node
        assert node is not None
        match message:
            case Leave():
                log.info("leaving: %s", message.reason)
                self._leaving, self._given_up = True, message.reason if message.lost else ""
            case TakeSeat():
                # What was sent in earlier epochs is not wanted any more, and some peers may be gone.
                self._mailbox.begin_epoch()
                self._work(node, message)
            case RunBatches() | CopyLayers() | PipelineFrame():
                self._work(node, message)

    def _work(self, node: PipelineNode, message: NodeInstruction | PipelineFrame) -> None:
        first = self._warm_epoch != message.epoch
        with self._vitals.step(first=first, at=(message.epoch, 0)):
            node.handle(message)
        if isinstance(message, RunBatches):
            self._warm_epoch = message.epoch
        self._mailbox.push()

    def _handle_link(self, event: Connected | Lost | Rejected) -> None:
        super()._handle_link(event)
        if isinstance(event, Lost) and event.peer != CONTROLLER and self._node is not None:
            self._mailbox.send(CONTROLLER, FramesLost(self._role.name, self._node.epoch))

    def _send(self, to: str, frame: PipelineFrame) -> None:
        self._mailbox.send(to, frame)
        # The other node waits for it, and this one may compute for long.
        self._mailbox.push()

    def _note_saved(self, then: Callable[[], None]) -> None:
        self._saved.put(then)
        self._mailbox.wake()

    def _end_turn(self) -> None:
        with suppress(Empty):
            while True:
                self._saved.get_nowait()()
