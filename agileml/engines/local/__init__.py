"""The `local` engine: a job on processes of this computer, which are really killed."""

from __future__ import annotations

from agileml.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
