"""Models that are built in, by the function that makes each."""

from agileml.pipeline.model.user_model import mlp, transformer

__all__ = ["mlp", "transformer"]
