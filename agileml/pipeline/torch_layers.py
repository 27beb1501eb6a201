"""PyTorch modules as layers, for models of your own."""

from agileml.pipeline.model.torch_layers import TorchLayer, torch_layers

__all__ = ["TorchLayer", "torch_layers"]
