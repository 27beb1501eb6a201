"""`spotctl lab backtest`: strategies replayed over recorded markets."""
