"""`LocalPipeline`: nodes of a pipeline as processes of this computer."""

from __future__ import annotations

from agileml.pipeline.run.local import LocalPipeline

__all__ = ["LocalPipeline"]
