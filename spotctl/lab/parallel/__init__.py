"""`spotctl lab parallel`: recorded fleets, and plans as tables and JSON."""
