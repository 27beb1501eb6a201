"""Azure: public retail prices, and with an account also machine types, spot price history and eviction rates."""

from pricing_data.sources.azure.source import AzureSource

__all__ = ["AzureSource"]
