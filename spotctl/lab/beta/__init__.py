"""Eviction estimates of `spotctl lab beta`: the question, its tables and plots."""
