"""Forecast: what a job will cost and how long it takes, from plays of its decision object over the
past.
"""
