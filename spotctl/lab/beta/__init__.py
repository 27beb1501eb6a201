"""Eviction estimates of `spotctl beta`: the question, its tables and plots."""
