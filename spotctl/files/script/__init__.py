"""Reads a training script without running it: what it saves, loads and needs, and what to change
for evictions.
"""
