"""Pipeline parallelism: how a model is best split over devices, what that split achieves, and
training with it.

The modules next to the rooms are for users: what a model's file or a script imports. Planning,
schedules and simulation are pure and need no deep-learning framework.
"""
