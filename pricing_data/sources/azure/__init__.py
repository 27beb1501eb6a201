"""Azure: public retail prices, and with an account its machine types, spot price history and eviction rates."""

from pricing_data.sources.azure.settings import AzureSettings
from pricing_data.sources.azure.source import AzureSource

__all__ = ["AzureSettings", "AzureSource"]
