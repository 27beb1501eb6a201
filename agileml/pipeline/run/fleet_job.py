"""A pipeline as a job of any fleet: processes of this computer, nodes that attach over TLS, Ray,
rented machines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

from agileml.apps.registry import TrainerSource
from agileml.core.events import Iteration
from agileml.engines.sim.fleet import SimulableJob
from agileml.engines.sim.job import JobSimulation, Machines
from agileml.job import Counters, GaveUp, Trained, TrainingJob
from agileml.params.layout import Params
from agileml.pipeline.builtin import model_factory
from agileml.pipeline.elastic.control import PipelineControl
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.elastic.seats import (
    BatchesDone,
    CopyKept,
    FramesLost,
    NodeInstruction,
    RunBatches,
    TakeSeat,
)
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.run.node import PipelineNode, PipelineTask
from agileml.pipeline.run.stage_program import check_joint_update
from agileml.pipeline.run.training import PipelinePlan, elastic_settings, model_of_layers
from agileml.pipeline.tensor_parts import PipelineFrame
from agileml.protocol.actions import CONTROLLER, Action, Save
from agileml.protocol.messages import Leave, Version
from agileml.runtime.node_loop import NodeLoop
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Result
from agileml.runtime.rights import Bounds
from agileml.runtime.role_specs import (
    UNLIMITED,
    ControllerRole,
    NodeRole,
    Vitals,
    controller_settings,
)
from agileml.user_code import copy_of, original

PIPELINE_MESSAGES = (*get_args(NodeInstruction), BatchesDone, CopyKept, FramesLost, PipelineFrame)
"""Messages that only pipelines have."""


_MICROBATCH = "microbatch"


_COPIED = "the model that the caller passed"


_RETRY_SECONDS = 1.0


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
class PreparedPipeline(SimulableJob):
    """A pipeline's job. An update is a clock, and a layer is a partition of the model."""

    nodes_are_alike = True

    code: str
    task: ModelSource
    settings: ElasticSettings

    @property
    def least_nodes(self) -> int:
        return min(self.settings.layouts)

    def controller_role(self, rendezvous: Rendezvous, memory: Path) -> ControllerRole:
        return ControllerRole(
            rendezvous=rendezvous,
            memory=memory,
            code=self.code,
            job=self.job,
            model_bytes=round(sum(self.settings.layer_bytes)),
            control=partial(PipelineControl.resumed, self.settings),
            messages=PIPELINE_MESSAGES,
            bounds=Bounds(len(self.settings.layer_bytes)),
        )

    def node_role(
        self, rendezvous: Rendezvous, name: str = "", *, reliable: bool = False
    ) -> PipelineRole:
        return PipelineRole(
            name=name,
            reliable=reliable,
            rendezvous=rendezvous,
            job=self.job,
            work=self.task,
            partitions=len(self.settings.layer_bytes),
        )

    def simulation(
        self, machines: Machines, stop: Callable[[Iteration], bool]
    ) -> JobSimulation[PipelineNode, PipelineControl]:
        task = self.task.task(self.job.source)
        rules = controller_settings(self.job, self.code, stop)
        control = partial(PipelineControl.resumed, self.settings, rules)
        return JobSimulation(
            rules, control, lambda name: PipelineNode(name, task), machines, self.job.settings.seed
        )

    def trained(self, result: Result, load: Callable[[int, int], Version]) -> Trained:
        layers = range(len(self.settings.layer_bytes))
        model = model_of_layers([load(layer, result.clock) for layer in layers])
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
    """Loads the model, and computes the layouts for all numbers of nodes. `job` says how many
    updates there are.

    `seconds` are those of each layer; without them, layers count by their weights.
    """
    model = load_model(job.source)
    steps = replace(plan, batches=job.stopping.clocks or UNLIMITED)
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

    begins_epoch = TakeSeat

    def __init__(self, role: PipelineRole, vitals: Vitals) -> None:
        super().__init__(role, vitals, PIPELINE_MESSAGES)
        self._task = role.work
        self._warm_epoch = 0
        """The latest epoch in which the node has worked: the first work may take longer than later
        work."""

    def _begin(self) -> None:
        source = self._role.job.source
        with self._vitals.step(first=True):
            task = self._task.task(source)
        self._vitals.note_loaded(
            source.target if source.target == _COPIED else f"the model {source.target}"
        )
        self._node = PipelineNode(self._role.name, task)

    def _handle(self, message: object, sender: str = CONTROLLER) -> None:
        if isinstance(message, Leave):
            super()._handle(message, sender)
            return
        epoch: int = getattr(message, "epoch", 0)
        with self._vitals.step(first=self._warm_epoch != epoch, at=(epoch, 0)):
            super()._handle(message, sender)
        if isinstance(message, RunBatches):
            self._warm_epoch = epoch

    def _carry_out(self, action: Action) -> None:
        super()._carry_out(action)
        # Another process waits for it, and this one may compute for long.
        self._mailbox.push()

    def _write(self, save: Save) -> bool:
        """Tries until it succeeds: the next checkpoint waits for this one. A later epoch saves
        copies of its own.
        """
        assert self._node is not None
        while (
            not (written := super()._write(save))
            and not self._leaving
            and save.epoch == self._node.epoch
        ):
            time.sleep(_RETRY_SECONDS)
        return written
