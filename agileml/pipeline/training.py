"""Pipeline trainings from Python."""

from agileml.pipeline.run.training import (
    PipelinePlan,
    PipelineStopped,
    TrainedPipeline,
    save_weights,
    train_local,
    train_simulated,
)

__all__ = ["PipelinePlan", "PipelineStopped", "TrainedPipeline", "save_weights", "train_local", "train_simulated"]
