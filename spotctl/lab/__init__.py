"""The analyses behind `beta`, `backtest`, `gavel`, `parallel` and `train`: options in, results
out."""
