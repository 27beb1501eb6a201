"""From where the nodes of a job load the model: the user's file, or a copy of an object of the caller's process."""

from dataclasses import dataclass
from typing import Any, cast

from agileml.apps.registry import TrainerSource
from agileml.copies import copy_of, original
from agileml.pipeline.model.base import PipelineModel, UpdateRule
from agileml.pipeline.model.user_model import model_factory
from agileml.pipeline.run.node import PipelineTask

_COPIED = "a model of the caller"
_MICROBATCH = "microbatch"


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
