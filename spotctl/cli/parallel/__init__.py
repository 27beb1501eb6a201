"""`spotctl parallel`: one model over several devices."""
