"""What to rent and why: offers, the share that Gavel's policy gives a job, the strategy's choice, the expected cost."""
