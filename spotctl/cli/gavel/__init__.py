"""`spotctl lab gavel`: machine types for jobs, simulated clusters, and the price analysis."""
