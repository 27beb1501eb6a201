"""`spotctl prices`: market data in and out, questions about it, and waiting for a price."""
