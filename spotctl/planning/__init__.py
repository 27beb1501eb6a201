"""Plans of jobs, with reasons: offers, the share that Gavel's policy gives a job, the strategy's
choice, the cost.
"""
