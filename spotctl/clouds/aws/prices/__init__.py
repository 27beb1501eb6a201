"""AWS: spot price history, instance types, on-demand prices, and published interruption figures."""

from spotctl.clouds.aws.prices.source import AwsSource

__all__ = ["AwsSource"]
