"""Machines that are processes of this computer, on a market that is a price history played fast."""

from __future__ import annotations

from spotctl.machines.local.provider import LocalProvider, LocalSettings, MarketBusy

__all__ = ["LocalProvider", "LocalSettings", "MarketBusy"]
