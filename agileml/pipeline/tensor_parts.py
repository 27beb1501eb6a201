"""Layers whose weights several devices share, for models of your own."""

from agileml.pipeline.model.tensor_parts import TensorPart, split_layer

__all__ = ["TensorPart", "split_layer"]
