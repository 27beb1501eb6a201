"""Slurm: a cluster whose preemptible partitions are the markets, and whose jobs are the
machines."""
