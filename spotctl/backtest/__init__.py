"""Scenario files of `spotctl backtest`, and how results are shown."""
