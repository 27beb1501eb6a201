"""Models that are built in, by the function that makes each."""

from __future__ import annotations

from agileml.pipeline.model.builtin import mlp, transformer

__all__ = ["mlp", "transformer"]
