"""Metrics of runs in Prometheus' text format, written to a file or served on this computer."""
