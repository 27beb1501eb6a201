"""`spotctl lab parallel`: one model over several devices."""
