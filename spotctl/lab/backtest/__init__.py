"""`spotctl lab backtest`: scenario files, replays, tables and plots."""
