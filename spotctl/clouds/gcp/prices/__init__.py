"""Google Cloud: machine types, spot price and preemption history, and the public price list."""

from spotctl.clouds.gcp.prices.source import GcpSource

__all__ = ["GcpSource"]
