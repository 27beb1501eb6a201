"""What `beta`, `backtest`, `gavel` and `train` compute: options in, results out."""
