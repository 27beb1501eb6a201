"""`spotctl lab gavel`: its files, the price analysis, the simulated cluster, tables and plots."""
