"""The product: command line, cloud adapters, orchestrator, ledger and reports.

In scripts and notebooks, `plan`, `launch` and `report` do what the commands of these names do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.cli.api import launch, plan, report

__all__ = ["launch", "plan", "report"]


def __getattr__(name: str) -> object:
    """Loads these functions on first use: machines and the command line import this package,
    too."""
    if name in __all__:
        from spotctl.cli import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
