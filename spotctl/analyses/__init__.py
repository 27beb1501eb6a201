"""The questions that `beta`, `backtest`, `gavel` and `train` answer."""
