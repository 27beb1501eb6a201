"""`PipelineLayout`: which layers and copies each node holds."""

from __future__ import annotations

from agileml.pipeline.elastic.seats import PipelineLayout

__all__ = ["PipelineLayout"]
