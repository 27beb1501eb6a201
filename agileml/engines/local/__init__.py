"""The `local` engine: a job on processes of this computer, which are really killed."""

from agileml.engines.local.fleet import LocalEngine

__all__ = ["LocalEngine"]
