"""A pipeline as a job of any fleet: processes of this computer, nodes that attach over TLS, Ray, rented machines."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agileml.core.events import ControllerSettings
from agileml.job import Counters, GaveUp, Trained, TrainingJob
from agileml.pipeline.elastic.control import PipelineControl
from agileml.pipeline.elastic.controller import ElasticController, ElasticSettings
from agileml.pipeline.run.fleet_node import PIPELINE_MESSAGES, ModelSource, PipelineRole, load_model
from agileml.pipeline.run.saved_layers import model_of_layers
from agileml.pipeline.run.stage_program import check_joint_update
from agileml.pipeline.run.training import PipelinePlan, elastic_settings
from agileml.runtime.blob_store import BlobStore
from agileml.runtime.checkpoints import ModelCheckpoints
from agileml.runtime.prepared_job import RunnableJob
from agileml.runtime.rendezvous import Rendezvous
from agileml.runtime.results import Result
from agileml.runtime.role_specs import UNLIMITED, ControllerRole


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineControllerRole(ControllerRole):
    """The controller of a pipeline."""

    settings: ElasticSettings

    def control(self, settings: ControllerSettings, record: Mapping[str, Any] | None, now: float) -> PipelineControl:
        elastic = ElasticController(self.settings)
        if record is None:
            return PipelineControl(settings, elastic)
        return PipelineControl.resumed(settings, elastic, record, now)


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
