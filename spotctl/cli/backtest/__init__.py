"""`spotctl backtest`: strategies replayed over recorded markets."""
