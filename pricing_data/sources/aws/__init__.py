"""AWS: spot price history, instance types, on-demand prices, and what it publishes about interruptions."""

from pricing_data.sources.aws.settings import AwsSettings
from pricing_data.sources.aws.source import AwsSource

__all__ = ["AwsSettings", "AwsSource"]
