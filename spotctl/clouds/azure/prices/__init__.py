"""Azure: public retail prices, and with an account also machine types, spot price history and eviction rates."""

from spotctl.clouds.azure.prices.source import AzureSource

__all__ = ["AzureSource"]
