"""`spotctl backtest`: scenario files, replays, tables and plots."""
