"""`spotctl top`: a run as it is, and as it came to be. `past` and `shown` are pure; `lookout` reads, `app` shows."""
