"""The `ray` engine: a job on the machines of a Ray cluster, which places, starts and ends its nodes."""

from __future__ import annotations

from agileml.engines.ray.engine import RayEngine

__all__ = ["RayEngine"]
