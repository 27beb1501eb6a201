"""Pipeline parallelism: how a model is best split over devices, and what that split achieves.

Planning, schedules and simulation are pure and need no deep-learning framework.
"""
