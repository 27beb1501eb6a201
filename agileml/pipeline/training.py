"""Pipeline trainings from Python."""

from agileml.pipeline.elastic.seats import PipelineLayout
from agileml.pipeline.run.local import (
    PipelineStopped,
    parse_faults,
    save_weights,
    train_local,
    train_simulated,
)
from agileml.pipeline.run.training import PipelinePlan, TrainedPipeline

__all__ = [
    "PipelineLayout",
    "PipelinePlan",
    "PipelineStopped",
    "TrainedPipeline",
    "parse_faults",
    "save_weights",
    "train_local",
    "train_simulated",
]
