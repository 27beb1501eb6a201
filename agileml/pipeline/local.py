"""`LocalPipeline`: nodes of a pipeline as processes of this computer."""

from agileml.pipeline.run.local import LocalPipeline

__all__ = ["LocalPipeline"]
