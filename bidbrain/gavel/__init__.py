"""Gavel: which job runs on which instance type, and for how long."""
