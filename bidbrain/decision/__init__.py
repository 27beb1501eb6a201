"""The decision object: a strategy within a job's limits, the same for plans, runs and replays.
Pure.
"""
