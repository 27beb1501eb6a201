"""`Optimizer`, for trainings from Python."""

from __future__ import annotations

from agileml.pipeline.model.optimizers import Optimizer

__all__ = ["Optimizer"]
