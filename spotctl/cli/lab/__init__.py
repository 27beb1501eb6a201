"""`spotctl lab`: analyses, and training without a market."""
