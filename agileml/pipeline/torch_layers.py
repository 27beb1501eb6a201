"""PyTorch modules as layers, for models of your own."""

from agileml.pipeline.model.torch_layers import TorchLayer, TorchLoss, modules_from, modules_with, torch_layers

__all__ = ["TorchLayer", "TorchLoss", "modules_from", "modules_with", "torch_layers"]
