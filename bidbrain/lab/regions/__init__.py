"""Replays of one job that may run in many zones, regions and clouds, until a deadline."""
