"""Models that are built in, by the function that makes each."""

from agileml.pipeline.model.builtin import mlp, transformer

__all__ = ["mlp", "transformer"]
