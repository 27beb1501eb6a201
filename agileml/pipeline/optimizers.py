"""`Optimizer`, for trainings from Python."""

from agileml.pipeline.model.optimizers import Optimizer

__all__ = ["Optimizer"]
