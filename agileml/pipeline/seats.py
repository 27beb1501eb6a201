"""`PipelineLayout`: which layers and copies each node holds."""

from agileml.pipeline.elastic.seats import PipelineLayout

__all__ = ["PipelineLayout"]
