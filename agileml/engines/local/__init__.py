"""The `local` engine: a job on processes of this computer, which are really killed."""

from agileml.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
