"""Optimizers, for trainings from Python: numpy's and PyTorch's."""

from agileml.pipeline.model.optimizers import Optimizer
from agileml.pipeline.model.torch_optimizers import TorchOptimizer

__all__ = ["Optimizer", "TorchOptimizer"]
