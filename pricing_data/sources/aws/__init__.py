"""AWS: spot price history, instance types, on-demand prices, and published interruption figures."""

from pricing_data.sources.aws.source import AwsSource

__all__ = ["AwsSource"]
