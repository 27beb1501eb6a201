"""Google Cloud: machine types, spot price and preemption history, and the public price list."""

from pricing_data.sources.gcp.source import GcpSource

__all__ = ["GcpSource"]
