"""Gavel: which job runs on which machines, and for how long."""
