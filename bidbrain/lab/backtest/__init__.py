"""Backtests: what strategies would have paid for jobs at random moments of a recorded market, and
lower bounds.
"""
