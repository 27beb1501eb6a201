"""Machines that are processes of this computer, on a market that replays a price history faster than time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotctl.clouds.local.provider import LocalProvider, LocalSettings, MarketBusy

__all__ = ["LocalProvider", "LocalSettings", "MarketBusy"]


def __getattr__(name: str) -> object:
    """Imports the provider when it is used: a hypervisor imports this package without any third-party module."""
    if name in __all__:
        from spotctl.clouds.local import provider

        return getattr(provider, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
