"""Gavel: which job runs on which worker type, and for how long."""
