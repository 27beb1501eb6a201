"""Schedules: in which order stages work, with which weight versions, and how long that takes."""
