"""What can be done to a running job: `agileml.script`, by the name it had first."""

from __future__ import annotations

from agileml.script import Act, Evict, Join, KillController, KillNodes, Machine, Quiet, Script

__all__ = ["Act", "Evict", "Join", "KillController", "KillNodes", "Machine", "Quiet", "Script"]
