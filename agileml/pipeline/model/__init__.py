"""Models as a pipeline trains them: layers, their parts, optimizers, and the models of users."""

from agileml.pipeline.model.base import PipelineModel

__all__ = ["PipelineModel"]
